"""From the answers of a truncation search to its numbers: cells, the chosen edit on test items, token probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lesion.core.cached_answers import Answers, Recollection
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.statistics.contrasts import Contrast, mean
from lesion.statistics.paired import mcnemar_exact, paired_drop, rank_agreement, wilson
from lesion.studies.truncation.grid import Cell
from lesion.studies.truncation.search import Found, Split, collapsed
from lesion.tasks.task import Item

DRAWS = 1000  # resamples of cells for the interval of the screen's rank correlation


def baselines(parts: Split, model: Recollection, level: float) -> list[dict[str, Any]]:
    """The unedited model on both parts of every task."""
    return [
        {
            "task": choice.name,
            "part": part,
            **_accuracy(answers, answers, level),
        }
        for choice in parts.tasks
        for part, items in (("validation", parts.validation), ("test", parts.test))
        for answers in (model.answers(choice, items[choice], BASELINE),)
    ]


def cells(grid: Sequence[Cell], found: Found, parts: Split, model: Recollection, level: float) -> list[dict[str, Any]]:
    """Every cell of the grid, with what was asked of it on validation items."""
    asked = {cell.edit for cell in found.asked}
    baseline = {choice: model.answers(choice, parts.validation[choice], BASELINE) for choice in parts.tasks}
    rows = []
    for cell in grid:
        answered = cell.edit in asked and cell.edit not in found.eliminated
        rows.append(
            {
                "edit": str(cell.edit),
                "address": cell.edit.address,
                "layer": cell.layer,
                "matrix": cell.matrix,
                "keep": cell.edit.keep,
                "side": cell.edit.side,
                "rank": cell.rank,
                "of": cell.of,
                "saved": cell.saved,
                "screen": None if found.screened is None else finite(found.screened[cell.edit]),
                "eliminated": found.eliminated.get(cell.edit),
                "score": finite(found.scores[cell.edit].first) if answered else None,
                "tasks": [
                    _validated(choice, cell.edit, parts.validation[choice], baseline[choice], model, level)
                    for choice in parts.tasks
                ]
                if answered
                else [],
            }
        )
    return rows


def _validated(
    choice: TaskChoice, edit: Edit, items: Sequence[Item], baseline: Answers, model: Recollection, level: float
) -> dict[str, Any]:
    edited = model.answers(choice, items, edit)
    drop = paired_drop(baseline.right, edited.right, level)
    return {
        "task": choice.name,
        **_accuracy(edited, baseline, level),
        "drop": drop.drop,
        "drop_low": drop.low,
        "drop_high": drop.high,
    }


def _accuracy(answers: Answers, baseline: Answers, level: float) -> dict[str, Any]:
    items = len(answers.right)
    low, high = wilson(int(answers.right.sum()), items, level)
    label, share, one = collapsed(answers, baseline)
    return {
        "items": items,
        "accuracy": float(answers.right.mean()),
        "low": low,
        "high": high,
        "gold": finite(float(answers.gold.mean())),
        "label": label,
        "label_share": share,
        "collapsed": one,
    }


def tested(edit: Edit, parts: Split, model: Recollection, level: float) -> list[dict[str, Any]]:
    """An edit on the test items of every task, against the baseline on the same items."""
    rows = []
    for choice in parts.tasks:
        items = parts.test[choice]
        baseline, edited = (model.answers(choice, items, one) for one in (BASELINE, edit))
        drop = paired_drop(baseline.right, edited.right, level)
        gold = mean(edited.gold - baseline.gold, level)
        rows.append(
            {
                "task": choice.name,
                "baseline": float(baseline.right.mean()),
                **_accuracy(edited, baseline, level),
                # 0.0 − 0.0 is 0.0, and −0.0 would be told as a loss of nothing.
                "gain": 0.0 - drop.drop,
                "gain_low": 0.0 - drop.high,
                "gain_high": 0.0 - drop.low,
                "p": mcnemar_exact(
                    int((baseline.right & ~edited.right).sum()), int((edited.right & ~baseline.right).sum())
                ),
                **_named("gold_gain", gold, "gold_low", "gold_high"),
                **_token_gains(baseline, edited, level),
            }
        )
    return rows


def _token_gains(baseline: Answers, edited: Answers, level: float) -> dict[str, float | None]:
    """How much likelier an edit makes the right and the tempting token: the mean paired difference of probabilities."""
    if baseline.scores.shape[1] != 2 or edited.scores.shape[1] != 2:
        return {}
    told: dict[str, float | None] = {}
    for name, before, after in zip(("right", "tempting"), baseline.scores.T, edited.scores.T, strict=True):
        change = _within(mean(np.exp(after) - np.exp(before), level), -1.0)
        told |= _named(f"p_{name}_gain", change, f"p_{name}_gain_low", f"p_{name}_gain_high")
    return told


def tokens(
    edit: Edit, parts: Split, model: Recollection, level: float, revision: str | None = None
) -> list[dict[str, Any]]:
    """Probability, rank and margin of the right and the tempting token on test items, of every task that has them.

    Intervals are Student's for the mean over items; those of probabilities are cut off at 0 and 1.
    """
    rows = []
    for choice, task in parts.tasks.items():
        if task.kind != "contrast":
            continue
        answers = model.answers(choice, parts.test[choice], edit)
        if answers.scores.shape[1] != 2:
            continue  # no logits were finite
        right, tempting = answers.scores.T
        ranked = np.where(answers.ranks > 0, answers.ranks, np.nan)
        rows.append(
            {
                "task": choice.name,
                "part": "test",
                "edit": str(edit),
                "revision": revision,
                "items": len(parts.test[choice]),
                **_named("p_right", _within(mean(np.exp(right), level)), "p_right_low", "p_right_high"),
                **_named("p_tempting", _within(mean(np.exp(tempting), level)), "p_tempting_low", "p_tempting_high"),
                "rank_right": finite(float(np.nanmedian(ranked[:, 0]))),
                "rank_tempting": finite(float(np.nanmedian(ranked[:, 1]))),
                **_named("margin", mean(right - tempting, level), "margin_low", "margin_high"),
            }
        )
    return rows


def along(edit: Edit, parts: Split, model: Recollection, level: float, revision: str) -> list[dict[str, Any]]:
    """Accuracy and log-probability of a checkpoint on the test items of every task."""
    rows = []
    for choice in parts.tasks:
        baseline, edited = (model.answers(choice, parts.test[choice], one) for one in (BASELINE, edit))
        told = _accuracy(edited, baseline, level)
        rows.append({"revision": revision, "edit": str(edit), "task": choice.name, **told})
    return rows


def screened(found: Found, level: float, seed: int) -> dict[str, Any] | None:
    """What the screen was, and how its ranks agree with those of the full evaluation, over the cells that have both.

    The interval is that of resampling these cells. They are the best of the screen and some drawn at random, so the
    agreement is that of such a choice, not of all cells.
    """
    if found.screen is None or found.screened is None:
        return None
    both = [cell.edit for cell in found.asked if cell.edit in found.scores]
    first = np.array([found.screened[edit] for edit in both])
    second = np.array([found.scores[edit].first for edit in both])
    value = low = high = math.nan
    if len(both) > 1:
        value = rank_agreement(first.tolist(), second.tolist())
        generator = np.random.default_rng(seed)
        drawn = [generator.integers(0, len(both), len(both)) for _ in range(DRAWS)]
        resampled = np.array([rank_agreement(first[one].tolist(), second[one].tolist()) for one in drawn])
        if np.isfinite(resampled).any():
            low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return {
        "items": found.screen.items,
        "best": found.screen.best,
        "random": found.screen.random,
        "evaluated": len(both),
        "rank_correlation": finite(value),
        "low": finite(float(low)),
        "high": finite(float(high)),
    }


def composition(found: Found) -> list[dict[str, Any]]:
    """The path of a composition, step by step."""
    return [
        {
            "step": number,
            "added": str(step.added),
            "edit": str(step.edit),
            "before": finite(step.before.first),
            "after": finite(step.after.first),
            "gold_before": finite(step.before.second),
            "gold_after": finite(step.after.second),
            "accepted": step.accepted,
            "reason": step.reason,
        }
        for number, step in enumerate(found.steps)
    ]


def finite(value: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return float(value) if math.isfinite(value) else None


def _within(contrast: Contrast, least: float = 0.0) -> Contrast:
    """The same, with limits no less than `least` and no more than 1; NaN stays NaN."""
    low, high = np.clip([contrast.low, contrast.high], least, 1.0)
    return Contrast(contrast.value, float(low), float(high))


def _named(name: str, contrast: Contrast, low: str, high: str) -> dict[str, float | None]:
    return {name: finite(contrast.value), low: finite(contrast.low), high: finite(contrast.high)}
