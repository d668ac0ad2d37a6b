"""Selections: values that say which weights of a model are meant; a mask per matrix, computed from the weights.

A selection is a recipe. It holds what was observed of the data (`Inputs`), not a mask, and so takes kilobytes; its mask
of a matrix follows from the recipe and that matrix alone, which lets a checkpoint be edited shard by shard.

    MathNeuro(skill, controls, keep)   what the skill needs and no control does (`shares.py`)
    Wanda(inputs, keep, per)           what one data set needs
    Magnitude(keep)                    the largest weights
    LAPE(skill, controls, keep)        feed-forward neurons that fire on the skill alone (`neurons.py`)
    Random(like, seed)                 as many weights of every matrix as another selection, drawn (`drawing.py`)
    a | b, a & b, a - b                either, both, the first without the second (`algebra.py`)

The rule for ties: the top share of a matrix is every weight whose score reaches that of the k-th largest, with
k = ⌊keep · size⌋ and at least 1. Weights that tie with it are all selected. A weight whose score is 0 never is.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.inputs import Inputs
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model

if TYPE_CHECKING:
    from lesion.edits.selections.topk import Wanda

Thresholds = Mapping[str, Float[Tensor, "*rows"]]


# A name of a selection is part of the text form of an edit, and of file names.
LONGEST_LABEL = 80


def check_keep(keep: float | int) -> float:
    """A share in (0, 1].

    Raises:
        UsageError: it is not.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"keep is the share of weights that is selected, above 0 and at most 1, not {keep!r}.")
    return float(keep)


@dataclass(frozen=True, eq=False)
class Selection(ABC):
    """What all selections can do. Two of the same recipe are equal, whatever they have been fixed to."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name of letters, digits, `.`, `-` and `_`: `mathneuro-0.05`."""

    @abstractmethod
    def touches(self, address: str) -> bool:
        """Whether anything of a matrix may be selected; where not, its mask is empty."""

    @abstractmethod
    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """Which entries of the matrix at an address are selected, given its values; on the device of the weight.

        Raises:
            LesionError: the matrix does not have the shape for which the selection was made.
        """

    @abstractmethod
    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """The selection as JSON values; `keep_inputs(inputs)` gives the name under which inputs are kept."""

    @validated
    def fixed(self, model: Model) -> Selection:
        """The same selection with everything that needs a sort of the model's weights worked out once.

        It gives the same masks on this model, faster; on other weights its masks would be wrong.
        """
        from lesion.edits.selections.topk import fixed_together  # made of this class

        return fixed_together([self], model)[0]

    def top_shares(self) -> Iterator[Wanda]:
        """Every top share of a data set's scores that the selection is made of: what `fixed` finds thresholds for."""
        return iter(())

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Selection:
        """The same selection, its top shares given the thresholds that stand under their digests."""
        return self

    def loosened(self) -> Selection:
        """The recipe alone, without what `fixed` worked out: for another model of the same shapes."""
        return self

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Everything observed that the recipe uses, each once."""
        return ()

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that tell one recipe from another."""
        text = json.dumps(self.recipe(lambda inputs: inputs.digest), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __or__(self, other: Selection) -> Selection:
        from lesion.edits.selections.algebra import Either  # made of this class

        return Either(self, other)

    def __and__(self, other: Selection) -> Selection:
        from lesion.edits.selections.algebra import Both  # made of this class

        return Both(self, other)

    def __sub__(self, other: Selection) -> Selection:
        from lesion.edits.selections.algebra import Without  # made of this class

        return Without(self, other)


def once(inputs: Iterable[Inputs]) -> tuple[Inputs, ...]:
    """Each of several inputs once, in order."""
    return tuple({each.digest: each for each in inputs}.values())


@dataclass(frozen=True)
class Count:
    """How much of one matrix a selection holds. `block` is None for the output head."""

    address: str
    block: int | None
    matrix: str
    selected: int
    total: int

    @classmethod
    def at(cls, address: str, selected: int, total: int) -> Count:
        """The count of the matrix at an address: `3.mlp.up`, or `head`."""
        block, _, name = address.partition(".")
        return cls(address, int(block) if name else None, name or address, selected, total)


def count(selection: Selection, model: Model) -> list[Count]:
    """How many weights of every matrix of a model are selected, matrices that it does not touch included.

    Raises:
        LesionError: the selection is empty, or is everything, on this model; it would cut nothing, or all there is.
    """
    found = []
    for address, matrix in model.anatomy.scored.items():
        selected = int(selection.mask(address, matrix.read()).sum()) if selection.touches(address) else 0
        out, into = matrix.shape
        found.append(Count.at(address, selected, out * into))
    check_extent(selection, sum(c.selected for c in found), sum(c.total for c in found), model.name)
    return found


def check_extent(selection: Selection, selected: int, total: int, name: str) -> None:
    """Refuse a selection that is empty or everything.

    Raises:
        LesionError: it is.
    """
    if selected == 0:
        raise LesionError(
            f"The selection {selection.label} is empty on {name}: no weight is left. With another keep, other "
            f"controls or more texts some may be."
        )
    if selected == total:
        raise LesionError(f"The selection {selection.label} is everything that {name} has; choose a smaller keep.")
