"""Contrasts: an edit against its random controls, a skill against a control, a perplexity against another; float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import norm
from scipy.stats import t as student

from lesion.errors import LesionError
from lesion.statistics.paired import Drop, paired_drop


@dataclass(frozen=True)
class Contrast:
    """An estimate with its interval."""

    value: float
    low: float
    high: float


def difference_of_drops(first: Drop, second: Drop) -> Contrast:
    """One drop minus another on other items, with an interval from those of the two.

    The limits recover each drop's variance near the limit that counts (Newcombe 1998, method 10; Zou and Donner 2008).
    Both intervals must be of the same level, which is then that of the result.
    """
    value = first.drop - second.drop
    low = value - math.hypot(first.drop - first.low, second.high - second.drop)
    high = value + math.hypot(first.high - first.drop, second.drop - second.low)
    return Contrast(value, max(-2.0, low), min(2.0, high))


def beyond_random(
    edited: Bool[np.ndarray, " items"], random: Bool[np.ndarray, "draws same_items"], level: float = 0.95
) -> Contrast:
    """How much less accurate an edit is than its matched random controls on the same items.

    The mean over draws of the paired drop from the random control to the edit. Its limits join two doubts, as square
    roots of sums of squares: the mean reach of the draws' own score intervals (`paired_drop`; the items are the same
    for all draws, so their noise does not average out), and what draws differ by, √(variance / draws) times Student's
    quantile: another draw of random weights might have done something else. A single draw cannot tell the latter. The
    interval errs on the wide side, and has width also where no item tells edit and controls apart.

    Args:
        edited: [items] whether the edited model is right.
        random: [draws, items] whether each random control is right on the same items.
        level: coverage aimed at.

    Raises:
        LesionError: there are no items or no draws, or their numbers differ.
    """
    if random.ndim != 2 or random.shape[1:] != edited.shape or random.size == 0:
        raise LesionError("An edit and its random controls need the same items, at least one, and at least one draw.")
    found = [paired_drop(one, edited, level) for one in random]
    value = float(np.mean([one.drop for one in found]))
    between = 0.0
    if len(found) > 1:
        spread = float(np.std([one.drop for one in found], ddof=1)) / math.sqrt(len(found))
        between = float(student.isf((1 - level) / 2, len(found) - 1)) * spread
    below = float(np.mean([one.drop - one.low for one in found]))
    above = float(np.mean([one.high - one.drop for one in found]))
    low, high = value - math.hypot(below, between), value + math.hypot(above, between)
    return Contrast(value, max(-1.0, low), min(1.0, high))


def mean(values: Float[np.ndarray, " items"], level: float = 0.95) -> Contrast:
    """The mean of a number over items with Student's interval; infinite limits of a single item, NaN where one is NaN.

    Args:
        values: [items] one number an item: a difference, a probability.
        level: coverage aimed at.

    Raises:
        LesionError: there are no items.
    """
    if values.size == 0:
        raise LesionError("A mean needs at least one item.")
    value = float(values.mean())
    if values.size == 1:
        return Contrast(value, -math.inf, math.inf)
    reach = float(student.isf((1 - level) / 2, values.size - 1)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Contrast(value, value - reach, value + reach)


def perplexity(scores: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"], level: float = 0.95) -> Contrast:
    """exp of the mean negative log-probability a token, with an interval from the spread between stretches of text.

    Infinite where the log-probability of a stretch is not finite; of one stretch the interval is 0 to infinity.

    The mean is a ratio of two sums over stretches; its variance is the linearised one (Cochran 1977, section 2.11), and
    the interval is symmetric for the logarithm.

    Args:
        scores: [items] summed log-probability of each stretch, nats.
        tokens: [items] number of tokens of each.
        level: coverage aimed at.

    Raises:
        LesionError: there is no token.
    """
    return _exp_ratio(-scores.astype(np.float64), tokens, level)


def perplexity_ratio(
    baseline: Float[np.ndarray, " items"],
    edited: Float[np.ndarray, " items"],
    tokens: Int[np.ndarray, " items"],
    level: float = 0.95,
) -> Contrast:
    """The edited perplexity over the baseline's, on the same stretches, with a paired interval; 1 is no change.

    Infinite where a log-probability of either is not finite.

    Args:
        baseline, edited: [items] summed log-probability of each stretch, nats.
        tokens: [items] number of tokens of each.
        level: coverage aimed at.

    Raises:
        LesionError: there is no token.
    """
    return _exp_ratio(baseline.astype(np.float64) - edited.astype(np.float64), tokens, level)


def _exp_ratio(sums: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"], level: float) -> Contrast:
    total = int(tokens.sum())
    if total == 0:
        raise LesionError("A perplexity needs at least one token.")
    mean = float(sums.sum()) / total
    if not math.isfinite(mean):
        return Contrast(math.inf, math.inf, math.inf)
    items = len(sums)
    spread = math.inf
    if items > 1:
        residuals = sums - mean * tokens
        spread = math.sqrt(items / (items - 1) * float(residuals @ residuals)) / total
    reach = float(norm.isf((1 - level) / 2)) * spread

    def power(value: float) -> float:
        return math.exp(value) if value < 700 else math.inf

    return Contrast(power(mean), power(mean - reach), power(mean + reach))
