"""Power of the exact tests of *critical* and *spared*: the chance that a place is called so, and the items it takes.

All is for an edit that repairs no item and takes each right answer with the same chance, and for Holm's first step, at
α / tests; where other tests of the plan pass too, less suffices. Then the number of items that the baseline has right
is binomial, and of these the number retained. One that also repairs items has less power.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.stats import beta, binom

from lesion.statistics.critical import POWER, Pairs, p_critical, smallest_loss
from lesion.statistics.paired import ALPHA, last
from lesion.statistics.spared import p_spared

Expected = Literal["critical", "spared"]
LOSS: dict[Expected, float] = {"critical": 0.75, "spared": 0.0}
"""The share of the baseline's accuracy that is lost where a power is told: midway between the half that a critical
place has to take and all of it, and nothing."""
LOOKS = 25
"""Of so many numbers of right items at most the test is worked out; between them the smaller one counts."""
MOST = 100_000


@lru_cache(maxsize=65536)
def bound(expect: Expected, right: int, tests: int, items: int = 0, chance: float = 0.0) -> int:
    """Of `right` items, the most retained with which a place is critical, or the most lost with which it is spared.

    −1 where there is no such number. With a chance to guess right, of `items`; then the edit that is critical leaves
    all answers to guessing, and of those that were wrong as many are won as that gives.
    """
    won = round((items - right) * chance) if expect == "critical" else 0
    wrong = max(0, items - right - won)

    def passes(count: int) -> bool:
        if expect == "critical":
            return p_critical(Pairs(right - count, count, won, wrong), chance=chance) * tests <= ALPHA
        return p_spared(Pairs(count, right - count, 0, wrong), chance=chance) * tests <= ALPHA

    if right < 1 or not passes(0):
        return -1
    return last(passes, 0, right)


def power(expect: Expected, items: int, baseline: float, loss: float, tests: int) -> float:
    """The chance that a place is called as expected.

    Exact with few items; with many a lower bound, by less than the steps between `LOOKS` numbers of right items.

    `loss` is the share of the right items that the edit takes, and `tests` are those of the family.
    """
    low, high = (int(end) for end in binom.ppf([1e-6, 1 - 1e-6], items, baseline))
    looks = np.unique(np.linspace(low, high, min(LOOKS, high - low + 1)).astype(int))
    rights = np.arange(low, high + 1)
    bounds = np.array([bound(expect, int(right), tests) for right in looks])
    most = bounds[np.searchsorted(looks, rights, side="right") - 1]
    gone = 1 - loss if expect == "critical" else loss
    called = np.where(most < 0, 0.0, binom.cdf(most, rights, gone))
    return float(binom.pmf(rights, items, baseline) @ called)


def detectable(expect: Expected, right: int, tests: int, items: int = 0, chance: float = 0.0) -> float | None:
    """The smallest loss called critical, or the largest called spared, with a chance of `POWER`.

    The baseline has `right` items right, of `items` where there is a chance to guess. A share of its accuracy above
    chance; None where nothing can be called so.
    """
    if expect == "critical" and chance > 0:
        return smallest_loss(right, tests, items, chance)
    most = bound(expect, right, tests, items, chance)
    if most < 0:
        return None
    # The number of items up to `most` is binomial: P(≤ most) = power at this chance.
    each = float(beta.ppf(1.0 - POWER, most + 1, right - most))
    if chance > 0:  # the items lost, of what lies above chance
        return min(1.0, each * right / (right - items * chance))
    return 1.0 - each if expect == "critical" else each


def items_needed(expect: Expected, baseline: float, loss: float, tests: int) -> int | None:
    """About how many items give a chance of `POWER`; None where `MOST` do not. Arguments as of `power`."""
    gone = 1 - loss if expect == "critical" else loss

    def enough(right: int) -> bool:
        most = bound(expect, right, tests)
        return most >= 0 and float(binom.cdf(most, right, gone)) >= POWER

    right = 1
    while not enough(right):
        right *= 2
        if right > 1024:  # losses near the rule's own share
            return None
    right = last(lambda fewer: not enough(fewer), right // 2, right) + 1
    items = math.ceil(right / baseline)
    while items <= MOST and power(expect, items, baseline, loss, tests) < POWER:
        items = max(items + 1, math.ceil(items * 1.02))
    return items if items <= MOST else None
