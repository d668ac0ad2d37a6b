"""The half dose: the factor of a place at which half of the unedited accuracy above chance is left; items are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

DRAWS = 2000


@dataclass(frozen=True)
class HalfDose:
    """A half dose with its interval; a None is a factor below the lowest evaluated: there, half is not reached.

    Attributes:
        low, high: percentiles over draws of items (Efron and Tibshirani 1993, chapter 13). With `low` None the interval
            has no lower end, with both None it says only that the half dose is below the factors evaluated.
        reached: the share of draws that reach it.
    """

    value: float | None
    low: float | None
    high: float | None
    reached: float
    lowest: float


def half_dose(
    baseline: Float[np.ndarray, " draws"],
    accuracy: Float[np.ndarray, "draws factors"],
    factors: Sequence[float],
    chance: float = 0.0,
) -> Float[np.ndarray, " draws"]:
    """The factor below 1 at which half of what `baseline` has above chance is left; −∞ where at none.

    By straight lines between factors. Coming down from 1, where all of it is left, the first crossing counts.

    `baseline` is the accuracy at factor 1; `factors` are ascending, all below 1.
    """
    half = (baseline + chance) / 2
    crossing = np.full(baseline.shape, -np.inf)
    before, left = 1.0, baseline
    for factor, now in zip(reversed(factors), accuracy.T[::-1], strict=True):
        crossed = np.isneginf(crossing) & (now <= half)
        fall = np.where(left > now, left - now, 1.0)
        at = before + np.where(left > now, (left - half) / fall, 0.0) * (factor - before)
        crossing = np.where(crossed, at, crossing)
        before, left = factor, now
    return crossing


def half_dose_interval(
    baseline: Bool[np.ndarray, " items"],
    edited: Bool[np.ndarray, "factors items"],
    factors: Sequence[float],
    level: float,
    seed: int,
    draws: int = DRAWS,
    chance: float = 0.0,
) -> HalfDose:
    """The half dose of one place, and its interval from items drawn with replacement, the same for all factors.

    `factors` are ascending, all below 1.
    """
    items = baseline.size
    weights = np.random.default_rng(seed).multinomial(items, np.full(items, 1 / items), draws)
    right = weights @ np.vstack([baseline, edited]).T.astype(np.float64) / items
    drawn = np.sort(half_dose(right[:, 0], right[:, 1:], factors, chance))
    tail = (1 - level) / 2
    low, high = (drawn[round(share * (draws - 1))] for share in (tail, 1 - tail))
    value = half_dose(np.array([baseline.mean()]), edited.mean(axis=1)[None], factors, chance)[0]
    ends = [None if np.isneginf(each) else float(each) for each in (value, low, high)]
    return HalfDose(ends[0], ends[1], ends[2], float(np.isfinite(drawn).mean()), factors[0])
