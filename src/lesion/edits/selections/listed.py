"""Named weights: one by one, or what of one matrix reads some of its inputs, such as one attention head."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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

MOST_WEIGHTS = 10_000
"""They are all written into the header of an edit file."""
_WEIGHT = re.compile(
    r"(?P<address>head|[0-9]{1,9}(?:\.[A-Za-z0-9_-]+)+)\[\s*(?P<row>[0-9]{1,9})\s*,\s*(?P<column>[0-9]{1,9})\s*\]"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@validated
@dataclass(frozen=True, eq=False)
class Listed(Selection):
    """Single weights, each named by matrix, row (output) and column (input), whatever their values.

    Taken away from another selection (`selection - Listed(…)`), they are not drawn by its random controls either.

    Args:
        weights: `11.mlp.down[507,1229]`, …; rows and columns are counted from 0. Kept sorted, each once.
        name: what the label begins with: letters, digits, `-` and `_`.

    Raises:
        UsageError: there is none or there are too many, or a text or the name is not of that form.
    """

    weights: tuple[str, ...]
    name: str = "weights"
    kind: ClassVar[str] = "listed"
    RECIPE: ClassVar[Mapping[str, str]] = {"listed": "weights", "name": "name"}

    __repr__ = short_repr

    def __post_init__(self) -> None:
        places = sorted({_place(text) for text in self.weights})
        if not 0 < len(places) <= MOST_WEIGHTS:
            raise UsageError(f"{len(places):,} weights are listed; list at least 1 and at most {MOST_WEIGHTS:,}.")
        if _NAME.fullmatch(self.name) is None:
            raise UsageError(f"'{short(self.name)}' cannot name a selection: use letters, digits, - and _.")
        object.__setattr__(self, "weights", tuple(f"{address}[{row},{column}]" for address, row, column in places))

    @property
    def label(self) -> str:
        """`weights-8`: the name and how many they are; of one without a name of its own `11.mlp.down-507-1229`."""
        if len(self.weights) == 1 and self.name == "weights":
            address, row, column = _place(self.weights[0])
            return f"{address}-{row}-{column}"
        return f"{self.name}-{len(self.weights)}"

    @property
    def text(self) -> str:
        """The weight itself where it is a single one without a name of its own: text alone holds it."""
        return self.weights[0] if len(self.weights) == 1 and self.name == "weights" else super().text

    @cached_property
    def places(self) -> dict[str, list[tuple[int, int]]]:
        """Row and column of every weight, by the address of its matrix."""
        places: dict[str, list[tuple[int, int]]] = {}
        for address, row, column in map(_place, self.weights):
            places.setdefault(address, []).append((row, column))
        return places

    @property
    def named(self) -> tuple[str, ...]:
        """The matrices in which the weights lie."""
        return tuple(self.places)

    def touches(self, address: str) -> bool:
        """Where at least one of the weights is."""
        return address in self.places

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The listed entries."""
        mask = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        for row, column in self.places.get(address, []):
            if row >= weight.shape[0] or column >= weight.shape[1]:
                raise LesionError(
                    f"There is no {address}[{row},{column}]: {address} has {weight.shape[0]:,} rows and"
                    f" {weight.shape[1]:,} columns, counted from 0."
                )
            mask[row, column] = True
        return mask


def _place(text: str) -> tuple[str, int, int]:
    match = _WEIGHT.fullmatch(text)
    if match is None:
        raise UsageError(f"'{short(text)}' names no weight; write MATRIX[ROW,COLUMN], as 11.mlp.down[507,1229].")
    return match["address"], int(match["row"]), int(match["column"])


@validated
@dataclass(frozen=True, eq=False)
class Columns(Selection):
    """All weights of some neighbouring columns (inputs) of one matrix, whatever their values.

    Args:
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
