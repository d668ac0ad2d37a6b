"""One spelling for edits of places and spectra that are the same change."""

from __future__ import annotations

import math

from lesion.edits.edit import BASELINE, SCALES, UNITS, Edit, Scale, ScaleParameters, Single, Truncate, composed, parts


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
    factors: dict[tuple[int, int], list[float]] = {}
    others: dict[str, Single] = {}
    for part in single:
        if isinstance(part, Scale):
            factors.setdefault((part.layer, UNITS.index(part.unit)), []).append(float(part.factor))
        elif not (isinstance(part, Truncate) and part.keep == 1):
            others.setdefault(str(part), part)
    scales = [SCALES[UNITS[unit]](layer, math.prod(of_place)) for (layer, unit), of_place in sorted(factors.items())]
    kept: list[Single] = [scale for scale in scales if scale.factor != 1]
    kept += [others[text] for text in sorted(others)]
    return composed(kept) if kept else BASELINE
