"""Head rows: an attention whose heads are multiplied row by row, at the input of its output matrix."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lesion.edits.factors import scale_heads
from lesion.edits.head_factors import HeadFactors
from lesion.errors import LesionError
from lesion.models.heads import Heads


class HeadRows:
    """The heads of one block, whether rows multiply them under the present assignment, and the hook that does it."""

    def __init__(self, layer: int, heads: Heads) -> None:
        self.address = f"{layer}.attention"
        self.layer = layer
        self.heads = heads
        self.active = False
        self.rows = 0  # of the batch that came to the block last
        self.needed = 0  # rows that must have joined a growing batch by now: up to the last one edited here
        self.passed = False  # that the present forward pass ran through it

    def assign(self, factors: HeadFactors, everywhere: bool, growing: bool) -> None:
        """Every row takes the factors of its column; a single column may stand for all rows."""
        self.active = True
        self.passed = False
        self._everywhere = everywhere
        self._edited, self._factors = factors.by_row()
        self.needed = int(self._edited.max()) + 1 if growing else 0
        self._ends = bool(((self._factors == 0) | (self._factors == 1)).all())
        self._on: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def scale(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        """A forward pre-hook of the module that holds the output matrix: what it is given, with heads multiplied."""
        if not self.active:
            return None
        given = args[0] if args else kwargs.get("input")
        width = self.heads.count * self.heads.size
        if not isinstance(given, Tensor) or given.shape[-1] != width:
            raise LesionError(
                f"The output matrix of {self.address} was not given its {self.heads.count} heads side by side; edit"
                f" {self.address} as a whole."
            )
        self.passed = True
        # Half precision would make 1.1 into 1.1016: the factors and their products are float32 at least.
        key = (given.device, torch.promote_types(given.dtype, torch.float32))
        if key not in self._on:
            self._on[key] = self._factors.to(*key)
        # OPT may give [rows · length, width]; the rows were counted at the block's input.
        by_row = given.reshape(self.rows, -1, self.heads.count, self.heads.size)
        if self._everywhere:
            scaled = scale_heads(by_row, self._on[key], self._ends)
        else:
            edited = self._edited[self._edited < self.rows].to(given.device)
            scaled = by_row.clone()
            scaled[edited] = scale_heads(by_row.index_select(0, edited), self._on[key][: len(edited)], self._ends)
        scaled = scaled.reshape(given.shape)
        return ((scaled, *args[1:]), dict(kwargs)) if args else (args, {**kwargs, "input": scaled})
