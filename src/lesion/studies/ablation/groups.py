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
CELL = ["model_name", "task", "edit"]


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
    known = known.loc[known["group"] != "", ["task", "item", "group"]]
    groups = {task: sorted(set(labels), key=natural) for task, labels in known.groupby("task")["group"]}
    verdicts = answers[[*CELL, "item", "correct"]].drop_duplicates([*CELL, "item"]).merge(known, on=["task", "item"])
    counts = verdicts.astype({"correct": bool}).groupby([*CELL, "group"])["correct"].agg(["sum", "count"])
    counted = {cell: (int(right), int(n)) for cell, right, n in counts.itertuples()}
    of_curves = []
    for curve in curves:
        labels = groups.get(curve.task, [])
        if curve.stopped or not 2 <= len(labels) <= MOST_GROUPS:
            continue
        edits: dict[int | None, str] = {None: str(BASELINE)} | {cell.layer: cell.edit for cell in curve.cells}
        shares = {
            (label, layer): Share(right, n, right / n, *wilson(right, n, level))
            for label in labels
            for layer, edit in edits.items()
            if (cell := (curve.model, curve.task, edit, label)) in counted
            for right, n in [counted[cell]]
        }
        sizes = {label: shares[label, None].n for label in labels if (label, None) in shares}
        if sizes:
            of_curves.append(Breakdown(curve, sizes, shares))
    return tuple(of_curves)


def answered(answers: pd.DataFrame) -> dict[tuple[str, str, str], int]:
    """(model, task, edit) → number of items answered."""
    each = answers.drop_duplicates([*CELL, "item"])
    return dict(Counter(zip(*(each[name].astype(str) for name in CELL), strict=True)))


def natural(label: str) -> list[tuple[int, int, str]]:
    """A sort key under which `2 steps` stands before `10 steps`."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", label) if piece]
