"""Set algebra on selections: either, both, one without the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import LONGEST_LABEL, Selection, Thresholds, once
from lesion.edits.selections.topk import Wanda


@validated
@dataclass(frozen=True, eq=False)
class _Algebra(Selection):
    first: Selection
    second: Selection
    word: ClassVar[str]

    @property
    def label(self) -> str:
        """The labels of both, joined by the word: `mathneuro-0.05_minus_wanda-0.1`, cut at 80 letters."""
        return f"{self.first.label}_{self.word}_{self.second.label}"[:LONGEST_LABEL]

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Those of both, each once."""
        return once((*self.first.inputs, *self.second.inputs))

    def top_shares(self) -> Iterator[Wanda]:
        """Those of both."""
        yield from self.first.top_shares()
        yield from self.second.top_shares()

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Selection:
        """With those of both."""
        return replace(self, first=self.first.with_thresholds(known), second=self.second.with_thresholds(known))

    def loosened(self) -> Selection:
        """With both loosened."""
        return replace(self, first=self.first.loosened(), second=self.second.loosened())

    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """`{"or": [recipe, recipe]}`, likewise `and` and `minus`."""
        return {self.word: [self.first.recipe(keep_inputs), self.second.recipe(keep_inputs)]}


class Either(_Algebra):
    """What is in one selection or in the other."""

    kind = word = "or"

    def touches(self, address: str) -> bool:
        """Where one of them does."""
        return self.first.touches(address) or self.second.touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The union of both masks."""
        return self.first.mask(address, weight) | self.second.mask(address, weight)


class Both(_Algebra):
    """What is in both selections."""

    kind = word = "and"

    def touches(self, address: str) -> bool:
        """Where both do."""
        return self.first.touches(address) and self.second.touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The intersection of both masks."""
        return self.first.mask(address, weight) & self.second.mask(address, weight)


class Without(_Algebra):
    """What is in the first selection and not in the second."""

    kind = word = "minus"

    def touches(self, address: str) -> bool:
        """Where the first does."""
        return self.first.touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The difference of both masks."""
        return self.first.mask(address, weight) & ~self.second.mask(address, weight)
