"""Where a selection lies: the share of weights selected per block and kind of matrix, as a table of cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lesion.report import wording
from lesion.report.trials import METHODS, number

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
        label: what the chooser says.
        slug: for file names: letters, digits, `.`, `-` and `_`.
        cells: (kind of matrix, block) → count; experts are summed up as one kind, the head has the block None.
        whole: everything together.
    """

    label: str
    slug: str
    method: str
    keep: float | None
    samples: int | None
    repeat: int | None
    edit: str | None
    cells: Mapping[tuple[str, int | None], Count]
    whole: Count

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
    def full(self) -> float:
        """The share at which the colour is full: the largest of all cells."""
        return max((count.share or 0.0 for count in self.cells.values()), default=0.0) or 1.0

    def at(self, kind: str, block: int) -> Count | None:
        """One cell."""
        return self.cells.get((kind, block))

    def of_block(self, block: int) -> Count:
        """All matrices of a block."""
        return _sum(count for (_, found), count in self.cells.items() if found == block)

    def of_kind(self, kind: str) -> Count:
        """One kind of matrix over all blocks."""
        return _sum(count for (found, block), count in self.cells.items() if found == kind and block is not None)


def distributions(isolation: Mapping[str, Any]) -> list[Distribution]:
    """The distribution of every selection of an isolation's summary."""
    entries = isolation.get("selections") or ()
    several = {name: len({entry.get(name) for entry in entries}) > 1 for name in ("samples", "repeat")}
    found: list[Distribution] = []
    for entry in entries:
        cells: dict[tuple[str, int | None], Count] = {}
        whole = Count()
        for matrix in entry.get("matrices") or ():
            block = matrix.get("block")
            kind = HEAD if block is None else kind_of(str(matrix["matrix"]))
            selected, total = int(matrix["selected"]), int(matrix["total"])
            cells[kind, block] = cells.get((kind, block), Count()).plus(selected, total)
            whole = whole.plus(selected, total)
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", str(entry.get("label") or entry.get("method") or "selection"))[:80]
        for name in ("samples", "repeat"):
            slug += f"-{name}-{entry.get(name)}" if several[name] else ""
        while any(other.slug == slug for other in found):
            slug += "-again"
        keep = number(entry.get("keep"))
        found.append(
            Distribution(
                label=_label(entry, keep, several),
                slug=slug.lstrip("."),
                method=str(entry.get("method") or ""),
                keep=keep,
                samples=entry.get("samples"),
                repeat=entry.get("repeat"),
                edit=entry.get("edit"),
                cells=cells,
                whole=whole if cells else Count(int(entry.get("selected") or 0), int(entry.get("total") or 0)),
            )
        )
    return found


def first(found: list[Distribution], most: int) -> list[Distribution]:
    """At most so many of them, in their order: the first repeats, and those from the most texts, before others."""
    if len(found) <= most:
        return found
    ranked = sorted(range(len(found)), key=lambda i: (found[i].repeat or 0, -(found[i].samples or 0), i))
    return [found[i] for i in sorted(ranked[:most])]


def kind_of(matrix: str) -> str:
    """`mlp.expert3.up` as `mlp.experts.up`: all experts of a block are one row."""
    return re.sub(r"\bexpert\d+\b", "experts", matrix)


def share(value: float | None) -> str:
    """A share in percent with two significant digits, for a small cell: `3.2`, `0.01`; `0` for nothing."""
    if value is None:
        return wording.DASH
    if 0 < value < 1e-6:
        return "<.0001"
    return f"{100 * value:.0f}" if value >= 0.1 else f"{100 * value:.2g}"


def _label(entry: Mapping[str, Any], keep: float | None, several: Mapping[str, bool]) -> str:
    method = str(entry.get("method") or "")
    parts = [METHODS.get(method, method) or str(entry.get("label") or "selection")]
    if keep is not None:
        parts.append(f"keep{wording.SPACE}{wording.keep(keep)}")
    if several["samples"] and entry.get("samples") is not None:
        parts.append(wording.counted(int(entry["samples"]), "text"))
    if several["repeat"] and entry.get("repeat") is not None:
        parts.append(f"repeat{wording.SPACE}{entry['repeat']}")
    return ", ".join(parts)


def _sum(counts: Any) -> Count:
    every = list(counts)
    return Count(sum(c.selected for c in every), sum(c.total for c in every), sum(c.matrices for c in every))
