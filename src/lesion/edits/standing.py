"""Standing: an assignment of edits to rows that is changed in place, so that what was recorded reads the new one.

Every place that some column of a table edits is run through in all rows; where a row's column leaves it alone, it is
multiplied by 1, which changes no bit, nothing is put in its place, and what a truncated matrix gives is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from lesion.edits.buffer import Buffer
from lesion.edits.table import Table
from lesion.edits.unit_rows import ReplacingRows, Vectors
from lesion.models.units import Site

# Bytes that what is said of inner units and singular components of all rows may take, in single precision.
BUDGET = 1 << 30


def rows_standing(columns: Table) -> int:
    """How many rows may be under the columns of a table by a standing assignment."""
    numbers = sum(each.count for each in columns.units.values() if len(each.columns)) + sum(columns.ranks.values())
    return max(1, BUDGET // max(1, 4 * numbers))


class Standing:
    """A standing assignment of columns of a table to rows, which are unedited until they are seated.

    Attributes:
        columns: the table.
        table: what every row is under now, inner units and truncations left out.
        factors, replaced: as `Table.scales` and `Table.replaced`, of the rows.
        units: by site, the factors [units, rows] of its units, and the numbers of their replacements.
        kept: by address, the first singular component that a row keeps and the one after the last, [2, rows].
    """

    def __init__(self, columns: Table, rows: int) -> None:
        self.columns = columns
        none = columns.select(torch.zeros(rows, dtype=torch.long))
        self.factors = Buffer(torch.ones_like(none.scales))
        self.replaced = Buffer(torch.full_like(none.replaced, -1))
        self.table = replace(
            none, scales=self.factors.numbers, replaced=self.replaced.numbers, units={}, kept={}, ranks={}, layers={}
        )
        self.units: Mapping[Site, tuple[Buffer, Buffer]] = {
            site: (
                Buffer(torch.ones(each.count, rows, dtype=torch.float64)),
                Buffer(torch.full((each.count, rows), -1)),
            )
            for site, each in columns.units.items()
            if len(each.columns)
        }
        self.kept: Mapping[str, Buffer] = {
            address: Buffer(torch.tensor([[0], [rank]]).repeat(1, rows)) for address, rank in columns.ranks.items()
        }

    def replacing(self, place: tuple[int, int], vectors: Vectors) -> ReplacingRows | None:
        """What rows put at a place, a block and a unit of `UNITS`; None where no column replaces it."""
        return self._replacing(self.columns.replaced[place], self.replaced, place, vectors)

    def replacing_units(self, site: Site, vectors: Vectors) -> Mapping[int, ReplacingRows]:
        """What rows put at the units of a site that some column replaces."""
        each = self.columns.units[site]
        units = {
            unit: self._replacing(each.replaced[each.numbers == unit], self.units[site][1], (unit,), vectors)
            for unit in set(each.numbers.tolist())
        }
        return {unit: replacing for unit, replacing in units.items() if replacing is not None}

    def _replacing(
        self, numbers: Tensor, replaced: Buffer, place: tuple[int, ...], vectors: Vectors
    ) -> ReplacingRows | None:
        chosen = {number: self.columns.replacements[number] for number in sorted(set(numbers.tolist()) - {-1})}
        return ReplacingRows(chosen, replaced, place, vectors) if chosen else None

    def seat(self, rows: Int[Tensor, " seated"], columns: Int[Tensor, " seated"]) -> None:
        """Put rows under columns of the table."""
        self.factors.put(rows, self.columns.scales[:, :, columns])
        self.replaced.put(rows, self.columns.replaced[:, :, columns])
        for address, kept in self.kept.items():
            kept.put(rows, self.columns.kept[address][columns].T)
        for site, (scaled, replaced) in self.units.items():
            chosen = self.columns.units[site].select(columns)
            factors = torch.ones(chosen.count, len(rows), dtype=torch.float64)
            factors[chosen.numbers, chosen.columns] = chosen.factors
            numbers = torch.full((chosen.count, len(rows)), -1)
            numbers[chosen.numbers, chosen.columns] = chosen.replaced
            scaled.put(rows, factors)
            replaced.put(rows, numbers)
