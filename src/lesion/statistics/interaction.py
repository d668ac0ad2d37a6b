"""What several places cost together against the sum of what each costs alone, and Shapley values; float64.

A value is what an item has under an edit: whether it is right (bool), or the log-probability of its gold answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import t as student

from lesion.statistics.contrasts import mean, mean_p
from lesion.statistics.paired import Contrast, paired_drop, sign_flip_exact

Values = Bool[np.ndarray, " items"] | Float[np.ndarray, " items"]
Several = Bool[np.ndarray, "places items"] | Float[np.ndarray, "places items"]


def drop(baseline: Values, edited: Values, level: float = 0.95) -> Contrast:
    """What an edit takes: `paired_drop` of right answers, Student's interval of log-probabilities (nats)."""
    if baseline.dtype == bool:
        return paired_drop(baseline, edited, level)
    return mean(baseline - edited, level)


def beyond_sum(baseline: Values, alone: Several, together: Values, level: float = 0.95) -> Contrast:
    """The drop with all places removed minus the sum of the drops with each removed alone, on the same items.

    Of two places and right answers this is the contrast a₁ + a₂ − b − a₁₂ of four paired proportions. Its limits
    combine the score intervals of the drops (`paired_drop`) under their correlations over items (MOVER for a linear
    combination of proportions: Zou, Huang and Zhang 2009; Newcombe 1998 for two), so that it has width also where all
    items agree. The interval of log-probabilities is Student's.
    """
    contrasts = _contrasts(baseline, alone, together)
    if baseline.dtype != bool:
        return mean(contrasts, level)
    edited = np.vstack([together, alone])
    drops = [paired_drop(baseline, values, level) for values in edited]
    value = float(contrasts.mean())
    below = [drops[0].value - drops[0].low, *(each.value - each.high for each in drops[1:])]
    above = [drops[0].high - drops[0].value, *(each.low - each.value for each in drops[1:])]
    correlations = _correlations(baseline.astype(float) - edited)
    low, high = (math.sqrt(max(0.0, float(np.array(r) @ correlations @ np.array(r)))) for r in (below, above))
    places = len(alone)
    return Contrast(value, max(-1.0 - places, value - low), min(1.0 + places, value + high))


def beyond_sum_p(baseline: Values, alone: Several, together: Values) -> float:
    """Two-sided p of "together they cost the sum of what each costs alone"; arguments as of `beyond_sum`.

    Of right answers the exact test of the signs of the items' contrasts (`sign_flip_exact`): exact where contrasts lie
    symmetrically around 0 under the hypothesis, as those of −1 and 1 do (it is McNemar's test then), and else for many
    items. Of log-probabilities Student's.
    """
    contrasts = _contrasts(baseline, alone, together)
    return sign_flip_exact(contrasts.astype(int)) if baseline.dtype == bool else mean_p(contrasts)


def _contrasts(baseline: Values, alone: Several, together: Values) -> Float[np.ndarray, " items"]:
    before = baseline.astype(float)
    contrasts: Float[np.ndarray, " items"] = (before - together) - (before - alone).sum(axis=0)
    return contrasts


def _correlations(drops: Float[np.ndarray, "edits items"]) -> Float[np.ndarray, "edits edits"]:
    """Correlations over items; 0 with an edit whose drop is the same on every item."""
    correlations = np.eye(len(drops))
    varies = np.flatnonzero(np.ptp(drops, axis=1) > 0)
    if len(varies) > 1:
        correlations[np.ix_(varies, varies)] = np.corrcoef(drops[varies])
    return correlations


def shapley(
    marginals: Float[np.ndarray, "orders items"], level: float = 0.95, *, every: bool = False
) -> tuple[Contrast, Contrast]:
    """The Shapley value of a place: its mean marginal contribution over orders (Castro, Gómez, Tejada 2009, section 3).

    `marginals` are by order and item what removing the place takes in addition to the places before it; `every`: the
    orders are all that there are, so that only the items are a sample. Returned are the value with an interval for
    other items and other orders, and with one for other orders on the same items alone. The first adds the variances of
    the two means, over orders and over items (orders and items are crossed; the sum counts their interaction twice and
    so errs on the wide side), with Student's quantile of the fewer degrees of freedom. Limits are infinite where one
    order or one item cannot show a spread.
    """
    value = float(marginals.mean())
    of_orders, of_items = (_variance(marginals.mean(axis=axis)) for axis in (1, 0))
    orders, items = marginals.shape
    if every:
        return _around(value, of_items, items - 1, level), Contrast(value, value, value)
    both = _around(value, of_orders + of_items, min(orders, items) - 1, level)
    return both, _around(value, of_orders, orders - 1, level)


def _variance(means: Float[np.ndarray, " n"]) -> float:
    """The variance of the mean of values."""
    return float(means.var(ddof=1)) / len(means) if len(means) > 1 else math.inf


def _around(value: float, variance: float, freedom: int, level: float) -> Contrast:
    if freedom < 1 or not math.isfinite(variance):
        return Contrast(value, -math.inf, math.inf)
    reach = float(student.isf((1 - level) / 2, freedom)) * math.sqrt(variance)
    return Contrast(value, value - reach, value + reach)


def orders_of(places: Sequence[int], count: int, seed: int) -> tuple[list[tuple[int, ...]], bool]:
    """`count` orders of places drawn with a seed, and whether they are all that there are: then each is there once."""
    if math.factorial(min(len(places), 12)) <= count:
        return list(permutations(places)), True
    generator = np.random.default_rng(seed)
    return [tuple(int(place) for place in generator.permutation(places)) for _ in range(count)], False


def other_orders(order: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """`count` different orders of the same places, drawn with a seed, none of which is this one; all, if fewer are."""
    count = min(count, math.factorial(min(len(order), 12)) - 1)
    generator = np.random.default_rng(seed)
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < count:
        other = tuple(int(place) for place in generator.permutation(sorted(order)))
        if other != tuple(order):
            drawn[other] = None
    return list(drawn)
