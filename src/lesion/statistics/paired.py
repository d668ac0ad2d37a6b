"""Statistics of a study in float64: intervals, paired tests, correction over layers; what is critical: `critical`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq

from lesion.errors import LesionError
from lesion.statistics.distributions import binomial_cdf, normal_isf

ALPHA = 0.05
FLIPS = 10_000
"""Choices of signs that are drawn."""


@dataclass(frozen=True)
class Contrast:
    """An estimate with its interval."""

    value: float
    low: float
    high: float


def _z(level: float) -> float:
    """The two-sided normal quantile of a level: 1.96 for 0.95."""
    return float(normal_isf((1.0 - level) / 2.0))


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion (Wilson 1927): all p with |p̂ − p| ≤ z·√(p(1−p)/n).

    The limits lie within 0…1 and hold the point estimate.
    """
    z = _z(level)
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the limit is exactly 0 or 1; rounding must not put the point outside its own interval.
    low = 0.0 if successes == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if successes == n else min(1.0, (centre + half) / scale)
    return low, high


def accuracy(right: Bool[np.ndarray, " items"], level: float = 0.95) -> Contrast:
    """The share of right answers with Wilson's interval."""
    return Contrast(float(right.mean()), *wilson(int(right.sum()), len(right), level))


def _tango_score(difference: float, b: int, c: int, n: int) -> float:
    """Tango's (1998) score for H₀: p_b − p_e = `difference`, standard normal when it holds.

    The variance is that of the maximum-likelihood fit under H₀: q, the probability of the pairs that only the edit has
    right, is the larger root of 2n·q² + B·q + C = 0.
    """
    linear = -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    root = math.sqrt(max(0.0, linear * linear - 8 * n * constant))
    # Of the two equal forms of the larger root, the one that does not subtract nearly equal numbers.
    q = (root - linear) / (4 * n) if linear <= 0 else -2 * constant / (root + linear)
    variance = n * (2 * q + difference * (1 - difference))
    numerator = b - c - n * difference
    if variance <= 0.0:
        # Beyond any quantile, yet finite: the root finder interpolates between scores.
        return 0.0 if numerator == 0 else math.copysign(1e9, numerator)
    return numerator / math.sqrt(variance)


def paired_drop(
    baseline: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, " same_items"], level: float = 0.95
) -> Contrast:
    """The drop of accuracy on the same items, baseline − edited, with Tango's (1998) interval for paired proportions.

    The interval is the set of differences Δ whose score |T(Δ)| is at most z. Unlike the usual mean ± z·s/√n it keeps
    its coverage when few pairs disagree, has width when none do, and stays within −1…1. At Δ = 0 the score is
    McNemar's, so it leaves 0 out exactly where McNemar's test without continuity correction rejects.
    """
    if baseline.shape != edited.shape:
        raise LesionError(f"A drop is of the same items; the baseline has {baseline.size} and the edit {edited.size}.")
    z = _z(level)
    n = int(baseline.size)
    b = int(np.count_nonzero(baseline & ~edited))
    c = int(np.count_nonzero(edited & ~baseline))
    drop = (b - c) / n
    # T falls from positive to negative as the difference grows and is 0 at the point estimate.
    low = -1.0
    if c < n:
        low = brentq(lambda d: _tango_score(d, b, c, n) - z, -1.0, drop, xtol=1e-13)
    high = 1.0
    if b < n:
        high = brentq(lambda d: _tango_score(d, b, c, n) + z, drop, 1.0, xtol=1e-13)
    return Contrast(drop, min(float(low), drop), max(float(high), drop))


def mcnemar_exact(b_only: int, e_only: int) -> float:
    """McNemar's (1947) test in its exact form: two-sided binomial test of the discordant pairs against ½.

    p is the chance under "the edit changes nothing" of a split at least as uneven between the items that only the
    baseline and only the edited model has right; 1 when no pair disagrees.
    """
    discordant = b_only + e_only
    # The binomial with ½ is symmetric, so two-sided is twice one tail; 1 caps the middle, counted twice.
    return min(1.0, 2.0 * float(binomial_cdf(min(b_only, e_only), discordant, 0.5)))


def paired_p(baseline: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, " items"]) -> float:
    """`mcnemar_exact` of which items are right before and after."""
    return mcnemar_exact(int((baseline & ~edited).sum()), int((edited & ~baseline).sum()))


def median_shift(differences: Int[np.ndarray, " items"], level: float = 0.95) -> tuple[Contrast, float]:
    """The median of paired differences, its interval from order statistics, and the exact p of the sign test.

    Conover (1999), Practical Nonparametric Statistics, section 3.2; differences of 0 make it conservative.
    """
    from scipy.stats import quantile_test  # slow to import, as in the functions below

    test = quantile_test(differences, q=0.0, p=0.5)
    low, high = test.confidence_interval(level)
    return Contrast(float(np.median(differences)), float(low), float(high)), float(test.pvalue)


def sign_flip_exact(differences: Int[np.ndarray, " items"]) -> float:
    """Exact two-sided test that paired differences lie symmetrically around 0 (Fisher's randomisation test).

    p is the share of all choices of signs whose sum is at least as far from 0. For differences of −1, 0 and 1 it is
    McNemar's exact test.

    Differences are whole numbers, such as drop in one model minus drop in the other, −2…2.
    """
    from scipy.stats import binom

    sizes = np.abs(differences[differences != 0]).astype(int)
    chances = np.ones(1)  # of the sum of those whose sign is plus: 0, 1, …
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        of_size = np.zeros(int(size) * int(count) + 1)
        of_size[:: int(size)] = binom.pmf(np.arange(int(count) + 1), int(count), 0.5)
        chances = np.convolve(chances, of_size)
    sums = 2 * np.arange(len(chances)) - (len(chances) - 1)
    return min(1.0, float(chances[np.abs(sums) >= abs(int(differences.sum()))].sum()))


def sign_flips(values: Float[np.ndarray, "items tests"], seed: int) -> Float[np.ndarray, " tests"]:
    """Two-sided p of "the numbers of items lie symmetrically around 0", by signs drawn at random, for several tests.

    As `sign_flip_exact`, for numbers of any size. The signs of one item are the same in all tests. The observed signs
    are counted in (Phipson and Smyth 2010), so no p is below 1 / (`FLIPS` + 1).
    """
    generator = np.random.default_rng([seed, len(values)])
    least = np.abs(values.sum(axis=0)) - 1e-9 * np.abs(values).sum(axis=0)
    hits = np.ones(values.shape[1])
    at_once = 1000 if len(values) <= 20_000 else 50  # of whole numbers that divide `FLIPS`
    for _ in range(0, FLIPS, at_once):
        signs = generator.integers(2, size=(at_once, len(values))) * 2.0 - 1.0
        hits += (np.abs(signs @ values) >= least).sum(axis=0)
    return np.asarray(hits / (FLIPS + 1))


def last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last whole number for which `holds` is true; it is for `low` and is not for `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def holm(p: Iterable[float], tests: int = 0) -> list[float]:
    """p-values corrected over a family of tests (Holm 1979), in the same order; of `tests` in all, others count as 1.

    The k-th smallest of m is multiplied by m − k + 1, capped at 1, and never less than the one before it.
    """
    values = np.asarray(list(p), dtype=np.float64)
    if values.size and not bool(np.all((values >= 0) & (values <= 1))):
        raise LesionError(f"p-values lie within 0…1; got {[float(v) for v in values]}.")
    order = np.argsort(values, kind="stable")
    factors = np.arange(values.size, 0, -1) + max(0, tests - values.size)
    stepped = np.maximum.accumulate(np.minimum(values[order] * factors, 1.0))
    corrected = np.empty_like(values)
    corrected[order] = stepped
    return [float(value) for value in corrected]


def rank_agreement(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation of two profiles over the same layers; NaN when one is constant."""
    if len(set(first)) == 1 or len(set(second)) == 1:
        return math.nan
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)
