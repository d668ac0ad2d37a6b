"""Whether an edit takes more of one skill than of another: a test of the two relative losses on independent items.

The loss of a task is the share that the edit takes of what its baseline has above chance. If the first task loses no
more than the second, there is a share `kept` of which the first keeps at least and the second at most so much. For
every such share both sides have an exact p (`p_critical`, `p_spared`), and the two are independent, since the tasks
have no item in common. With z their normal quantiles, cut off at 0, the sum of squares z² exceeds q with a chance of at
most ½ P(χ²₁ > q) + ¼ P(χ²₂ > q). p is the largest of these over all shares up to ½: of a critical place, which keeps
less than half of the first skill, no other has to be refuted. So the test holds its level.

The interval of the difference puts together the score intervals of the two losses (MOVER; Zou and Donner 2008).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.paired import Contrast
from lesion.statistics.spared import p_spared

MOST = 0.5
LEAST = 1e-3
LOOKS = 27
"""Shares at which the evidence is looked at, which falls in steps; with a chance, of which p is slow, a third."""


def relative_loss(counts: Pairs, chance: float) -> float:
    """The share of the baseline above chance that an edit takes, as observed; NaN where there is none."""
    items = counts.lost + counts.retained + counts.won + counts.neither
    skill = counts.lost + counts.retained - items * chance
    return (counts.lost - counts.won) / skill if skill > 0 else math.nan


def p_loses_more(first: Pairs, second: Pairs, first_chance: float = 0.0, second_chance: float = 0.0) -> float:
    """p of "the first task loses no larger share of its skill than the second", of a place critical for the first.

    1 where the observed loss of the first is no larger.
    """
    lost, other = relative_loss(first, first_chance), relative_loss(second, second_chance)
    if not lost > other or lost <= 1 - MOST:
        return 1.0

    def evidence(kept: float) -> float:
        p = p_critical(first, 1 - kept, first_chance), p_spared(second, 1 - kept, second_chance)
        return sum(max(0.0, float(norm.isf(each))) ** 2 for each in p)

    low, high = max(LEAST, 1 - lost), min(MOST, 1 - other)
    if high <= low:
        return 1.0
    number = LOOKS // 3 if first_chance or second_chance else LOOKS
    shares = np.linspace(low, high, number)
    looks = [evidence(float(kept)) for kept in shares]
    best = int(np.argmin(looks))
    near = np.linspace(shares[max(0, best - 1)], shares[min(number - 1, best + 1)], number // 3)
    squares = min(*looks, *(evidence(float(kept)) for kept in near))
    return min(1.0, 0.5 * float(chi2.sf(squares, 1)) + 0.25 * float(chi2.sf(squares, 2)) if squares > 0 else 1.0)


def difference(
    first: Pairs, second: Pairs, first_chance: float = 0.0, second_chance: float = 0.0, level: float = 0.95
) -> Contrast:
    """The relative loss of the first task minus that of the second, with its interval."""
    ends = [_interval(first, first_chance, level), _interval(second, second_chance, level)]
    value = ends[0].value - ends[1].value
    low = value - math.hypot(ends[0].value - ends[0].low, ends[1].high - ends[1].value)
    high = value + math.hypot(ends[0].high - ends[0].value, ends[1].value - ends[1].low)
    return Contrast(value, low, high)


def _interval(counts: Pairs, chance: float, level: float) -> Contrast:
    """The losses whose score is at most the normal quantile: kept · b − e + (1 − kept) c over its deviation."""
    items = counts.lost + counts.retained + counts.won + counts.neither
    right, edited = counts.lost + counts.retained, counts.retained + counts.won
    z, loss = float(norm.isf((1 - level) / 2)), relative_loss(counts, chance)

    def score(kept: float) -> float:
        g = (1 - kept) * chance
        inside = min(1.0, max(0.0, kept))  # beyond, the edge has no such variance: that at the nearer end
        guessed = (1 - inside) * chance
        variance = inside * (1 - inside) * right + 2 * inside * counts.won
        variance += items * guessed * (1 - 2 * inside - guessed)
        return (kept * right - edited + items * g) / math.sqrt(max(variance, 0.25))

    far = 1 + (z * math.sqrt(2 * items) + 1) / (right - items * chance)
    low = brentq(lambda each: score(1 - each) - z, min(loss, 0.0) - far, loss)
    high = brentq(lambda each: score(1 - each) + z, loss, max(loss, 1.0) + far)
    return Contrast(loss, low, high if chance > 0 else max(loss, min(1.0, high)))
