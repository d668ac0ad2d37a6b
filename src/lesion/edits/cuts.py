"""Cuts: what truncations leave of every matrix, all of them together, counted in components and in parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lesion.edits.edit import ScaleParameters, Truncate
from lesion.errors import UsageError


@dataclass(frozen=True)
class Cut:
    """The components of a matrix [out, in] that are kept: from `start` up to `stop`, by falling singular values."""

    address: str
    shape: tuple[int, int]
    start: int
    stop: int

    @property
    def rank(self) -> int:
        """How many components the matrix has: min(out, in)."""
        return min(self.shape)

    @property
    def kept(self) -> int:
        """How many of them are kept."""
        return self.stop - self.start

    @property
    def whole(self) -> bool:
        """Whether all are kept, so that nothing is changed."""
        return self.kept == self.rank

    @property
    def dense(self) -> int:
        """Parameters of the matrix: out · in."""
        return self.shape[0] * self.shape[1]

    @property
    def thin(self) -> int:
        """Parameters of two factors [out, kept] and [kept, in] whose product is what is kept: kept · (out + in)."""
        return self.kept * sum(self.shape)

    @property
    def saved(self) -> int:
        """Parameters that two thin factors save; below 0 where they are more than the matrix has."""
        return self.dense - self.thin

    def __str__(self) -> str:
        if self.start >= self.stop:
            return f"none of {self.rank:,} components"
        if self.whole:
            return f"all {self.rank:,} components"
        if self.start == 0 or self.stop == self.rank:
            side = "largest" if self.start == 0 else "smallest"
            return f"the {side} {self.kept:,} of {self.rank:,} components"
        return f"components {self.start + 1:,} to {self.stop:,} of {self.rank:,}"


def kept_by_all(truncations: Iterable[Truncate], rank: int) -> tuple[int, int]:
    """What all truncations of one matrix keep of its components: first and stop, equal if there is nothing."""
    start, stop = 0, rank
    for part in truncations:
        first, last = part.kept(rank)
        start, stop = max(start, first), min(stop, last)
    return start, max(start, stop)


def cuts(truncations: Sequence[Truncate], shapes: Mapping[str, tuple[int, int]]) -> tuple[Cut, ...]:
    """One cut for every truncated matrix, in the order in which they are named: what all of its truncations keep."""
    if (drawn := next((part for part in truncations if part.side == "random"), None)) is not None:
        raise UsageError(
            f"'{drawn}' keeps a random subspace, a control that no file takes; write its text in its place."
        )
    collected = []
    for address in dict.fromkeys(part.address for part in truncations):
        shape = shapes[address]
        here = [part for part in truncations if part.address == address]
        collected.append(Cut(address, shape, *kept_by_all(here, min(shape))))
    return tuple(collected)


def refuse_both(edits: Iterable[ScaleParameters], truncations: Iterable[Truncate], name: str) -> None:
    """Refuse to multiply weights of a matrix that is truncated too: the two do not commute."""
    selections = [edit.selection for edit in edits]
    for part in truncations:
        if any(selection.touches(part.address) for selection in selections):
            raise UsageError(
                f"{part.address} of {name} is to be truncated and its weights multiplied, and the order would matter;"
                f" make one of the two with `lesion apply` and the other on what that wrote."
            )
