"""What every edit of one unit and factor takes, with its tests: of the accuracy, and of margins.

Margins are of tasks that compare tokens: how much of the difference of two log-probabilities is lost. The difference
log p(right) − log p(rival) is that of the two logits, the metric of Wang et al. (2023). It moves where no answer
changes yet, so that it shows small effects of single heads. Against " the" it is another question: whether a name is
said at all, not which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lesion.report.rows import Row, column
from lesion.report.values import SHARE as PERCENT
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean, mean_p
from lesion.statistics.critical import SHARE, p_critical, pairs
from lesion.statistics.paired import ALPHA, accuracy, holm, mcnemar_exact, paired_drop
from lesion.statistics.spared import SPARED, p_spared
from lesion.studies.ablation.sweep import PlaceEdit
from lesion.tasks.contrast import forced

Right = Bool[np.ndarray, " items"]


def drops(
    before: Right,
    after: Sequence[Right],
    tests: int,
    level: float,
    chance: float,
    spared: float = SPARED,
    stated: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """The drop under each edit with its tests, as fields of `cell.Cell`.

    p-values are corrected over all `tests` of the finished study: an edit that is still missing answers counts.

    Args:
        before: [items] whether the unedited model is right.
        after: [items] likewise under each edit.
        spared: the share of what lies above it that a spared task has surely not lost.
        stated: under each edit, how many lost answers count as retained where it is tested whether it is critical.
    """
    counts = [pairs(before, now) for now in after]
    p = [mcnemar_exact(each.lost, each.won) for each in counts]
    losses = [each.retaining(kept) for each, kept in zip(counts, stated or [0] * len(counts), strict=True)]
    p_loss = [p_critical(each, SHARE, chance) for each in losses]
    p_kept = [p_spared(each, spared, chance) for each in counts]
    corrected = [holm(values, tests) for values in (p, p_loss, p_kept)]
    return [
        {
            "drop": Estimate.of(paired_drop(before, now, level), p[place], corrected[0][place]),
            "lost": counts[place].lost,
            "won": counts[place].won,
            "p_critical": p_loss[place],
            "p_critical_corrected": corrected[1][place],
            "p_spared": p_kept[place],
            "p_spared_corrected": corrected[2][place],
        }
        for place, now in enumerate(after)
    ]


def compares(answers: pd.DataFrame) -> bool:
    """Whether every answer holds the log-probabilities of the right token and what tempts."""
    return len(answers) > 0 and bool(answers["ranks"].map(len).ge(2).all())


def margins(
    baseline: pd.DataFrame,
    answered: Mapping[PlaceEdit, pd.DataFrame],
    tests: int,
    level: float,
    *,
    against_word: bool = False,
) -> dict[PlaceEdit, Estimate]:
    """By edit, the mean over items of the unedited difference minus that under the edit, in nats.

    With Student's interval and p, which Holm's method corrects over all `tests`. An edit under which a log-probability
    is not finite is left out, and all are where the task compares no tokens. Where some items have rivals, the others
    are left out.

    Args:
        answered: answers to the same items, in the same order.
        against_word: against the word that is no rival (" the"), instead of the first rival; empty without rivals.
    """
    if not compares(baseline):
        return {}
    rivals = baseline["ranks"].map(len).to_numpy() > 2
    if against_word and not rivals.any():
        return {}
    kept = rivals if rivals.any() else ~rivals
    unedited = _differences(baseline[kept], against_word)
    lost = {
        edit: unedited - _differences(frame[kept], against_word) for edit, frame in answered.items() if compares(frame)
    }
    known = {edit: values for edit, values in lost.items() if len(values) > 1 and np.isfinite(values).all()}
    p = [mean_p(values) for values in known.values()]
    corrected = holm(p, tests)
    return {
        edit: Estimate.of(mean(values, level), p[number], corrected[number])
        for number, (edit, values) in enumerate(known.items())
    }


def _differences(frame: pd.DataFrame, against_word: bool) -> Float[np.ndarray, " items"]:
    pairs = zip(frame["scores"], frame["ranks"], strict=True)
    differences = [scores[0] - scores[len(ranks) - 1 if against_word else 1] for scores, ranks in pairs]
    return np.array(differences, dtype=np.float64)


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
    accuracy: Estimate = column("Forced", PERCENT, key="forced_accuracy", ends=("forced_low", "forced_high"))
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


def forced_baseline(baseline: pd.DataFrame, level: float) -> Forced | None:
    """The forced answers of the unedited model; None where no item has rivals."""
    with_rivals, right, chance = _read(baseline)
    if not with_rivals.any():
        return None
    return Forced(
        items=int(with_rivals.sum()),
        accuracy=Estimate.of(accuracy(right[with_rivals], level)),
        guessing=float(chance[with_rivals].mean()),
    )


def forced_under(
    baseline: pd.DataFrame, answered: Mapping[PlaceEdit, pd.DataFrame], tests: int, level: float
) -> dict[PlaceEdit, Forced]:
    """By edit, the forced answers under it; empty where no item has rivals.

    Args:
        answered: answers to the same items, in the same order.
        tests: edits of the finished study, over which p is corrected.
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


def _read(answers: pd.DataFrame) -> tuple[Right, Right, Float[np.ndarray, " items"]]:
    """Of each item whether it has rivals, whether the forced answer is right, and how often guessing is.

    Only contrasts have ranks, and not where logits were not finite: such an answer chooses nothing and is wrong.
    """
    answered = zip(answers["scores"], answers["ranks"], strict=True)
    whole = [tuple(scores[len(ranks) :]) if len(ranks) else () for scores, ranks in answered]
    with_rivals = np.array([len(each) > 1 for each in whole], dtype=bool)
    right = np.array([bool(forced(each)) for each in whole], dtype=bool)
    chance = np.array([1 / len(each) if each else 1.0 for each in whole], dtype=np.float64)
    return with_rivals, right, chance
