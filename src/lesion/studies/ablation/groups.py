"""Accuracy by group of items (number of steps, subject, level), under every edit, from the answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from lesion.edits.edit import BASELINE
from lesion.statistics.paired import wilson
from lesion.studies.ablation.curves import Curve

MOST_GROUPS = 24
"""More groups than this are labels of items rather than groups of them: no table is made."""


@dataclass(frozen=True)
class Share:
    """How many of `n` answers were right, with the accuracy's Wilson interval, in 0…1."""

    right: int
    n: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Breakdown:
    """The accuracy of one curve's cells by group.

    Attributes:
        groups: group → item count.
        shares: (group, layer) → share; layer `None` is the baseline.
    """

    curve: Curve
    groups: dict[str, int]
    shares: dict[tuple[str, int | None], Share]


def breakdowns(
    curves: Sequence[Curve], answers: pd.DataFrame, items: pd.DataFrame, level: float
) -> tuple[Breakdown, ...]:
    """One breakdown per curve whose task has 2 to `MOST_GROUPS` groups; others are left out.

    So are curves of a study that stops cells once they are decided: what is left of a group then is no random sample.
    """
    if answers.empty or items.empty or "group" not in items:
        return ()
    known = items.assign(group=items["group"].fillna("").astype(str)).drop_duplicates(["task", "item"])
    counts = known[known["group"] != ""].groupby("task")["group"].nunique()
    grouped = {str(task) for task, count in counts.items() if 2 <= count <= MOST_GROUPS}
    if not grouped:
        return ()
    key = ["model_name", "task", "edit", "item"]
    verdicts = answers.loc[answers["task"].isin(grouped), [*key, "correct"]].drop_duplicates(key)
    merged = verdicts.merge(known[["task", "item", "group"]], on=["task", "item"], how="inner")
    right: Counter[tuple[str, ...]] = Counter()
    counted: Counter[tuple[str, ...]] = Counter()
    columns = [merged[name] for name in ("model_name", "task", "edit", "group", "correct")]
    for *cell, correct in zip(*columns, strict=True):
        right[tuple(cell)] += bool(correct)
        counted[tuple(cell)] += 1
    of_curves = []
    for curve in curves:
        if curve.task not in grouped or curve.stopped:
            continue
        groups = sorted(set(known.loc[known["task"] == curve.task, "group"]) - {""}, key=natural)
        edits: dict[int | None, str] = {None: str(BASELINE)} | {cell.layer: cell.edit for cell in curve.cells}
        shares = {
            (group, layer): _share(right[place], n, level)
            for group in groups
            for layer, edit in edits.items()
            if (n := counted[place := (curve.model, curve.task, edit, group)])
        }
        sizes = {group: shares[group, None].n for group in groups if (group, None) in shares}
        if sizes:
            of_curves.append(Breakdown(curve, sizes, shares))
    return tuple(of_curves)


def answered(answers: pd.DataFrame) -> dict[tuple[str, str, str], int]:
    """(model, task, edit) → number of items answered."""
    cell = ["model_name", "task", "edit"]
    each = answers.drop_duplicates([*cell, "item"])
    return dict(Counter(zip(*(each[name].astype(str) for name in cell), strict=True)))


def _share(right: int, n: int, level: float) -> Share:
    low, high = wilson(right, n, level)
    return Share(right, n, right / n, low, high)


def natural(label: str) -> list[tuple[int, int, str]]:
    """A sort key under which `2 steps` stands before `10 steps`."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", label) if piece]
