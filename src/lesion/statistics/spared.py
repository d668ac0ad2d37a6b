"""What is spared: an exact paired test that an edit takes less than a share of the baseline's accuracy.

A p above a level is no evidence of no effect. So that a task is *spared* has a test of its own, the same as that of
what is critical (`critical.py`) with its hypothesis turned round: p_edit ≤ kept · p_baseline with kept = 1 − share, the
edit takes at least `share`. It is rejected by few lost items among many right ones (equivalence in one direction; Nam &
Blackwelder 2002). Where the baseline has few items right it cannot be rejected.
"""

from __future__ import annotations

from typing import Literal

from lesion.statistics.critical import Pairs, exact_p
from lesion.statistics.down_to_chance import p_down_to_chance
from lesion.statistics.paired import ALPHA

SPARED = 0.25
"""A spared task loses less than this share of the baseline's accuracy."""


def p_spared(counts: Pairs, share: float = SPARED, chance: float = 0.0) -> float:
    """p of the hypothesis that an edit takes at least `share` of the baseline's accuracy above chance.

    Arguments as of `p_critical`.

    p is the largest chance under the hypothesis of a score at most as large as observed (with `chance` 0: given the
    number of items that either model has right); 1 where the observed loss is no smaller than the share, and where the
    baseline is not shown to be above chance.
    """
    if chance > 0:
        return p_down_to_chance(counts.lost, counts.retained, counts.won, counts.neither, 1.0 - share, chance, "spared")
    return exact_p(counts.lost, counts.retained, counts.won, 1.0 - share, -1)


def rule(share: float = SPARED, alpha: float = ALPHA) -> str:
    """The rule as a sentence for reports."""
    return (
        f"A place spares a task when its edit takes less than {100 * share:g} % of its accuracy above guessing: an"
        f" exact paired test rejects a loss of {100 * share:g} % or more, with p corrected likewise, at most {alpha:g}."
    )


Outcome = Literal["critical", "spared", "cannot be told"]


def outcome(*, critical: bool, spared: bool) -> Outcome:
    """The outcome of the two tests, each corrected over the family.

    That a test did not reject says nothing, so there is no outcome "not critical": where too little is lost to be
    critical, the task is spared, or the items are too few to tell.
    """
    return "critical" if critical else "spared" if spared else "cannot be told"
