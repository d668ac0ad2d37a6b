"""Selections: values that say which weights of a model are meant; a mask per matrix, computed from the weights.

A selection is a recipe. It holds what was observed of the data (`Inputs`), not a mask, and so takes kilobytes; its mask
of a matrix follows from the recipe and that matrix alone, which lets a checkpoint be edited shard by shard.

    MathNeuro(skill, controls, keep)   what the skill needs and no control does
    Wanda(inputs, keep, per)           what one data set needs
    Magnitude(keep)                    the largest weights
    LAPE(skill, controls, keep)        feed-forward neurons that fire on the skill alone (`neurons.py`)
    Random(like, seed)                 as many weights of every matrix as another selection, drawn
    a | b, a & b, a - b                either, both, the first without the second

The rule for ties: the top share of a matrix is every weight whose score reaches that of the k-th largest, with
k = ⌊keep · size⌋ and at least 1. Weights that tie with it are all selected. A weight whose score is 0 never is.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.edits.inputs import Inputs
from lesion.edits.thresholds import at_least, cut, cut_rows, top_count
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model

Thresholds = Mapping[str, Float[Tensor, "*rows"]]


# A name of a selection is part of the text form of an edit, and of file names.
LONGEST_LABEL = 80


def check_keep(keep: object) -> float:
    """A share in (0, 1].

    Raises:
        UsageError: it is not.
    """
    if isinstance(keep, bool) or not isinstance(keep, Real) or not 0 < float(keep) <= 1:
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

    def fixed(self, model: Model) -> Selection:
        """The same selection with everything that needs a sort of the model's weights worked out once.

        It gives the same masks on this model, faster; on other weights its masks would be wrong.
        """
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
        return Either(self, other)

    def __and__(self, other: Selection) -> Selection:
        return Both(self, other)

    def __sub__(self, other: Selection) -> Selection:
        return Without(self, other)


def _once(inputs: Iterable[Inputs]) -> tuple[Inputs, ...]:
    return tuple({each.digest: each for each in inputs}.values())


def _vector(inputs: Inputs, address: str, weight: Tensor, squares: bool) -> Tensor:
    sums = inputs.of(address)
    assert sums is not None
    if weight.dim() != 2 or len(sums.norms) != weight.shape[1]:
        raise LesionError(
            f"The selection was made for a matrix {address} with {len(sums.norms):,} inputs; this one is "
            f"{' × '.join(map(str, weight.shape))} (out × in). It belongs to another model."
        )
    return sums.squares.double().sqrt().float() if squares else sums.norms


@dataclass(frozen=True, eq=False)
class Wanda(Selection):
    """The weights that matter most to one data set, by |W_ij| times the size of input j.

    Args:
        inputs: observed on the data set.
        keep: the share of every matrix, or of every row, that is selected, in (0, 1].
        per: `matrix`: the top share of the whole matrix by Σ_i ‖X_i[:, j]‖₂, as Christ et al. (2024) use it; `row`:
            the top share of every output row by the norm over all tokens of all texts, as Sun et al. (2023) define it.

    Raises:
        UsageError: `keep` is not in (0, 1], or `per` is neither.
    """

    source: Inputs
    keep: float | int
    per: Literal["matrix", "row"] = "matrix"
    thresholds: Thresholds | None = field(default=None, repr=False)
    kind: ClassVar[str] = "wanda"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_keep(self.keep))
        if self.per not in ("matrix", "row"):
            raise UsageError(f"Wanda's top share is taken per matrix or per row, not per {self.per}.")

    @property
    def label(self) -> str:
        """`wanda-0.05` or `wanda-rows-0.05`."""
        return f"{'wanda-rows' if self.per == 'row' else 'wanda'}-{self.keep:g}"

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """The data set's."""
        return (self.source,)

    def touches(self, address: str) -> bool:
        """Where the matrix was observed, with at least one token."""
        sums = self.source.of(address)
        return sums is not None and sums.tokens > 0

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """Every entry whose score reaches the threshold and is not 0."""
        if not self.touches(address):
            return torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        vector = _vector(self.source, address, weight, squares=self.per == "row")
        known = None if self.thresholds is None else self.thresholds.get(address)
        return at_least(weight, vector, _thresholds([self], address, weight)[0] if known is None else known)

    def top_shares(self) -> Iterator[Wanda]:
        """Itself."""
        yield self

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Wanda:
        """With its own, where they are known."""
        return replace(self, thresholds=known[self.digest]) if self.digest in known else self

    def loosened(self) -> Wanda:
        """Without thresholds."""
        return replace(self, thresholds=None)

    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """`{"wanda": inputs, "keep": …, "per": …}`."""
        return {"wanda": keep_inputs(self.source), "keep": self.keep, "per": self.per}


def _thresholds(shares: Sequence[Wanda], address: str, weight: Tensor) -> list[Tensor]:
    """The scores from which on each selects, for several that differ in `keep` alone: one for the matrix or per row."""
    by_row = shares[0].per == "row"
    vector = _vector(shares[0].source, address, weight, squares=by_row).to(weight.device)
    size = weight.shape[1] if by_row else weight.numel()
    counts = [top_count(share.keep, size) for share in shares]
    if by_row:
        return cut_rows(weight, vector, counts)
    return [torch.tensor(bar, dtype=torch.float64) for bar in cut(weight, vector, counts)]


def fixed_together(selections: Sequence[Selection], model: Model) -> list[Selection]:
    """What `fixed` makes of each of several selections on one model, with one partition per matrix and data set.

    For a grid: however many values of `keep`, methods and controls there are, each matrix is read once and its
    scores on each data set are put in order once.

    Raises:
        LesionError: a selection was made for matrices of another shape.
    """
    groups: dict[tuple[str, str], dict[str, Wanda]] = {}
    for share in (share for selection in selections for share in selection.top_shares()):
        if share.thresholds is None:
            groups.setdefault((share.source.digest, share.per), {})[share.digest] = share
    known: dict[str, dict[str, Tensor]] = {digest: {} for group in groups.values() for digest in group}
    for address, matrix in model.anatomy.scored.items():
        touching = [list(group.values()) for group in groups.values() if next(iter(group.values())).touches(address)]
        weight = matrix.read() if touching else None
        for shares in touching:
            assert weight is not None
            for share, bar in zip(shares, _thresholds(shares, address, weight), strict=True):
                known[share.digest][address] = bar
    return [selection.with_thresholds(known) for selection in selections]


@dataclass(frozen=True, eq=False)
class MathNeuro(Selection):
    """The weights that a skill needs and none of its controls does (Christ et al. 2024, section 3).

    The top share of every matrix by |W| · a on the skill, without what is in the top share on any control. With
    thresholds τ and τ_c this is { τ / a_j ≤ |W_ij| } and |W_ij| < τ_c / c_j for every control c.

    Args:
        skill: observed on the skill.
        controls: observed on the controls; at least one.
        keep: the share that is taken of each, in (0, 1].

    Raises:
        UsageError: there is no control, or `keep` is not in (0, 1].
    """

    skill: Inputs
    controls: tuple[Inputs, ...]
    keep: float | int
    parts: tuple[Wanda, ...] = field(default=(), repr=False)
    kind: ClassVar[str] = "mathneuro"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_keep(self.keep))
        object.__setattr__(self, "controls", tuple(self.controls))
        if not self.controls:
            raise UsageError("MathNeuro needs at least one control; without any it is Wanda(skill, keep).")
        parts = tuple(Wanda(inputs, self.keep) for inputs in (self.skill, *self.controls))
        if self.parts != parts:  # not given, or those of another recipe, as after dataclasses.replace
            object.__setattr__(self, "parts", parts)

    @property
    def label(self) -> str:
        """`mathneuro-0.05`."""
        return f"mathneuro-{self.keep:g}"

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """The skill's and the controls'."""
        return _once((self.skill, *self.controls))

    def touches(self, address: str) -> bool:
        """Where the matrix was observed on the skill, with at least one token."""
        return self.parts[0].touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """In the top share of the skill and of no control."""
        skill, *controls = self.parts
        mask = skill.mask(address, weight)
        for control in controls:
            if skill.touches(address):
                mask &= ~control.mask(address, weight)
        return mask

    def top_shares(self) -> Iterator[Wanda]:
        """The skill's and the controls'."""
        return iter(self.parts)

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> MathNeuro:
        """With those of the skill and of every control."""
        return replace(self, parts=tuple(part.with_thresholds(known) for part in self.parts))

    def loosened(self) -> MathNeuro:
        """Without thresholds."""
        return replace(self, parts=())

    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """`{"mathneuro": inputs, "controls": [inputs, …], "keep": …}`."""
        return {
            "mathneuro": keep_inputs(self.skill),
            "controls": [keep_inputs(control) for control in self.controls],
            "keep": self.keep,
        }


@dataclass(frozen=True, eq=False)
class Magnitude(Selection):
    """The largest weights of every matrix, whatever the data.

    Args:
        keep: the share of every matrix, in (0, 1].
        addresses: the matrices; None for every one that the model has.

    Raises:
        UsageError: `keep` is not in (0, 1].
    """

    keep: float | int
    addresses: tuple[str, ...] | None = None
    kind: ClassVar[str] = "magnitude"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_keep(self.keep))
        if self.addresses is not None:
            object.__setattr__(self, "addresses", tuple(sorted(set(self.addresses))))

    @property
    def label(self) -> str:
        """`magnitude-0.05`."""
        return f"magnitude-{self.keep:g}"

    def touches(self, address: str) -> bool:
        """Where the matrix is one of the addresses."""
        return self.addresses is None or address in self.addresses

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """Every entry that is at least as large as the k-th largest, and not 0."""
        if not self.touches(address):
            return torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        ones = torch.ones(weight.shape[1], device=weight.device)
        bar = cut(weight, ones, [top_count(self.keep, weight.numel())])[0]
        return at_least(weight, ones, torch.tensor(bar, dtype=torch.float64))

    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """`{"magnitude": keep, "addresses": …}`."""
        addresses = None if self.addresses is None else list(self.addresses)
        return {"magnitude": self.keep, "addresses": addresses}


@dataclass(frozen=True, eq=False)
class Random(Selection):
    """As many weights of every matrix as another selection has, drawn at random: the control of that selection.

    The draw depends on the seed and the address alone, on no library's generator: with one seed a smaller selection's
    random control lies within a larger one's.

    Args:
        like: the selection whose count per matrix is matched.
        seed: any integer.
    """

    like: Selection
    seed: int = 0
    kind: ClassVar[str] = "random"

    @property
    def label(self) -> str:
        """`random3-mathneuro-0.05`."""
        return f"random{self.seed}-{self.like.label}"[:LONGEST_LABEL]

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Those of the matched selection."""
        return self.like.inputs

    def touches(self, address: str) -> bool:
        """Where the matched selection does."""
        return self.like.touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The entries with the smallest of `drawing_keys`, as many as the matched selection has."""
        mask = np.zeros(weight.numel(), dtype=bool)
        count = int(self.like.mask(address, weight).sum()) if self.touches(address) else 0
        if count:
            keys = drawing_keys(self.seed, address, weight.numel())
            mask = keys <= np.partition(keys, count - 1)[count - 1]  # no two keys are equal
        return torch.from_numpy(mask).view(weight.shape).to(weight.device)

    def top_shares(self) -> Iterator[Wanda]:
        """Those of the matched selection."""
        return self.like.top_shares()

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Random:
        """With those of the matched selection."""
        return replace(self, like=self.like.with_thresholds(known))

    def loosened(self) -> Random:
        """With the matched selection loosened."""
        return replace(self, like=self.like.loosened())

    def recipe(self, keep_inputs: Any) -> dict[str, Any]:
        """`{"random": recipe of the matched selection, "seed": …}`."""
        return {"random": self.like.recipe(keep_inputs), "seed": self.seed}


def drawing_keys(seed: int, address: str, size: int) -> np.ndarray:
    """One 64-bit number per entry of a matrix, different for all: splitmix64 (Steele et al. 2014) from a hashed start.

    Returns:
        [size] uint64.
    """
    start = int.from_bytes(hashlib.sha256(f"{seed}:{address}".encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


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
        return _once((*self.first.inputs, *self.second.inputs))

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


@dataclass(frozen=True)
class Count:
    """How much of one matrix a selection holds. `block` is None for the output head."""

    address: str
    block: int | None
    matrix: str
    selected: int
    total: int


def count(selection: Selection, model: Model) -> list[Count]:
    """How many weights of every matrix of a model are selected, matrices that it does not touch included.

    Raises:
        LesionError: the selection is empty, or is everything, on this model; it would cut nothing, or all there is.
    """
    found = []
    for address, matrix in model.anatomy.scored.items():
        selected = int(selection.mask(address, matrix.read()).sum()) if selection.touches(address) else 0
        block, _, name = address.partition(".")
        out, into = matrix.shape
        found.append(Count(address, int(block) if name else None, name or address, selected, out * into))
    check_extent(selection, sum(c.selected for c in found), sum(c.total for c in found), model.name)
    return found


def check_extent(selection: Selection, selected: int, total: int, name: str) -> None:
    """Refuse a selection that is empty or everything.

    Raises:
        LesionError: it is.
    """
    if selected == 0:
        raise LesionError(
            f"The selection {selection.label} is empty on {name}: no weight is left. With a larger keep, other "
            f"controls or more texts it may not be."
        )
    if selected == total:
        raise LesionError(f"The selection {selection.label} is everything that {name} has; choose a smaller keep.")


def total_overlap(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Intersection over union of two selections given as masks of the same matrices; NaN when both are empty."""
    both = sum(int((a & b).sum()) for a, b in zip(first, second, strict=True))
    either = sum(int((a | b).sum()) for a, b in zip(first, second, strict=True))
    return both / either if either else math.nan
