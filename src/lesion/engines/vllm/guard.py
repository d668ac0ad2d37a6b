"""The effect guard: before a sweep counts, edits of its kinds must act as on the network here, and be taken back.

An engine that keeps running between edits can fool in three ways: an edit does nothing, it does something else, or it
is still there afterwards. Each looks like a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lesion.edits.edit import Compose, Edit, Scale, ScaleParameters, of_places, of_spectra, of_weights
from lesion.edits.place import UNITS, Unit
from lesion.edits.selections.topk import Magnitude
from lesion.edits.units import how_many, scaling
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model

Kind = Unit | Literal["weights"]


def kinds_of(edit: Edit) -> Iterator[Kind]:
    """The kinds of places that an edit multiplies (those of a key-value group are heads), and weights."""
    for part in of_places(edit).edits:
        if isinstance(part, Scale):
            yield "head" if part.unit == "group" else part.unit
    if of_weights(edit) or of_spectra(edit):
        yield "weights"


def control_of(model: Model, kind: Kind) -> Edit:
    """An edit of a kind that changes much, and no two places alike.

    Every block, attention or MLP is multiplied by a factor of its own, or every unit of the first and the last block
    that have any; of weights, matrices that write to the stream are zeroed, in one block and not those of experts.
    """
    blocks = model.anatomy.blocks
    if kind == "weights":
        for block in blocks:
            plain = [
                branch
                for branch in block.branches
                if all(matrix.storage.expert is None for matrix in branch.matrices.values())
            ]
            if ends := tuple(end.address for branch in plain for end in branch.ends):
                return ScaleParameters(Magnitude(1.0, ends), 0.0)
        raise LesionError(f"{model.name} has no block by which it could be shown that edits of weights take hold.")
    counts = {block.index: _count(model, kind, block.index) for block in blocks}
    layers = [layer for layer, count in counts.items() if count]
    if kind in UNITS:
        return Compose(tuple(scaling(kind, layer, _factor(place)) for place, layer in enumerate(layers)))
    every = [(layer, number) for layer in dict.fromkeys((layers[0], layers[-1])) for number in range(counts[layer])]
    return Compose(tuple(scaling(kind, layer, _factor(number), number) for layer, number in every))


def _factor(number: int) -> float:
    """From 0 to 1, of neighbours far apart: a shift by one would hardly show in factors that rise slowly."""
    return number * 0.618 % 1


def _count(model: Model, unit: Unit, layer: int) -> int:
    if unit in UNITS:
        return int(unit == "block" or getattr(model.anatomy.block(layer), unit) is not None)
    try:
        return how_many(unit, layer, model.anatomy)
    except UsageError:
        return 0
