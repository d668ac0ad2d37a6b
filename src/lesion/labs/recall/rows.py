"""The rows of a recall laboratory's truncation sweep as the report asks for them: by matrix, side and control."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NUMBERS = ("clean_accuracy", "p_noise", "p_correct", "clean_loss", "noisy_loss")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    """Mean, lowest and highest of the draws of a control."""

    mean: float
    least: float
    most: float


@dataclass(frozen=True)
class Cuts:
    """All that was done to one matrix.

    Attributes:
        matrix: its name.
        top: its truncations that keep the largest singular values, by rising keep.
        bottom: those that keep the smallest.
        random: for each number of components left, the draws of random projections.
        deleted: the matrix set to zero.
        without_top: all but its largest component.
    """

    matrix: str
    top: tuple[Row, ...]
    bottom: tuple[Row, ...]
    random: Mapping[int, tuple[Row, ...]]
    deleted: Row
    without_top: Row

    def drawn(self, rank: int, number: str) -> Spread | None:
        """A number over the random projections that leave so many components; None where there are none."""
        values = [float(row[number]) for row in self.random.get(rank, ())]
        return Spread(math.fsum(values) / len(values), min(values), max(values)) if values else None


def by_matrix(summary: Mapping[str, Any]) -> dict[str, Cuts]:
    """The cuts of every matrix, in the order of the summary."""
    found: dict[str, Cuts] = {}
    for name in dict.fromkeys(row["matrix"] for row in summary["truncated"]):
        rows = [row for row in summary["truncated"] if row["matrix"] == name]
        plain = sorted((row for row in rows if row["control"] is None), key=lambda row: row["keep"])
        random: dict[int, tuple[Row, ...]] = {}
        for row in rows:
            if row["control"] == "random":
                random[row["rank"]] = (*random.get(row["rank"], ()), row)
        found[name] = Cuts(
            name,
            tuple(row for row in plain if row["side"] == "top"),
            tuple(row for row in plain if row["side"] == "bottom"),
            random,
            next(row for row in rows if row["control"] == "deletion"),
            next(row for row in rows if row["control"] == "drop-top"),
        )
    return found


def central(names: Sequence[str]) -> list[str]:
    """The matrices that the paper truncates first: those of the second feed-forward, or without one W_O W_V."""
    return [name for name in names if name.startswith("F2")] or ["W_OV1", "W_OV2"]
