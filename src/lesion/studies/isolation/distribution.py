"""Where a selection lies: the share of weights selected per block and kind of matrix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lesion.report import wording
from lesion.studies.isolation.result import Isolation, Selected

HEAD = "output head"


@dataclass(frozen=True)
class Count:
    """Selected of all weights of a place; `matrices` counts those summed up in it."""

    selected: int = 0
    total: int = 0
    matrices: int = 0

    @property
    def share(self) -> float | None:
        """Selected of all, in 0…1; None where there is nothing."""
        return self.selected / self.total if self.total else None

    def plus(self, selected: int, total: int) -> Count:
        """With one more matrix."""
        return Count(self.selected + selected, self.total + total, self.matrices + 1)


@dataclass(frozen=True)
class Distribution:
    """One selection over the model.

    Attributes:
        name: of the selection, unique in its isolation.
        slug: for file names: letters, digits, `.`, `-` and `_`.
        cells: (kind of matrix, block) → count; experts are summed up as one kind, the head has the block None.
    """

    name: str
    slug: str
    selection: Selected
    cells: Mapping[tuple[str, int | None], Count]

    @property
    def kinds(self) -> list[str]:
        """Kinds of matrices within blocks, in the order of the model."""
        return list(dict.fromkeys(kind for kind, block in self.cells if block is not None))

    @property
    def blocks(self) -> list[int]:
        """Numbers of the blocks, ascending."""
        return sorted({block for _, block in self.cells if block is not None})

    @property
    def head(self) -> Count | None:
        """The output head, where it was scored."""
        return next((count for (_, block), count in self.cells.items() if block is None), None)

    @property
    def whole(self) -> Count:
        """Everything together."""
        return _sum(self.cells.values())

    @property
    def full(self) -> float:
        """The share at which the colour is full: the largest of all cells."""
        return max((count.share or 0.0 for count in self.cells.values()), default=0.0) or 1.0

    def at(self, kind: str, block: int) -> Count | None:
        """One cell."""
        return self.cells.get((kind, block))

    def of_block(self, block: int) -> Count:
        """All matrices of a block."""
        return _sum(count for (_, other), count in self.cells.items() if other == block)

    def of_kind(self, kind: str) -> Count:
        """One kind of matrix over all blocks."""
        return _sum(count for (other, block), count in self.cells.items() if other == kind and block is not None)


def distributions(isolation: Isolation) -> list[Distribution]:
    """The distribution of every selection."""
    several_samples, several_repeats = (
        len({getattr(selection, name) for selection in isolation.selections}) > 1 for name in ("samples", "repeat")
    )
    every: list[Distribution] = []
    for selection, name in zip(isolation.selections, isolation.names, strict=True):
        cells: dict[tuple[str, int | None], Count] = {}
        for matrix in selection.matrices:
            place = (HEAD if matrix.block is None else matrix.kind, matrix.block)
            cells[place] = cells.get(place, Count()).plus(matrix.selected, matrix.total)
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", selection.label)[:80]
        slug += f"-samples-{selection.samples}" if several_samples else ""
        slug += f"-repeat-{selection.repeat}" if several_repeats else ""
        while any(other.slug == slug for other in every):
            slug += "-again"
        every.append(Distribution(name, slug.lstrip("."), selection, cells))
    return every


def first(distributions: list[Distribution], most: int) -> list[Distribution]:
    """At most so many of them, in their order: the first repeats, and those from the most texts, before others."""
    if len(distributions) <= most:
        return distributions
    selections = [distribution.selection for distribution in distributions]
    ranked = sorted(range(len(selections)), key=lambda i: (selections[i].repeat, -selections[i].samples, i))
    return [distributions[i] for i in sorted(ranked[:most])]


def share(value: float | None) -> str:
    """A share in percent with two significant digits, for a small cell: `3.2`, `0.01`; `0` for nothing."""
    if value is None:
        return wording.DASH
    if 0 < value < 1e-6:
        return "<.0001"
    return f"{100 * value:.0f}" if value >= 0.1 else f"{100 * value:.2g}"


def _sum(counts: Iterable[Count]) -> Count:
    every = list(counts)
    return Count(sum(c.selected for c in every), sum(c.total for c in every), sum(c.matrices for c in every))
