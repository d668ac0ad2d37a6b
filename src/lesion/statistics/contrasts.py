"""Contrasts: an edit against its random controls, a skill against a control, a perplexity against another; float64."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int

from lesion.statistics.distributions import student_isf, student_sf
from lesion.statistics.paired import Contrast, paired_drop


def difference_of_drops(first: Contrast, second: Contrast, correlation: float = 0.0) -> Contrast:
    """One drop minus another; the level is that of the two drops' intervals.

    The limits recover each drop's variance near the limit that counts (Newcombe 1998, method 10; Zou and Donner 2008).

    `correlation` is that of the two drops over items; 0 where they are of other items.
    """
    value = first.value - second.value
    low = value - _combined(first.value - first.low, second.high - second.value, correlation)
    high = value + _combined(first.high - first.value, second.value - second.low, correlation)
    return Contrast(value, max(-2.0, low), min(2.0, high))


def _combined(first: float, second: float, correlation: float) -> float:
    """√(a² + b² − 2·r·a·b): the reach of a difference of two estimates whose correlation is r."""
    return math.hypot(first - correlation * second, math.sqrt(max(0.0, 1.0 - correlation * correlation)) * second)


def paired_difference_of_drops(
    first: Bool[np.ndarray, "two items"], second: Bool[np.ndarray, "two items"], level: float = 0.95
) -> Contrast:
    """The drop in the first minus that in the second on the same items, each given as (baseline, edited).

    Both drops have their score intervals (`paired_drop`), combined under the correlation of the two drops over items;
    unlike Student's interval of the differences it has width also where all differences are equal.
    """
    drops = [baseline.astype(float) - edited for baseline, edited in (first, second)]
    constant = any(float(np.ptp(drop)) == 0.0 for drop in drops) if first.size else False
    correlation = 0.0 if constant else float(np.corrcoef(*drops)[0, 1])
    return difference_of_drops(
        paired_drop(first[0], first[1], level), paired_drop(second[0], second[1], level), correlation
    )


def mean_p(values: Float[np.ndarray, " items"]) -> float:
    """Two-sided p of Student's test that the mean is 0; 1 where all values are 0, NaN for fewer than two values."""
    if values.size < 2 or not np.isfinite(values).all():
        return math.nan
    spread = float(values.std(ddof=1))
    if spread == 0.0:
        return 1.0 if float(values[0]) == 0.0 else 0.0
    return float(2.0 * student_sf(abs(float(values.mean())) * math.sqrt(values.size) / spread, values.size - 1))


def beyond_random(
    edited: Bool[np.ndarray, " items"], random: Bool[np.ndarray, "draws items"], level: float = 0.95
) -> Contrast:
    """How much less accurate an edit is than its matched random controls on the same items: the mean paired drop to it.

    The limits combine, as square roots of sums of squares, the mean reach of the draws' score intervals (`paired_drop`;
    the draws share the items, so this noise does not average out) and their spread, √(variance / draws) times Student's
    quantile, which a single draw cannot show. The interval errs on the wide side, and always has width.
    """
    drops = [paired_drop(control, edited, level) for control in random]
    value = float(np.mean([each.value for each in drops]))
    between = 0.0
    if len(drops) > 1:
        spread = float(np.std([each.value for each in drops], ddof=1)) / math.sqrt(len(drops))
        between = float(student_isf((1 - level) / 2, len(drops) - 1)) * spread
    below = float(np.mean([each.value - each.low for each in drops]))
    above = float(np.mean([each.high - each.value for each in drops]))
    low, high = value - math.hypot(below, between), value + math.hypot(above, between)
    return Contrast(value, max(-1.0, low), min(1.0, high))


def mean(values: Float[np.ndarray, " items"], level: float = 0.95) -> Contrast:
    """The mean over items with Student's interval; infinite limits for a single item, NaN where a value is NaN."""
    value = float(values.mean())
    if values.size == 1:
        return Contrast(value, -math.inf, math.inf)
    reach = float(student_isf((1 - level) / 2, values.size - 1)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Contrast(value, value - reach, value + reach)


def perplexity(scores: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"], level: float = 0.95) -> Contrast:
    """exp of the mean negative log-probability per token, with an interval from the spread between stretches of text.

    The variance of the mean, a ratio of two sums over stretches, is the linearised one (Cochran 1977, section 2.11);
    the interval is Student's, symmetric for the logarithm. Infinite where a log-probability is not finite; one stretch
    has the interval 0 to infinity. `scores` are summed log-probabilities of the stretches, in nats.
    """
    return _exp_ratio(-scores.astype(np.float64), tokens, level)


def perplexity_ratio(
    baseline: Float[np.ndarray, " items"],
    edited: Float[np.ndarray, " items"],
    tokens: Int[np.ndarray, " items"],
    level: float = 0.95,
) -> Contrast:
    """Edited perplexity over the baseline's on the same stretches, with a paired interval; 1 is no change.

    `baseline` and `edited` are summed log-probabilities in nats; all else is as for `perplexity`.
    """
    return _exp_ratio(baseline.astype(np.float64) - edited.astype(np.float64), tokens, level)


def perplexity_p(
    baseline: Float[np.ndarray, " items"], edited: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"]
) -> float:
    """Two-sided p of "the ratio of perplexities is 1" (Student's test).

    NaN for one stretch or infinite scores, and where stretches that change do so all alike: they are one text repeated.

    It agrees with the interval of `perplexity_ratio`. Arguments as there.
    """
    mean, spread = _linearised(baseline.astype(np.float64) - edited.astype(np.float64), tokens)
    if not math.isfinite(mean) or not math.isfinite(spread):
        return math.nan
    if spread == 0.0:
        return 1.0 if mean == 0.0 else math.nan
    return float(2.0 * student_sf(abs(mean) / spread, len(tokens) - 1))


def _linearised(sums: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"]) -> tuple[float, float]:
    """Σ sums ÷ Σ tokens and its standard error, infinite for a single stretch."""
    total = int(tokens.sum())
    mean, items = float(sums.sum()) / total, len(sums)
    if items < 2 or not math.isfinite(mean):
        return mean, math.inf
    residuals = sums - mean * tokens
    return mean, math.sqrt(items / (items - 1) * float(residuals @ residuals)) / total


def _exp_ratio(sums: Float[np.ndarray, " items"], tokens: Int[np.ndarray, " items"], level: float) -> Contrast:
    mean, spread = _linearised(sums, tokens)
    if not math.isfinite(mean):
        return Contrast(math.inf, math.inf, math.inf)
    reach = float(student_isf((1 - level) / 2, max(1, len(sums) - 1))) * spread

    def power(value: float) -> float:
        return math.exp(value) if value < 700 else math.inf

    return Contrast(power(mean), power(mean - reach), power(mean + reach))


def ratio_of_means(
    parts: Float[np.ndarray, " items"], wholes: Float[np.ndarray, " items"], level: float = 0.95
) -> Contrast:
    """Σ parts ÷ Σ wholes over items, with the linearised interval (Cochran 1977, section 2.11) and Student's quantile.

    No item is divided by its own whole, which may be near 0. The limits are infinite for a single item; all are NaN
    where the wholes sum to 0.
    """
    total, items = float(wholes.sum()), parts.size
    if total == 0.0:
        return Contrast(math.nan, math.nan, math.nan)
    ratio = float(parts.sum()) / total
    if items == 1:
        return Contrast(ratio, -math.inf, math.inf)
    residuals = parts - ratio * wholes
    spread = math.sqrt(items / (items - 1) * float(residuals @ residuals)) / abs(total)
    reach = float(student_isf((1 - level) / 2, items - 1)) * spread
    return Contrast(ratio, ratio - reach, ratio + reach)
