"""Forced answers of a layer study: the right text against its rivals, beside the most probable token of all.

Where a task has rivals (IOI's other name, the other words of a sequence), a place may be critical for the free answer
and leave the choice among the rivals: the model then answers in another form. So every cell says what it takes of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.report import forms
from lesion.report.rows import Row, column
from lesion.report.values import Estimate
from lesion.statistics.critical import SHARE
from lesion.statistics.paired import ALPHA, accuracy
from lesion.studies.ablation.drops import Right, drops
from lesion.studies.ablation.sweep import PlaceEdit
from lesion.tasks.contrast import forced

Choice = Literal["lost", "kept", "cannot tell"]


class Forced(Row):
    """The forced answers of one model to the items of which the right text has rivals.

    Attributes:
        items: how many these are.
        guessing: how often guessing is right, in 0…1: 1 / (1 + rivals), averaged over items.
        drop: of an edit, against the unedited model; p of "it changes nothing".
        p_lost, p_kept: of an edit, corrected by Holm over its family: of "it takes at most half of what the unedited
            model has above guessing", and of "it takes at least half of it".
    """

    items: int = column(key="forced_items")
    accuracy: Estimate = column("Forced", forms.SHARE, key="forced_accuracy", ends=("forced_low", "forced_high"))
    guessing: float = column(key="forced_guessing")
    drop: Estimate | None = column(default=None, key="forced_drop", p="forced_p", omitted=True)
    p_lost: float | None = column(default=None, key="forced_p_lost_corrected", omitted=True)
    p_kept: float | None = column(default=None, key="forced_p_kept_corrected", omitted=True)

    @property
    def choice(self) -> Choice:
        """Whether more than half of the choice is lost, or less, each by its own test."""
        if self.p_lost is not None and self.p_lost <= ALPHA:
            return "lost"
        return "kept" if self.p_kept is not None and self.p_kept <= ALPHA else "cannot tell"


def measured(baseline: pd.DataFrame, level: float) -> Forced | None:
    """The forced answers of the unedited model; None where no item has rivals."""
    with_rivals, right, chance = _read(baseline)
    if not with_rivals.any():
        return None
    return Forced(
        items=int(with_rivals.sum()),
        accuracy=Estimate.of(accuracy(right[with_rivals], level)),
        guessing=float(chance[with_rivals].mean()),
    )


def under_edits(
    baseline: pd.DataFrame, answered: Mapping[PlaceEdit, pd.DataFrame], tests: int, level: float
) -> dict[PlaceEdit, Forced]:
    """By edit, the forced answers under it; empty where no item has rivals.

    Args:
        baseline: answers of the unedited model.
        answered: answers to the same items, in the same order.
        tests: edits of the finished study, over which p is corrected.
        level: of the intervals.
    """
    with_rivals, before, chance = _read(baseline)
    if not with_rivals.any():
        return {}
    before, chance = before[with_rivals], chance[with_rivals]
    after = [_read(frame)[1][with_rivals] for frame in answered.values()]
    guess = float(chance.mean())
    return {
        edit: Forced(
            items=len(now),
            accuracy=Estimate.of(accuracy(now, level)),
            guessing=guess,
            drop=of_drop["drop"],
            p_lost=of_drop["p_critical_corrected"],
            p_kept=of_drop["p_spared_corrected"],
        )
        for edit, now, of_drop in zip(answered, after, drops(before, after, tests, level, guess, SHARE), strict=True)
    }


def _read(
    answers: pd.DataFrame,
) -> tuple[Right, Right, Float[np.ndarray, " items"]]:
    """Of each item whether it has rivals, whether the forced answer is right, and how often guessing is.

    Only contrasts have ranks, and not where logits were not finite: such an answer chooses nothing and is wrong.
    """
    if "ranks" not in answers:
        nothing = np.zeros(len(answers), dtype=bool)
        return nothing, nothing, np.ones(len(answers))
    answered = zip(answers["scores"], answers["ranks"], strict=True)
    whole = [tuple(scores[len(ranks) :]) if len(ranks) else () for scores, ranks in answered]
    with_rivals = np.array([len(each) > 1 for each in whole], dtype=bool)
    right = np.array([bool(forced(each)) for each in whole], dtype=bool)
    chance = np.array([1 / len(each) if each else 1.0 for each in whole], dtype=np.float64)
    return with_rivals, right, chance
