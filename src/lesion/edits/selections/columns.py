"""Columns: what of one matrix reads some of its inputs, such as one attention head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.edit import MATRIX
from lesion.edits.selections.selection import Selection
from lesion.errors import LesionError, UsageError
from lesion.plain import short
from lesion.reprs import short_repr


@validated
@dataclass(frozen=True, eq=False)
class Columns(Selection):
    """All weights of some neighbouring columns (inputs) of one matrix, whatever their values.

    Args:
        address: of the matrix: `23.attention.o`.
        start, stop: the first column and the one after the last, counted from 0.
    """

    address: str
    start: int
    stop: int
    kind: ClassVar[str] = "columns"
    RECIPE: ClassVar[Mapping[str, str]] = {"columns": "address", "start": "start", "stop": "stop"}

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if MATRIX.fullmatch(self.address) is None:
            raise UsageError(f"'{short(self.address)}' is not the address of a matrix, such as 23.attention.o.")
        if not 0 <= self.start < self.stop:
            raise UsageError(f"Columns {self.start} to {self.stop} are none; count from 0, the last one not included.")

    @property
    def label(self) -> str:
        """`23.attention.o-columns-256-320`."""
        return f"{self.address[:40]}-columns-{self.start}-{self.stop}"

    @property
    def named(self) -> tuple[str, ...]:
        """The matrix."""
        return (self.address,)

    def touches(self, address: str) -> bool:
        """Only the matrix itself."""
        return address == self.address

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The columns."""
        mask = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        if address == self.address:
            if self.stop > weight.shape[1]:
                raise LesionError(f"There are no columns up to {self.stop}: {address} has {weight.shape[1]:,}.")
            mask[:, self.start : self.stop] = True
        return mask
