"""Head factors: which columns of a table multiply which query heads of a block; heads left alone take no room."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.edit import Edit
from lesion.edits.heads import of_heads, query_heads
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy


@dataclass(frozen=True, eq=False)
class HeadFactors:
    """The edited heads of one block, in the order of their columns; tensors lie on the CPU.

    Attributes:
        columns, heads: a column of the table and a query head that it multiplies, each pair once.
        factors: by what, float64, never 1.
        count: query heads of the block.
    """

    columns: Int[Tensor, " edited"]
    heads: Int[Tensor, " edited"]
    factors: Float[Tensor, " edited"]
    count: int

    def select(self, columns: Int[Tensor, " chosen"]) -> HeadFactors:
        """Those of a table with these columns, in this order; one may be named twice."""
        new, edited = (columns[:, None] == self.columns).nonzero().unbind(1)
        return HeadFactors(new, self.heads[edited], self.factors[edited], self.count)

    def without(self, columns: Bool[Tensor, " columns"]) -> HeadFactors:
        """Those of the same table in which some columns leave the heads of the block alone."""
        kept = ~columns[self.columns]
        return HeadFactors(self.columns[kept], self.heads[kept], self.factors[kept], self.count)

    def by_row(self) -> tuple[Int[Tensor, " rows"], Float[Tensor, "rows heads"]]:
        """The columns that edit any head, and their factors of every head of the block."""
        rows, place = self.columns.unique(return_inverse=True)
        factors = torch.ones(len(rows), self.count, dtype=torch.float64)
        factors[place, self.heads] = self.factors
        return rows, factors


def head_factors(edits: Sequence[Edit], anatomy: Anatomy) -> Mapping[int, HeadFactors]:
    """By block, the heads that some edit multiplies; factors of one edit on one head multiply.

    Raises:
        UsageError: the model has no such head, the layout of its heads is not known, or factors on one head multiply to
            something that is not finite.
    """
    found: dict[int, dict[tuple[int, int], float]] = {}
    for column, edit in enumerate(edits):
        for part in of_heads(edit):
            of_layer = found.setdefault(part.layer, {})
            for head in query_heads(part, anatomy):
                product = of_layer.get((column, head), 1.0) * part.factor
                if not math.isfinite(product):
                    raise UsageError(f"The factors of '{edit}' on one head multiply to something that is not finite.")
                of_layer[column, head] = product
    tables = {}
    for layer, products in found.items():
        edited = [(*place, product) for place, product in products.items() if product != 1]
        columns, heads, factors = zip(*edited, strict=True) if edited else ((), (), ())
        tables[layer] = HeadFactors(
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(heads, dtype=torch.long),
            torch.tensor(factors, dtype=torch.float64),
            anatomy.heads(layer).count,
        )
    return tables
