"""Differences of accuracy on the same items under several seeds, with the noise of both in the interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy.stats import t

from lesion.statistics.paired import Contrast, paired_drop

FEW = 10
"""Below so many items on which anything differs, the normal theory stands on nothing; Tango's interval counts too."""


@dataclass(frozen=True)
class Crossed(Contrast):
    """A mean difference of accuracy, first minus second, over seeds and items, in −1…1; `seeds` has one per seed."""

    seeds: tuple[float, ...]


def crossed(
    first: Bool[np.ndarray, "seeds items"], second: Bool[np.ndarray, "seeds items"], level: float = 0.95
) -> Crossed:
    """The mean difference of two arms over seeds and items, with an interval for another draw of both.

    With d the differences, seeds × items, the two-way random-effects analysis of variance has Var(mean) = (MS_seeds +
    MS_items − MS_rest) / (seeds · items). Half the interval is √(t²_seeds · MS_seeds + t²_items · max(0, MS_items −
    MS_rest)) / √(seeds · items), with Student's quantiles for the number of seeds and items. In simulations with three
    seeds it holds the truth in 94 to 97 % of the cases; a bootstrap over both clusters in 78 to 99.7 %.

    With one seed, and widened to it where fewer than `FEW` items differ at all, it is Tango's interval for paired
    proportions (the mean of its ends over seeds), which knows of items alone.

    The rows of an untuned model are the same for every seed.
    """
    d = first.astype(np.float64) - second.astype(np.float64)
    seeds, items = d.shape
    mean = float(d.mean())
    of_seeds = tuple(float(value) for value in d.mean(1))
    pairs = [paired_drop(a, b, level) for a, b in zip(first, second, strict=True)]
    tango = float(np.mean([pair.low for pair in pairs])), float(np.mean([pair.high for pair in pairs]))
    if seeds == 1 or items == 1:
        return Crossed(mean, *tango, of_seeds)
    half = _half_width(d, level)
    low, high = max(-1.0, mean - half), min(1.0, mean + half)
    if np.count_nonzero(d.any(0)) < FEW:
        low, high = min(low, tango[0]), max(high, tango[1])
    return Crossed(mean, low, high, of_seeds)


def _half_width(d: np.ndarray, level: float) -> float:
    """Half the interval of the mean of d, [seeds, items], from the two-way analysis of variance."""
    seeds, items = d.shape
    of_seeds, of_items, mean = d.mean(1, keepdims=True), d.mean(0, keepdims=True), d.mean()
    by_seeds = items * float(((of_seeds - mean) ** 2).sum()) / (seeds - 1)
    by_items = seeds * float(((of_items - mean) ** 2).sum()) / (items - 1)
    rest = float(((d - of_seeds - of_items + mean) ** 2).sum()) / ((seeds - 1) * (items - 1))
    of_level = (1.0 - level) / 2.0
    square = float(t.isf(of_level, seeds - 1)) ** 2 * by_seeds
    square += float(t.isf(of_level, items - 1)) ** 2 * max(0.0, by_items - rest)
    return math.sqrt(square / (seeds * items))
