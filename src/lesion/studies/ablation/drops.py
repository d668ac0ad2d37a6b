"""What every edit of one unit and factor takes, with its tests: of the accuracy, and of margins.

Margins are of tasks that compare tokens: how much of the difference of two log-probabilities is lost. The difference
log p(right) − log p(rival) is that of the two logits, the metric of Wang et al. (2023). It moves where no answer
changes yet, so that it shows small effects of single heads. Against " the" it is another question: whether a name is
said at all, not which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean, mean_p
from lesion.statistics.critical import SHARE, p_critical, pairs
from lesion.statistics.paired import holm, mcnemar_exact, paired_drop
from lesion.statistics.spared import SPARED, p_spared
from lesion.studies.ablation.sweep import PlaceEdit

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
        tests: edits of the finished study.
        level: of the intervals.
        chance: the accuracy of guessing.
        spared: the share of what lies above it that a spared task has surely not lost.
        stated: under each edit, how many lost answers count as retained where it is tested whether it is critical.
    """
    counts = [pairs(before, now) for now in after]
    p = [mcnemar_exact(each.lost, each.won) for each in counts]
    losses = [each.retaining(kept) for each, kept in zip(counts, stated or [0] * len(counts), strict=True)]
    p_loss = [p_critical(each, SHARE, chance) for each in losses]
    p_kept = [p_spared(each, spared, chance) for each in counts]
    corrected = [holm([*values, *[1.0] * (tests - len(after))]) for values in (p, p_loss, p_kept)]
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
    return "ranks" in answers and len(answers) > 0 and bool(answers["ranks"].map(len).ge(2).all())


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
        baseline: answers of the unedited model.
        answered: answers to the same items, in the same order.
        tests: edits of the finished study.
        level: of the intervals.
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
    corrected = holm([*p, *[1.0] * (tests - len(p))])
    return {
        edit: Estimate.of(mean(values, level), p[number], corrected[number])
        for number, (edit, values) in enumerate(known.items())
    }


def _differences(frame: pd.DataFrame, against_word: bool) -> Float[np.ndarray, " items"]:
    pairs = zip(frame["scores"], frame["ranks"], strict=True)
    differences = [scores[0] - scores[len(ranks) - 1 if against_word else 1] for scores, ranks in pairs]
    return np.array(differences, dtype=np.float64)
