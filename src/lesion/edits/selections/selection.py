"""Selections: values that say which weights of a model are meant; a mask per matrix, computed from the weights.

A selection is a recipe. It holds what was observed of the data (`Inputs`), not a mask, and so takes kilobytes; its mask
of a matrix follows from the recipe and that matrix alone, which lets a checkpoint be edited shard by shard.

    MathNeuro(skill, controls, keep)   what the skill needs and no control does (`topk.py`)
    Wanda(inputs, keep, per)           what one data set needs
    Magnitude(keep)                    the largest weights
    LAPE(skill, controls, keep)        feed-forward neurons that fire on the skill alone (`neurons.py`)
    Listed(places)                     weights named one by one (`listed.py`)
    Columns(address, start, stop)      what of one matrix reads some of its inputs (`listed.py`)
    Random(like, seed)                 as many weights of every matrix as another selection, drawn (`controls.py`)
    Matched(like, seed, texts)         likewise, and as many of every size or importance (`controls.py`)
    a | b, a & b, a - b                either, both, the first without the second

The rule for ties: the top share of a matrix is every weight whose score reaches that of the k-th largest, with
k = ⌊keep · size⌋ and at least 1. Weights that tie with it are all selected. A weight whose score is 0 never is.
"""

from __future__ import annotations

import hashlib
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.inputs import Inputs
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import SILENT, Watcher
from lesion.reprs import short_repr

if TYPE_CHECKING:
    from lesion.edits.selections.topk import Wanda

Thresholds = Mapping[str, Float[Tensor, "*rows"]]


# A name of a selection is part of the text form of an edit, and of file names.
LONGEST_LABEL = 80


def check_keep(keep: float | int) -> float:
    """The share as a float; refuses one outside (0, 1]."""
    if not 0 < keep <= 1:
        raise UsageError(f"keep is the share of weights that is selected, above 0 and at most 1, not {keep!r}.")
    return float(keep)


@dataclass(frozen=True, eq=False)
class Selection(ABC):
    """What all selections can do. Two of the same recipe are equal, whatever they have been fixed to."""

    kind: ClassVar[str]
    RECIPE: ClassVar[Mapping[str, str]]
    """Keys of the JSON form and the attributes they hold, the kind first."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name of letters, digits, `.`, `-` and `_`: `mathneuro-0.05`."""

    @property
    def text(self) -> str:
        """How it stands in the text form of an edit: `LABEL@DIGEST`; a single weight as itself, `3.mlp.up[5,7]`."""
        return f"{self.label}@{self.digest}"

    @abstractmethod
    def touches(self, address: str) -> bool:
        """Whether anything of a matrix may be selected; where not, its mask is empty."""

    @abstractmethod
    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """Which entries of the matrix at an address are selected, given its values; on the device of the weight."""

    @validated
    def fixed(self, model: Model) -> Selection:
        """The same selection with everything that needs a sort of the model's weights worked out once.

        It gives the same masks on this model, faster; on other weights its masks would be wrong.
        """
        return fixed_together([self], model)[0]

    @property
    def named(self) -> tuple[str, ...]:
        """The addresses of matrices in which it lists single weights."""
        return tuple(dict.fromkeys(address for part in self.parts for address in part.named))

    @property
    def parts(self) -> tuple[Selection, ...]:
        """The selections that this one is made of."""
        return ()

    def made_of(self, parts: Sequence[Any]) -> Selection:
        """The same selection made of other parts."""
        return self

    def top_shares(self) -> Iterator[Wanda]:
        """Every top share of a data set's scores that the selection is made of: what `fixed` finds thresholds for."""
        for part in self.parts:
            yield from part.top_shares()

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Selection:
        """The same selection, its top shares given the thresholds that stand under their digests."""
        return self.made_of([part.with_thresholds(known) for part in self.parts])

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Everything observed that the recipe uses, each once."""
        return tuple({inputs.digest: inputs for part in self.parts for inputs in part.inputs}.values())

    def recipe(self, keep_inputs: Callable[[Inputs], object]) -> dict[str, object]:
        """The selection as JSON values; `keep_inputs(inputs)` gives the name under which inputs are kept."""

        def plain(value: object) -> object:
            if isinstance(value, Inputs):
                return keep_inputs(value)
            if isinstance(value, Selection):
                return value.recipe(keep_inputs)
            return [plain(each) for each in value] if isinstance(value, tuple) else value

        return {key: plain(getattr(self, attribute)) for key, attribute in self.RECIPE.items()}

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
        return Either(self, other)

    def __and__(self, other: Selection) -> Selection:
        return Both(self, other)

    def __sub__(self, other: Selection) -> Selection:
        return Without(self, other)


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
    """How many weights of every matrix are selected, untouched matrices included; refuses as `check_extent`, and a
    matrix that is named and not there.
    """
    refuse_unknown_matrices(selection, model)
    counts = []
    for address, matrix in model.anatomy.scored.items():
        selected = int(selection.mask(address, matrix.read()).sum()) if selection.touches(address) else 0
        out, into = matrix.shape
        counts.append(Count.at(address, selected, out * into))
    check_extent(selection, sum(c.selected for c in counts), sum(c.total for c in counts), model.name)
    return counts


def refuse_unknown_matrices(selection: Selection, model: Model) -> None:
    """Refuse a selection that names a matrix which a model does not have."""
    for address in selection.named:
        model.anatomy.matrix(address)


def check_extent(selection: Selection, selected: int, total: int, name: str) -> None:
    """Refuse a selection that is empty or everything."""
    if selected == 0:
        raise LesionError(
            f"The selection {selection.label} is empty on {name}: no weight is left. With another keep, other "
            f"controls or more texts some may be."
        )
    if selected == total:
        raise LesionError(f"The selection {selection.label} is everything that {name} has; choose a smaller keep.")


def fixed_together(selections: Sequence[Selection], model: Model, watcher: Watcher = SILENT) -> list[Selection]:
    """What `fixed` makes of several selections: each matrix is read once, its scores per data set sorted once."""
    groups: dict[tuple[str, str], dict[str, Wanda]] = {}
    for share in (share for selection in selections for share in selection.top_shares()):
        if share.thresholds is None:
            groups.setdefault((share.source.digest, share.per), {})[share.digest] = share
    known: dict[str, dict[str, Tensor]] = {digest: {} for group in groups.values() for digest in group}
    watcher.begin(model.name, len(model.anatomy.scored), 0, "matrices to order")
    for address, matrix in model.anatomy.scored.items():
        touching = [list(group.values()) for group in groups.values() if next(iter(group.values())).touches(address)]
        weight = matrix.read() if touching else None
        for shares in touching:
            assert weight is not None
            for share, bar in zip(shares, shares[0].cuts(shares, address, weight), strict=True):
                known[share.digest][address] = bar
        watcher.answered(1)
    return [selection.with_thresholds(known) for selection in selections]


@validated
@dataclass(frozen=True, eq=False)
class _Algebra(Selection):
    first: Selection
    second: Selection
    word: ClassVar[str]
    join: ClassVar[staticmethod[[Any, Any], Any]]
    """What becomes of the two masks, or of whether the two touch a matrix."""

    __repr__ = short_repr

    @property
    def label(self) -> str:
        """The labels of both, joined by the word: `mathneuro-0.05_minus_wanda-0.1`, cut at 80 letters."""
        return f"{self.first.label}_{self.word}_{self.second.label}"[:LONGEST_LABEL]

    @property
    def parts(self) -> tuple[Selection, ...]:
        """Both."""
        return self.first, self.second

    def made_of(self, parts: Sequence[Selection]) -> Selection:
        """The same of two others."""
        return replace(self, first=parts[0], second=parts[1])

    def touches(self, address: str) -> bool:
        """Where the join of both may select anything."""
        return bool(self.join(self.first.touches(address), self.second.touches(address)))

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The join of both masks."""
        mask: Bool[Tensor, "out in"] = self.join(self.first.mask(address, weight), self.second.mask(address, weight))
        return mask


class Either(_Algebra):
    """What is in one selection or in the other."""

    kind = word = "or"
    join = staticmethod(operator.or_)
    RECIPE: ClassVar[Mapping[str, str]] = {"or": "parts"}


class Both(_Algebra):
    """What is in both selections."""

    kind = word = "and"
    join = staticmethod(operator.and_)
    RECIPE: ClassVar[Mapping[str, str]] = {"and": "parts"}


class Without(_Algebra):
    """What is in the first selection and not in the second."""

    kind = word = "minus"
    join = staticmethod(lambda first, second: first & ~second)
    RECIPE: ClassVar[Mapping[str, str]] = {"minus": "parts"}

    def touches(self, address: str) -> bool:
        """Where the first does."""
        return self.first.touches(address)
