"""Unit factors: which columns of a table multiply or replace which units of a block; units left alone take no room."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.edit import Edit
from lesion.edits.replace import Replace
from lesion.edits.units import of_units, site_of
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.units import Site


@dataclass(frozen=True, eq=False)
class UnitFactors:
    """The edited units of one site, in the order of their columns; tensors lie on the CPU.

    Attributes:
        columns, numbers: a column of the table and a unit that it multiplies or replaces, each pair once.
        factors: by what, float64; 1 only where it is replaced.
        replaced: the number of the replacement among those of the table, −1 where there is none.
        count: units of the site.
    """

    columns: Int[Tensor, " edited"]
    numbers: Int[Tensor, " edited"]
    factors: Float[Tensor, " edited"]
    replaced: Int[Tensor, " edited"]
    count: int

    def select(self, columns: Int[Tensor, " chosen"]) -> UnitFactors:
        """Those of a table with these columns, in this order; one may be named twice."""
        new, edited = (columns[:, None] == self.columns).nonzero().unbind(1)
        return self._of(new, edited)

    def without(self, columns: Bool[Tensor, " columns"]) -> UnitFactors:
        """Those of the same table in which some columns leave the site alone."""
        kept = ~columns[self.columns]
        return self._of(self.columns[kept], kept)

    def _of(self, columns: Int[Tensor, " chosen"], edited: Tensor) -> UnitFactors:
        return UnitFactors(columns, self.numbers[edited], self.factors[edited], self.replaced[edited], self.count)

    def by_row(self) -> tuple[Int[Tensor, " rows"], Float[Tensor, "rows units"]]:
        """The columns that edit any unit, and their factors of every unit of the site."""
        rows, place = self.columns.unique(return_inverse=True)
        factors = torch.ones(len(rows), self.count, dtype=torch.float64)
        factors[place, self.numbers] = self.factors
        return rows, factors

    def replaced_by_row(self) -> Mapping[int, Int[Tensor, " rows"]]:
        """By unit that some column replaces, the number of every column's replacement up to the last edited; −1 where
        a column has none.
        """
        by_unit: dict[int, Tensor] = {}
        for at in (self.replaced >= 0).nonzero()[:, 0].tolist():
            numbers = by_unit.setdefault(int(self.numbers[at]), torch.full((int(self.columns.max()) + 1,), -1))
            numbers[self.columns[at]] = self.replaced[at]
        return by_unit


def unit_factors(
    edits: Sequence[Edit], anatomy: Anatomy, replacements: Mapping[Replace, int]
) -> Mapping[Site, UnitFactors]:
    """By site, the units that some edit multiplies or replaces; factors of one edit on one unit multiply.

    Args:
        edits: of the columns.
        anatomy: of the model.
        replacements: the number of each replacement in the table.
    """
    sites: dict[Site, dict[tuple[int, int], float]] = {}
    replaced: dict[tuple[Site, int, int], int] = {}
    for column, edit in enumerate(edits):
        for part in of_units(edit):
            site, numbers = site_of(part, anatomy)
            products = sites.setdefault(site, {})
            if isinstance(part, Replace):
                refuse_twice(edit, part, (site, column, numbers[0]) in replaced)
                replaced[site, column, numbers[0]] = replacements[part]
                products.setdefault((column, numbers[0]), 1.0)
                continue
            for number in numbers:
                product = products.get((column, number), 1.0) * part.factor
                if not math.isfinite(product):
                    raise UsageError(
                        f"The factors of '{edit}' on one {part.unit} multiply to something that is not finite."
                    )
                products[column, number] = product
        for part in (part for part in of_units(edit) if isinstance(part, Replace)):
            site, numbers = site_of(part, anatomy)
            refuse_twice(edit, part, sites[site][column, numbers[0]] != 1)
    tables = {}
    for site, products in sites.items():
        own = [(*place, product, replaced.get((site, *place), -1)) for place, product in products.items()]
        edited = [each for each in own if each[2] != 1 or each[3] >= 0]
        columns, units, factors, numbers_replaced = zip(*edited, strict=True) if edited else ((), (), (), ())
        tables[site] = UnitFactors(
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(units, dtype=torch.long),
            torch.tensor(factors, dtype=torch.float64),
            torch.tensor(numbers_replaced, dtype=torch.long),
            site.count,
        )
    return tables


def refuse_twice(edit: Edit, part: Replace, again: bool) -> None:
    """Refuse an edit that replaces a place and changes it once more."""
    if again:
        raise UsageError(
            f"'{edit}' replaces {part.address} and changes it once more, and the order would matter; name each place"
            " once."
        )
