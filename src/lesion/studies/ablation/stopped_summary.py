"""The numbers of a study that stopped asking: what was decided of every cell, on the items that it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.core.rates import rates
from lesion.core.values import Estimate
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.sequential import evidence
from lesion.studies.ablation.result import Cell, Scores, Stopped, TaskResult
from lesion.studies.ablation.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import Study

HALF = 0.5  # any effect will do where only the confidence sequence is wanted


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
) -> TaskResult | None:
    """The result of a task; None where its first round is not answered yet.

    Every number is over the items that the cell was evaluated on until it was decided, whatever else is stored.
    Intervals of accuracies and drops are confidence sequences, which hold at whatever number of items evaluation
    stopped, for what the items were drawn from, as do those of a full table; there are no p-values, and `critical` is
    None: that is a question for a full table. The baseline of the task is over all items that any cell has.
    """
    reached = stopping.asked[task]
    if not reached:
        return None
    by_edit = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}
    cells, decisions = [], stopping.decided
    baselines: dict[int, Scores] = {}  # by number of items: many cells are decided in one round
    for edit in edits:
        ids = stopping.items[task][: stopping.reached[task, str(edit)]]
        unedited, edited = (by_edit[str(each)].loc[list(ids)] for each in (BASELINE, edit))
        drop = evidence(_right(unedited), _right(edited), stopping.plan.effect, 1 - study.level)
        if len(ids) not in baselines:
            baselines[len(ids)] = Scores(**_scores(unedited, study.level))
        cells.append(
            Cell(
                layer=edit.layer,
                unit=edit.unit,
                factor=edit.factor,
                **_scores(edited, study.level),
                drop=Estimate(value=drop.drop, low=drop.low, high=drop.high),
                decided=decisions[task, str(edit)],
                baseline=baselines[len(ids)],
            )
        )
    drawn = len(stopping.items[task])
    return TaskResult(
        task=task,
        items=reached,
        baseline=Scores(**_scores(by_edit[str(BASELINE)].loc[list(stopping.items[task][:reached])], study.level)),
        cells=cells,
        planned=sorted({edit.layer for edit in edits}),
        stopping=Stopped(
            effect=stopping.plan.effect,
            level=stopping.plan.level,
            items=drawn,
            finished=all(cell.decided != "open" or cell.items == drawn for cell in cells),
        ),
    )


def _right(frame: pd.DataFrame) -> Bool[np.ndarray, " items"]:
    return frame["correct"].to_numpy(dtype=bool)


def _scores(frame: pd.DataFrame, level: float) -> dict[str, Any]:
    """The fields of `Scores` over the items of the frame; the interval of the accuracy is a confidence sequence."""
    right = _right(frame)
    # Right minus wrong is 1 or −1: of an accuracy p its mean is 2p − 1, and what is known of that is known of p.
    sequence = evidence(right, ~right, HALF, 1 - level)
    accuracy = Estimate(value=float(right.mean()), low=(1 + sequence.low) / 2, high=(1 + sequence.high) / 2)
    return {"items": len(frame), "accuracy": accuracy, **rates(frame)}
