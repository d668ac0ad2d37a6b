"""Edits as numbers: a table of factors over blocks, units and rows, and the arithmetic of scaling with it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import Edit, Scale, ScaleParameters, Truncate, parts
from lesion.edits.place import UNITS
from lesion.edits.replace import Replace
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy


def factors(edits: Sequence[Edit], anatomy: Anatomy) -> Float[Tensor, "blocks units rows"]:
    """What every place is multiplied by: entry [layer, unit, row] under `edits[row]`, units as in `UNITS`.

    float64 on the CPU, 1 where nothing is edited. Factors of one edit on the same place multiply. Truncations,
    replacements and factors of inner units are passed over (`table.py` has them).
    """
    distinct = {edit: column for column, edit in enumerate(dict.fromkeys(edits))}
    table = torch.ones(len(anatomy.blocks), len(UNITS), len(distinct), dtype=torch.float64)
    for edit, column in distinct.items():
        for part in parts(edit):
            if isinstance(part, Truncate | Replace):
                continue
            if isinstance(part, ScaleParameters):
                raise UsageError(
                    f"'{part}' changes weights, which all rows of a batch share; make it so with `applied`, and give"
                    f" gates what `of_places` leaves of an edit."
                )
            if part.unit not in UNITS:
                continue
            refuse_unknown(part, anatomy)
            table[part.layer, UNITS.index(part.unit), column] *= part.factor
        if not bool(table[:, :, column].isfinite().all()):
            raise UsageError(f"The factors of '{edit}' on one place multiply to something that is not finite.")
    return table[:, :, [distinct[edit] for edit in edits]]


def refuse_unknown(part: Scale | Replace, anatomy: Anatomy) -> None:
    """Refuse the edit of a block or branch that a model does not have."""
    block = anatomy.block(part.layer)
    if part.unit != "block" and getattr(block, part.unit) is None:
        raise UsageError(
            f"'{part}' names a place that was not found: no {part.unit} is known in block {part.layer} of"
            f" {anatomy.name}. `lesion show {anatomy.name}` lists what is known; whole blocks can be edited."
        )


def scale_contribution(
    before: Float[Tensor, "batch *places width"],
    after: Float[Tensor, "batch *places width"],
    factor: Float[Tensor, " rows"],
    ends: bool = False,
) -> Float[Tensor, "batch *places width"]:
    """The residual stream after a block under each row's factor: before + factor · (after − before).

    Factor 1 gives `after` and factor 0 `before`, bit for bit and also where `after` is not finite. In between, the sum
    is taken in the dtype of `factor` and rounded once to that of `after`.

    Args:
        factor: one per row of the batch, or a single one for all rows.
        ends: a promise that every factor is 0 or 1, which spares the arithmetic in between.
    """
    factor = _per_row(factor, after)
    chosen = torch.where(factor != 0, after, before)
    if ends:
        return chosen
    start = before.to(factor.dtype)
    between = (start + factor * (after.to(factor.dtype) - start)).to(after.dtype)
    return torch.where((factor != 0) & (factor != 1), between, chosen)


def scale_output(
    output: Float[Tensor, "batch *places width"], factor: Float[Tensor, " rows"], ends: bool = False
) -> Float[Tensor, "batch *places width"]:
    """What a branch adds to the residual stream under each row's factor: factor · output.

    Factor 1 leaves it untouched and factor 0 gives zeros, also where it is not finite. In between, the product is taken
    in the dtype of `factor` and rounded once. Arguments as in `scale_contribution`.
    """
    return _scaled(output, _per_row(factor, output), ends)


def scale_slices(
    given: Float[Tensor, "batch length slices size"], factors: Float[Tensor, "rows slices"], ends: bool = False
) -> Float[Tensor, "batch length slices size"]:
    """What a matrix is given under each row's factors, one for every slice of its input; as of `scale_output`."""
    return _scaled(given, factors[:, None, :, None], ends)


def _scaled(output: Tensor, factor: Tensor, ends: bool) -> Tensor:
    chosen = output.masked_fill(factor == 0, 0.0)
    if ends:
        return chosen
    between = (factor * output.to(factor.dtype)).to(output.dtype)
    return torch.where((factor != 0) & (factor != 1), between, chosen)


def _per_row(factor: Float[Tensor, " rows"], like: Tensor) -> Tensor:
    return factor.view(-1, *[1] * (like.dim() - 1))
