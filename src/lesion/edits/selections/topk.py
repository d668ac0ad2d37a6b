"""Top shares: selections of the weights with the highest scores, and what a skill has there that controls have not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import Selection, Thresholds, check_keep
from lesion.edits.selections.thresholds import at_least, cut, cut_rows, top_count
from lesion.errors import LesionError, UsageError
from lesion.reprs import short_repr


def _vector(inputs: Inputs, address: str, weight: Tensor, squares: bool) -> Tensor:
    sums = inputs.of(address)
    assert sums is not None
    if weight.dim() != 2 or len(sums.norms) != weight.shape[1]:
        raise LesionError(
            f"The selection was made for a matrix {address} with {len(sums.norms):,} inputs; this one is "
            f"{' × '.join(map(str, weight.shape))} (out × in). It belongs to another model."
        )
    if not squares:
        return sums.norms
    if sums.squares is None:
        raise LesionError(f"The sums of {address} are without squares, which a top share per row needs.")
    return sums.squares.double().sqrt().float()


@validated
@dataclass(frozen=True, eq=False)
class Wanda(Selection):
    """The weights that matter most to one data set, by |W_ij| times the size of input j.

    Args:
        keep: the share of every matrix, or of every row, that is selected, in (0, 1].
        per: `matrix`: the top share of the whole matrix by Σ_i ‖X_i[:, j]‖₂, as Christ et al. (2024) use it; `row`: of
            every output row by the norm over all tokens of all texts, as Sun et al. (2023) define it.

    Raises:
        UsageError: `keep` is not in (0, 1], or `per` is neither.
    """

    source: Inputs
    keep: float | int
    per: Literal["matrix", "row"] = "matrix"
    thresholds: Thresholds | None = field(default=None, repr=False)
    kind: ClassVar[str] = "wanda"
    RECIPE: ClassVar[Mapping[str, str]] = {"wanda": "source", "keep": "keep", "per": "per"}

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_keep(self.keep))

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
        return at_least(weight, vector, self.cuts([self], address, weight)[0] if known is None else known)

    def top_shares(self) -> Iterator[Wanda]:
        """Itself."""
        yield self

    def with_thresholds(self, known: Mapping[str, Thresholds]) -> Wanda:
        """With its own, where they are known."""
        return replace(self, thresholds=known[self.digest]) if self.digest in known else self

    def cuts(
        self, shares: Sequence[Wanda], address: str, weight: Float[Tensor, "out in"]
    ) -> list[Float[Tensor, "*rows"]]:
        """The scores from which on each of several that differ in `keep` alone selects: one, or one per row."""
        by_row = self.per == "row"
        vector = _vector(self.source, address, weight, squares=by_row).to(weight.device)
        size = weight.shape[1] if by_row else weight.numel()
        counts = [top_count(share.keep, size) for share in shares]
        if by_row:
            return cut_rows(weight, vector, counts)
        return [torch.tensor(bar, dtype=torch.float64) for bar in cut(weight, vector, counts)]


@validated
@dataclass(frozen=True, eq=False)
class MathNeuro(Selection):
    """The weights that a skill needs and none of its controls does (Christ et al. 2024, section 3).

    The top share of every matrix by |W| · a on the skill, without what is in the top share on any control. With
    thresholds τ and τ_c this is { τ / a_j ≤ |W_ij| } and |W_ij| < τ_c / c_j for every control c.

    Raises:
        UsageError: there is no control, or `keep`, the share that is taken of each, is not in (0, 1].
    """

    skill: Inputs
    controls: tuple[Inputs, ...]
    keep: float | int
    parts: tuple[Wanda, ...] = field(default=(), repr=False)
    kind: ClassVar[str] = "mathneuro"
    RECIPE: ClassVar[Mapping[str, str]] = {"mathneuro": "skill", "controls": "controls", "keep": "keep"}

    __repr__ = short_repr

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

    def made_of(self, parts: Sequence[Wanda]) -> MathNeuro:
        """The same with other thresholds."""
        return replace(self, parts=tuple(parts))


@validated
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
    RECIPE: ClassVar[Mapping[str, str]] = {"magnitude": "keep", "addresses": "addresses"}

    __repr__ = short_repr

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
