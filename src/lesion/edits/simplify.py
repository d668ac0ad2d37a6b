"""One spelling for edits of places and spectra that are the same change."""

from __future__ import annotations

import math
from dataclasses import replace

from lesion.edits.edit import BASELINE, Edit, Scale, ScaleParameters, Single, Truncate, composed, parts
from lesion.edits.place import Unit
from lesion.edits.units import part_of

ORDER: tuple[Unit, ...] = ("block", "attention", "group", "head", "mlp", "expert", "neuron", "matrix")
Place = tuple[int, int, int, str]
"""Block, unit in this order, number of the head, group, expert or neuron, and name of the matrix."""


def simplified(edit: Edit) -> Edit:
    """The same change with every place named once, in order, and without what changes nothing.

    Factors on one place are multiplied. An edit with a selection of weights stays as it is: selections are made on the
    unedited weights, and their order may matter.

    Example:
        >>> str(simplified(lesion.parse("4×0.5 + 3×0 + 4×0.5 + 2×1")))
        '3×0 + 4×0.25'
    """
    single = list(parts(edit))
    if any(isinstance(part, ScaleParameters) for part in single):
        return edit
    scaled: dict[Place, list[Scale]] = {}
    others: dict[str, Single] = {}
    for part in single:
        if isinstance(part, Scale):
            scaled.setdefault(_order(part), []).append(part)
        elif not (isinstance(part, Truncate) and part.keep == 1):
            others.setdefault(str(part), part)
    together = [scaled[place] for place in sorted(scaled)]
    scales = [replace(own[0], factor=math.prod(float(part.factor) for part in own)) for own in together]
    kept: list[Single] = [scale for scale in scales if scale.factor != 1]
    kept += [others[text] for text in sorted(others)]
    return composed(kept) if kept else BASELINE


def _order(part: Scale) -> Place:
    which = part_of(part)
    named = isinstance(which, str)
    return part.layer, ORDER.index(part.unit), 0 if named else int(which or 0), str(which) if named else ""
