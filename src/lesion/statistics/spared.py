"""What is spared: an exact paired test that an edit takes less than a share of the baseline's accuracy.

A p above a level is no evidence of no effect. So that a task is *spared* has a test of its own, the same as that of
what is critical (`critical.py`) with its hypothesis turned round: p_edit ≤ kept · p_baseline with kept = 1 − share, the
edit takes at least `share`. It is rejected by few lost items among many right ones (equivalence in one direction; Nam &
Blackwelder 2002). Where the baseline has few items right it cannot be rejected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtrc, gammaln

from lesion.errors import LesionError, UsageError
from lesion.statistics.critical import TIED, Pairs, largest, score

SPARED = 0.25
"""A spared task loses less than this share of the baseline's accuracy."""


def p_spared(counts: Pairs, share: float = SPARED) -> float:
    """p of the hypothesis that an edit takes at least `share` of the baseline's accuracy.

    Returns:
        The largest chance under the hypothesis of a score at most as large as observed, given the number of items that
        either model has right; 1 where the observed loss is no smaller than the share.

    Raises:
        UsageError: the share does not lie between 0 and 1.
        LesionError: a count is negative.
    """
    if not 0.0 < share < 1.0:
        raise UsageError(f"The share of the accuracy that is kept lies between 0 and 1, not {share:g}.")
    if min(counts.lost, counts.retained, counts.won) < 0:
        raise LesionError(f"Counts of pairs cannot be negative; got {counts}.")
    return _p(counts.lost, counts.retained, counts.won, 1.0 - share)


@lru_cache(maxsize=65536)
def _p(lost: int, retained: int, won: int, kept: float) -> float:
    if kept * (lost + retained) >= retained + won - TIED:
        return 1.0
    m = lost + retained + won
    statistic = float(score(np.array([lost]), np.array([retained]), np.array([won]), kept)[0])
    most = _most_retained_above(m, statistic, kept)
    return largest(lambda angles: _chances(m, most, angles, kept), m)


def _most_retained_above(m: int, statistic: float, kept: float) -> Int[np.ndarray, " won"]:
    """[won = 0…m] the most retained items of m with which the score is larger than `statistic`; −1 where none is."""
    won = np.arange(m + 1)
    low, high = np.full(m + 1, -1), m - won
    while (low < high).any():
        middle = (low + high + 1) // 2
        larger = score(m - won - middle, middle, won, kept) > statistic + TIED
        low, high = np.where(larger, middle, low), np.where(larger, high, middle - 1)
        low = np.minimum(low, high)
    return low


def _chances(
    m: int, most: Int[np.ndarray, " won"], angles: Float[np.ndarray, " grid"], kept: float
) -> Float[np.ndarray, " grid"]:
    """Chance that a score is not larger, at q = kept / (1 + kept) · sin² of every angle."""
    q = (kept / (1 + kept) * np.sin(angles) ** 2)[:, None]
    won = np.arange(m + 1)
    ways = gammaln(m + 1) - gammaln(won + 1) - gammaln(m - won + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_won = np.where(won > 0, won * np.log(q), 0.0) + (m - won) * np.log1p(-q)
    retained = np.clip((kept - (1 + kept) * q) / (1 - q), 0.0, 1.0)
    # Without items left to retain, none is retained.
    tails = np.where(most < 0, 1.0, bdtrc(np.maximum(most, 0).astype(np.float64), (m - won).astype(np.int64), retained))
    return np.asarray((np.exp(ways + log_won) * tails).sum(axis=1))


def rule(share: float = SPARED, alpha: float = 0.05) -> str:
    """The rule as a sentence for reports."""
    return (
        f"A place spares a task when its edit takes less than {100 * share:g} % of the baseline's accuracy: an exact"
        f" paired test rejects a loss of {100 * share:g} % or more, with p corrected likewise, at most {alpha:g}."
    )
