"""Unit factors: which columns of a table multiply which units of a block; units left alone take no room."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.edit import Edit
from lesion.edits.units import of_units, site_of
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.units import Site


@dataclass(frozen=True, eq=False)
class UnitFactors:
    """The edited units of one site, in the order of their columns; tensors lie on the CPU.

    Attributes:
        columns, numbers: a column of the table and a unit that it multiplies, each pair once.
        factors: by what, float64, never 1.
        count: units of the site.
    """

    columns: Int[Tensor, " edited"]
    numbers: Int[Tensor, " edited"]
    factors: Float[Tensor, " edited"]
    count: int

    def select(self, columns: Int[Tensor, " chosen"]) -> UnitFactors:
        """Those of a table with these columns, in this order; one may be named twice."""
        new, edited = (columns[:, None] == self.columns).nonzero().unbind(1)
        return UnitFactors(new, self.numbers[edited], self.factors[edited], self.count)

    def without(self, columns: Bool[Tensor, " columns"]) -> UnitFactors:
        """Those of the same table in which some columns leave the site alone."""
        kept = ~columns[self.columns]
        return UnitFactors(self.columns[kept], self.numbers[kept], self.factors[kept], self.count)

    def by_row(self) -> tuple[Int[Tensor, " rows"], Float[Tensor, "rows units"]]:
        """The columns that edit any unit, and their factors of every unit of the site."""
        rows, place = self.columns.unique(return_inverse=True)
        factors = torch.ones(len(rows), self.count, dtype=torch.float64)
        factors[place, self.numbers] = self.factors
        return rows, factors


def unit_factors(edits: Sequence[Edit], anatomy: Anatomy) -> Mapping[Site, UnitFactors]:
    """By site, the units that some edit multiplies; factors of one edit on one unit multiply.

    Raises:
        UsageError: the model has no such unit, it is not known where its units lie, or factors on one unit multiply to
            something that is not finite.
    """
    sites: dict[Site, dict[tuple[int, int], float]] = {}
    for column, edit in enumerate(edits):
        for part in of_units(edit):
            site, numbers = site_of(part, anatomy)
            products = sites.setdefault(site, {})
            for number in numbers:
                product = products.get((column, number), 1.0) * part.factor
                if not math.isfinite(product):
                    raise UsageError(
                        f"The factors of '{edit}' on one {part.unit} multiply to something that is not finite."
                    )
                products[column, number] = product
    tables = {}
    for site, products in sites.items():
        edited = [(*place, product) for place, product in products.items() if product != 1]
        columns, units, factors = zip(*edited, strict=True) if edited else ((), (), ())
        tables[site] = UnitFactors(
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(units, dtype=torch.long),
            torch.tensor(factors, dtype=torch.float64),
            site.count,
        )
    return tables
