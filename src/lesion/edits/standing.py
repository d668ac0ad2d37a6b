"""Standing: an assignment of edits to rows that is changed in place, so that what was recorded reads the new one.

Every place that some column of a table edits is run through in all rows; where a row's column leaves it alone, it is
multiplied by 1, which changes no bit, and nothing is put in its place. Truncations have no such form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lesion.edits.replace import Replace
from lesion.edits.table import Table
from lesion.edits.unit_rows import Buffer, Vectors, vectors_at
from lesion.models.units import Site

# Bytes that factors of inner units of all rows may take, in single precision.
BUDGET = 1 << 30


def rows_standing(columns: Table, rows: int) -> int:
    """How many of so many rows may be under the columns of a table by a standing assignment; 0 where it has no such."""
    sites = [each for each in columns.units.values() if len(each.columns)]
    if columns.kept or any(bool((each.replaced >= 0).any()) for each in sites):
        return 0
    return min(rows, BUDGET // max(1, 4 * sum(each.count for each in sites)))


class Standing:
    """A standing assignment of columns of a table to rows, which are unedited until they are seated.

    Attributes:
        columns: the table.
        table: what every row is under now, inner units left out.
        factors, replaced: as `Table.scales` and `Table.replaced`, of the rows.
        units: by site, the factors [units, rows] of its units.
    """

    def __init__(self, columns: Table, rows: int) -> None:
        self.columns = columns
        none = columns.select(torch.zeros(rows, dtype=torch.long))
        self.factors = Buffer(torch.ones_like(none.scales))
        self.replaced = Buffer(torch.full_like(none.replaced, -1))
        self.table = replace(none, scales=self.factors.numbers, replaced=self.replaced.numbers, units={})
        self.units: Mapping[Site, Buffer] = {
            site: Buffer(torch.ones(each.count, rows, dtype=torch.float64))
            for site, each in columns.units.items()
            if len(each.columns)
        }

    def replacing(self, place: tuple[int, int], vectors: Vectors) -> ReplacingRows | None:
        """What rows put at a place, a block and a unit of `UNITS`; None where no column replaces it."""
        numbers = sorted(set(self.columns.replaced[place].tolist()) - {-1})
        chosen = {number: self.columns.replacements[number] for number in numbers}
        return ReplacingRows(chosen, self.replaced, place, vectors) if chosen else None

    def seat(self, rows: Int[Tensor, " seated"], columns: Int[Tensor, " seated"]) -> None:
        """Put rows under columns of the table."""
        self.factors.put(rows, self.columns.scales[:, :, columns])
        self.replaced.put(rows, self.columns.replaced[:, :, columns])
        for site, buffer in self.units.items():
            factors = torch.ones(buffer.numbers.shape[0], len(rows), dtype=torch.float64)
            edited, own = self.columns.units[site].select(columns).by_row()
            factors[:, edited] = own.T
            buffer.put(rows, factors)


class ReplacingRows:
    """What rows put at one place under a standing assignment.

    Args:
        chosen: by number, each replacement that some column has there.
        replaced, place: the numbers of all rows, and where those of this place stand.
    """

    def __init__(
        self, chosen: Mapping[int, Replace], replaced: Buffer, place: tuple[int, int], vectors: Vectors
    ) -> None:
        self._chosen, self._replaced, self._place, self._vectors = chosen, replaced, place, vectors
        self.positional = any(part.vectors.shape[0] > 1 for part in chosen.values())

    def __call__(
        self,
        output: Float[Tensor, "rows length width"],
        before: Float[Tensor, "rows length width"] | None,
        positions: Int[Tensor, "_ _"] | None,
    ) -> Float[Tensor, "rows length width"]:
        """As of `Replacing`."""
        dtype = torch.promote_types(output.dtype, torch.float32)
        numbers = self._replaced.on(output.device, torch.long)[self._place]
        for number, part in self._chosen.items():
            vectors = vectors_at(self._vectors.of(part, output.device).to(dtype), positions, output)
            added = vectors if before is None else before.to(dtype) + vectors
            output = torch.where((numbers == number)[:, None, None], added.to(output.dtype), output)
        return output
