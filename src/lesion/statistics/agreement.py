"""Agreement of two profiles of layer importance: rank correlation, noise ceiling, permutations, overlap of sets.

A profile is the drop of accuracy per layer on a few hundred items. Noise lowers its rank correlation: two measurements
of one profile with reliabilities r₁ and r₂ are expected to correlate by √(r₁·r₂), the *ceiling* (Spearman 1904). The
reliability is the mean rank correlation on two random halves of the items, taken to all items by Spearman and Brown's
formula, 2r / (1 + r). Shared noise makes a child look like its base, so the *corrected* correlation compares the first
model on one half of the items with the second on the other, over what the halves of each reach between themselves.

Its interval comes from a bootstrap of the items, the same for both models. That adds the noise a second time (a
reliability r becomes r / (2 − r)), so the percentiles are taken around their median, widened by the inverse of
√(r₁/(2−r₁) · r₂/(2−r₂)), and put around the corrected value. In simulations of 8 layers and 200 items it held the true
value in 90 to 100 of 100 cases; it lay too high where layers of nearly equal drop stand in opposite order. As an
interval of the true correlation it may lie above the measured one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int, UInt
from scipy.stats import hypergeom, rankdata

from lesion.errors import LesionError
from lesion.statistics.paired import ALPHA, Contrast, rank_agreement

LEAST = 0.5
"""The least ceiling at which an interval is told: below, a division by it would make anything of anything."""
DRAWS = 2000
PARTS = 10
SPLITS = 200
PERMUTATIONS = 10_000
EXACT = 8
"""The most layers of which all orders are tried; beyond, `PERMUTATIONS` are drawn."""


@dataclass(frozen=True, eq=False)
class Profile:
    """Drops per layer of one model on one task, with their bootstrap and split halves.

    Attributes:
        baseline: accuracy of the unedited model, 0…1.
        drops: baseline minus edited accuracy.
        drawn, drawn_baseline: the same under resampled items.
        halves: drops on the two halves of the items, over random splits.
    """

    layers: tuple[int, ...]
    baseline: float
    drops: Float[np.ndarray, " layers"]
    drawn: Float[np.ndarray, "draws layers"]
    drawn_baseline: Float[np.ndarray, " draws"]
    halves: Float[np.ndarray, "2 splits layers"]

    @cached_property
    def ranks(self) -> Float[np.ndarray, " layers"]:
        """Of the drops, ties at the mean; the largest drop has the largest rank."""
        return np.asarray(rankdata(self.drops))

    @cached_property
    def reliability(self) -> float:
        """Expected rank correlation of two such measurements (Spearman–Brown), 0…1; NaN for a constant profile."""
        if np.ptp(self.drops) == 0:
            return math.nan
        r = max(0.0, _mean_correlation(*rankdata(self.halves, axis=2)))
        return 2 * r / (1 + r)

    def at(self, layers: Sequence[int]) -> Profile:
        """The profile of some of its layers, in their order, with their own reliability."""
        if tuple(layers) == self.layers:
            return self
        places = [self.layers.index(layer) for layer in layers]
        return Profile(
            tuple(layers),
            self.baseline,
            self.drops[places],
            self.drawn[:, places],
            self.drawn_baseline,
            self.halves[:, :, places],
        )


@dataclass(frozen=True)
class Agreement:
    """How far two profiles over the same layers agree; NaN where one is constant.

    The interval is NaN too where the ceiling is below `LEAST`, `p_least` above `ALPHA`, or it has no width.

    Attributes:
        rho: Spearman's rank correlation of the measured drops.
        corrected, low, high: estimate for the true profiles, with its interval; −1…1.
        p: one-sided permutation p of unrelated orders; small where they agree.
        p_least: p of the best agreement that the ties allow, 1/8 where one layer of eight costs everything.
        ceiling: expected rho if both true profiles were the same.
        same_top: whether the layer with the largest drop is the same (any of those tied).
        top_share: share of the bootstrap draws in which it is.
        top_two: how many of the two layers with the largest drops are the same; ties count for either.
    """

    rho: float
    corrected: float
    low: float
    high: float
    p: float
    p_least: float
    ceiling: float
    same_top: bool
    top_share: float
    top_two: int


def profile(right: Bool[np.ndarray, "edits items"], layers: Sequence[int], seed: int) -> Profile:
    """The profile of a model from rows of right answers: without an edit, then under the edit of each of the layers.

    Profiles over the same items under the same seed are resampled together.
    """
    items = right.shape[1]
    lost = right[0].astype(np.float64) - right[1:].astype(np.float64)
    # Counts of items are whole numbers, so ties are exact; they are divided last.
    drops = lost.sum(axis=1) / items
    both = np.concatenate([lost, right[:1].astype(np.float64)]).T
    drawn = np.concatenate([weights.astype(np.float64) @ both for weights in _weights(items, seed)]) / items
    first = _halves(items, seed)
    second = 1 - first if items > 1 else first  # an item alone is both halves
    halves = np.stack([half @ lost.T / np.maximum(half.sum(axis=1, keepdims=True), 1) for half in (first, second)])
    return Profile(tuple(layers), float(right[0].mean()), drops, drawn[:, :-1], drawn[:, -1], halves)


def agreement(first: Profile, second: Profile, level: float = 0.95, seed: int = 0) -> Agreement:
    """Rank correlation of two profiles over the same layers, with interval, permutation p (drawn by the seed) and
    ceiling.
    """
    if first.layers != second.layers or len(first.layers) < 2:
        raise LesionError(
            f"Profiles are compared over the same layers, at least two; got {first.layers} and {second.layers}."
        )
    rho = float(correlations(first.ranks, second.ranks))
    ceiling = _ceiling(first.reliability, second.reliability)
    corrected = _corrected(first, second) if not math.isnan(rho) else math.nan
    p_least = permutation_p(np.sort(first.ranks), np.sort(second.ranks), seed)
    measurable = ceiling >= LEAST and p_least <= ALPHA
    low, high = _interval(first, second, level, corrected) if measurable else (math.nan, math.nan)
    tops = _tops(first.drops) & _tops(second.drops)
    drawn_tops = _tops(first.drawn) & _tops(second.drawn)
    return Agreement(
        rho=rho,
        corrected=corrected,
        low=low,
        high=high,
        p=permutation_p(first.ranks, second.ranks, seed),
        p_least=p_least,
        ceiling=ceiling,
        same_top=bool(tops.any()) and not math.isnan(rho),
        top_share=float(drawn_tops.any(axis=1).mean()),
        top_two=min(2, int(np.count_nonzero(_tops(first.drops, 2) & _tops(second.drops, 2)))),
    )


def rank_correlation(
    first: Float[np.ndarray, " places"],
    second: Float[np.ndarray, " places"],
    drawn_first: Float[np.ndarray, "draws places"],
    drawn_second: Float[np.ndarray, "draws places"],
    level: float = 0.95,
) -> Contrast:
    """Spearman's ρ of two measures of the same places, as of a screen and the drops that it is to foretell.

    The interval lies between percentiles of ρ over draws of the items behind the two. It is NaN where its ends are
    equal: so few places have no other ranks, which does not make ρ certain. All is NaN for fewer than two places, or
    where one of the two is constant, in itself or in every draw.
    """
    rho = rank_agreement(first.tolist(), second.tolist()) if len(first) > 1 else math.nan
    drawn = correlations(rankdata(drawn_first, axis=1), rankdata(drawn_second, axis=1))
    drawn = drawn[np.isfinite(drawn)]
    if not math.isfinite(rho) or not drawn.size:
        return Contrast(math.nan, math.nan, math.nan)
    low, high = np.percentile(drawn, [50 * (1 - level), 50 * (1 + level)])
    return Contrast(rho, float(low), float(high)) if low < high else Contrast(rho, math.nan, math.nan)


def permutation_p(first: Float[np.ndarray, " layers"], second: Float[np.ndarray, " layers"], seed: int = 0) -> float:
    """One-sided p: how often a random order of the second ranks agrees with the first at least as well.

    Exact over all orders up to `EXACT` layers; beyond, from `PERMUTATIONS` draws, the observed order counted in
    (Phipson and Smyth 2010). NaN where one of the two is constant.
    """
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    centred = first - first.mean()
    # Ranks with ties are halves: sums of their products are exact, up to the centring.
    reached = second[_orders(len(second), seed)] @ centred >= second @ centred - 1e-9
    hits = int(np.count_nonzero(reached))
    return hits / len(reached) if len(second) <= EXACT else (1 + hits) / (1 + len(reached))


@dataclass(frozen=True)
class Overlap:
    """Layers in two sets (`shared`), against random sets of these sizes; NaN where a set is empty.

    Attributes:
        expected: mean number shared by chance.
        p: chance of at least as many (hypergeometric).
        p_least: p of the largest possible overlap, the smallest there can be: 1/56 for five layers of eight.
    """

    shared: tuple[int, ...]
    expected: float
    p: float
    p_least: float


def overlap(layers: int, first: Collection[int], second: Collection[int]) -> Overlap:
    """The layers that two sets share of `layers` possible ones, against chance."""
    shared = tuple(sorted(set(first) & set(second)))
    if not first or not second:
        return Overlap(shared, 0.0, math.nan, math.nan)
    sizes = len(set(first)), len(set(second))
    p, p_least = (min(1.0, float(hypergeom.sf(count - 1, layers, *sizes))) for count in (len(shared), min(sizes)))
    return Overlap(shared, sizes[0] * sizes[1] / layers, p, p_least)


def joint_overlap(layers: int, base: Collection[int], others: Sequence[Collection[int]]) -> Overlap:
    """The overlaps of a base's set with several others, summed: what if the base's set lay anywhere else?

    The others stay as they are and the base's set is drawn at random. So agreement among the others alone is no
    evidence: with one critical layer of eight, three children that share it have p = 1/8, as one has. Empty others do
    not count.

    Returns:
        The layers shared by all, the expected sum of the overlaps, the exact p of so large a sum, and that of the
        largest.
    """
    sets = [set(other) for other in others if other]
    if not base or not sets:
        return Overlap((), 0.0, math.nan, math.nan)
    size, weights = len(set(base)), [sum(layer in other for other in sets) for layer in range(layers)]
    # ways[k][s]: how many sets of k of the layers looked at so far have the sum s; whole numbers, so exact.
    ways = [[1] + [0] * sum(weights), *([0] * (1 + sum(weights)) for _ in range(size))]
    for weight in weights:
        for k in range(size, 0, -1):
            for sum_ in range(sum(weights), weight - 1, -1):
                ways[k][sum_] += ways[k - 1][sum_ - weight]
    total = sum(len(set(base) & other) for other in sets)
    shared = tuple(sorted(set(base).intersection(*others)))
    expected = sum(size * len(other) / layers for other in sets)
    largest = sum(sorted(weights)[-size:])
    p, p_least = (sum(ways[size][reached:]) / math.comb(layers, size) for reached in (total, largest))
    return Overlap(shared, expected, p, p_least)


def _corrected(first: Profile, second: Profile) -> float:
    """Rank correlation of the true profiles: that of disjoint halves over what the halves of each reach."""
    reached = _attenuation(first, second)
    return min(1.0, max(-1.0, _crossed(first, second) / reached)) if reached > 0 else math.nan


def _interval(first: Profile, second: Profile, level: float, corrected: float) -> tuple[float, float]:
    """Percentiles of the bootstrap, widened as they are attenuated, around the corrected value; NaN without width."""
    drawn = correlations(rankdata(first.drawn, axis=1), rankdata(second.drawn, axis=1))
    drawn = drawn[~np.isnan(drawn)]
    if math.isnan(corrected) or 2 * drawn.size < len(first.drawn):
        return math.nan, math.nan
    low, middle, high = np.quantile(drawn, [(1 - level) / 2, 0.5, (1 + level) / 2])
    ends = np.clip(corrected + (np.array([low, high]) - middle) / _attenuation(first, second), -1.0, 1.0)
    return (float(ends[0]), float(ends[1])) if ends[1] - ends[0] > 1e-9 else (math.nan, math.nan)


def _ceiling(first: float, second: float) -> float:
    return math.sqrt(first * second) if first * second >= 0 else math.nan  # NaN is not >= 0


def _attenuation(first: Profile, second: Profile) -> float:
    """√(r₁/(2−r₁) · r₂/(2−r₂)): what the noise of halves, or of a bootstrap, leaves of a correlation."""
    return _ceiling(*(each.reliability / (2 - each.reliability) for each in (first, second)))


def _crossed(first: Profile, second: Profile) -> float:
    """Mean rank correlation of the first on one half of the items with the second on the other."""
    return _mean_correlation(rankdata(first.halves, axis=2), rankdata(second.halves, axis=2)[::-1])


def _mean_correlation(first: Float[np.ndarray, "*draws layers"], second: Float[np.ndarray, "*draws layers"]) -> float:
    """Mean correlation along the last axis; 0 where one side is constant."""
    of_draws = correlations(first, second)
    return float(np.where(np.isnan(of_draws), 0.0, of_draws).mean())


def correlations(
    first: Float[np.ndarray, "*draws layers"], second: Float[np.ndarray, "*draws layers"]
) -> Float[np.ndarray, "*draws"]:
    """Pearson's correlation along the last axis; NaN where one side is constant."""
    a = first - first.mean(axis=-1, keepdims=True)
    b = second - second.mean(axis=-1, keepdims=True)
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        along = np.where(scale > 0, (a * b).sum(axis=-1) / scale, np.nan)
    return np.asarray(np.clip(along, -1.0, 1.0))


def _tops(drops: Float[np.ndarray, "*draws layers"], count: int = 1) -> Bool[np.ndarray, "*draws layers"]:
    """Which layers have the largest drops; more than `count` where some share them."""
    least = np.sort(drops, axis=-1)[..., [-count]]
    return np.asarray(drops >= least - 1e-12)


@lru_cache(maxsize=4)
def _weights(items: int, seed: int) -> tuple[UInt[np.ndarray, "some_draws items"], ...]:
    """How often each item is drawn, with replacement; in parts, since tens of thousands of items may be asked."""
    generator = np.random.default_rng([seed, items, 1])
    chances = np.full(items, 1 / items)
    return tuple(generator.multinomial(items, chances, size=DRAWS // PARTS).astype(np.uint16) for _ in range(PARTS))


@lru_cache(maxsize=4)
def _halves(items: int, seed: int) -> Float[np.ndarray, "splits items"]:
    """1 for the items of one half, 0 for those of the other."""
    generator = np.random.default_rng([seed, items, 2])
    places = generator.random((SPLITS, items)).argsort(axis=1)
    return (places < items // 2).astype(np.float64)


@lru_cache(maxsize=16)
def _orders(layers: int, seed: int) -> Int[np.ndarray, "orders layers"]:
    """All orders of few layers, a seeded draw of those of many."""
    if layers <= EXACT:
        return np.array(list(itertools.permutations(range(layers))), dtype=np.int64)
    generator = np.random.default_rng([seed, layers, 3])
    return generator.permuted(np.tile(np.arange(layers), (PERMUTATIONS, 1)), axis=1)
