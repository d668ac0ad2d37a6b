"""The numbers of a study that stopped asking: what was decided of every cell, on the items that it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.core.rates import rates
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.sequential import evidence
from lesion.studies.ablation.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import StopPlan, Study

SAME_ITEMS = ("items", "accuracy", "low", "high", "truncated", "looped", "unparsed")
"""What is told of the baseline on the items of every cell."""
HALF = 0.5  # any effect will do where only the confidence sequence is wanted


def stopped_rule(stop: StopPlan) -> str:
    """What a stopped study decides, as a sentence for reports."""
    return (
        f"Asking stopped as soon as a cell was decided. A place exceeds the effect when its drop exceeds"
        f" {100 * stop.effect:g} points, on all items of the study and beyond them, and it does not when its drop on"
        f" all of them does not; inferred from the items asked so far by e-values from bets, with {stop.rule} over the"
        f" layers of one model, task, unit and factor. The false discovery rate is at most {100 * stop.level:g} %:"
        f" that is the expected share of wrong ones among the places called exceeding, on all items and beyond them,"
        f" and among those called not, on all items. It does not limit the chance of any wrong call in a"
        f" study. What was not decided is open. Which places are critical, only a full table says."
    )


def replayed(study: Study, edits: Sequence[Scale], items: pd.DataFrame, answers: pd.DataFrame) -> Stopping:
    """Where the stopped study of one model stands, from its stored answers.

    Args:
        study: one with `stop`.
        edits: of this model.
        items: from `Store.items`.
        answers: those of the model, from `Store.answers`.
    """
    assert study.stop is not None
    asked = {choice.name: list(items["item"][items["task"] == choice.name]) for choice in study.tasks}
    rows = zip(*(answers[column] for column in ("task", "edit", "item", "correct")), strict=True)
    return Stopping(study.stop, asked, edits).replay(Verdicts(rows))


def stopped_task(
    study: Study, task: str, answers: pd.DataFrame, edits: Sequence[Scale], stopping: Stopping
) -> dict[str, Any] | None:
    """The entry of a task in `summary.json`; None where its first round is not answered yet.

    Every number is over the items that the cell was asked until it was decided, whatever else is stored. Intervals of
    accuracies and drops are confidence sequences, which hold at whatever number of items asking stopped, for what the
    items were drawn from, as do those of a full table; there are no p-values, and `critical` is None: that is a
    question for a full table. `baseline` is over all items that any cell was asked; beside every cell
    `baseline_accuracy` and the like are over the items of that cell.
    """
    reached = stopping.asked[task]
    if not reached:
        return None
    by_edit = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}
    entries, calls = [], stopping.decided
    baselines: dict[int, dict[str, Any]] = {}  # by number of items: many cells are decided in one round
    for edit in edits:
        ids = stopping.items[task][: stopping.reached[task, str(edit)]]
        unedited, edited = (by_edit[str(one)].loc[list(ids)] for one in (BASELINE, edit))
        found = evidence(_right(unedited), _right(edited), stopping.plan.effect, 1 - study.level)
        decided = calls[task, str(edit)]
        if len(ids) not in baselines:
            baselines[len(ids)] = _accuracy(unedited, study.level)
        entries.append(
            {
                "layer": edit.layer,
                "unit": edit.unit,
                "factor": edit.factor,
                **_accuracy(edited, study.level),
                "drop": found.drop,
                "drop_low": found.low,
                "drop_high": found.high,
                "p": None,
                "p_corrected": None,
                "p_critical": None,
                "p_critical_corrected": None,
                "critical": None,
                "decided": decided,
                **{f"baseline_{name}": value for name, value in baselines[len(ids)].items() if name in SAME_ITEMS},
            }
        )
    return {
        "task": task,
        "items": reached,
        "baseline": _accuracy(by_edit[str(BASELINE)].loc[list(stopping.items[task][:reached])], study.level),
        "layers": entries,
        "planned": sorted({edit.layer for edit in edits}),
        "stopping": _stopping(task, entries, stopping),
    }


def _stopping(task: str, entries: Sequence[Mapping[str, Any]], stopping: Stopping) -> dict[str, Any]:
    items = len(stopping.items[task])
    answers = stopping.asked[task] + sum(entry["items"] for entry in entries)
    undecided = sum(entry["decided"] == "open" for entry in entries)
    return {
        "effect": stopping.plan.effect,
        "level": stopping.plan.level,
        "items": items,
        "answers": answers,
        "full": items * (1 + len(entries)),
        "evaluations": answers / items,
        "exceeds": sum(entry["decided"] == "exceeds" for entry in entries),
        "not": sum(entry["decided"] == "not" for entry in entries),
        "open": undecided,
        "finished": all(entry["decided"] != "open" or entry["items"] == items for entry in entries),
    }


def _right(frame: pd.DataFrame) -> Bool[np.ndarray, " items"]:
    return frame["correct"].to_numpy(dtype=bool)


def _accuracy(frame: pd.DataFrame, level: float) -> dict[str, Any]:
    """Accuracy with its confidence sequence, and rates, over the items asked."""
    right = _right(frame)
    # Right minus wrong is 1 or −1: of an accuracy p its mean is 2p − 1, and what is known of that is known of p.
    found = evidence(right, ~right, HALF, 1 - level)
    return {
        "items": len(frame),
        "accuracy": float(right.mean()),
        "low": (1 + found.low) / 2,
        "high": (1 + found.high) / 2,
        **rates(frame),
    }
