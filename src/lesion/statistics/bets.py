"""Bets on a drop: the capital of a gambler against a hypothesis, an e-value at any stopping time.

A pair's difference is D = baseline − edited, which is −1, 0 or 1. Against "the mean of D is at most m" a gambler stakes
the share g of the capital on 1 + D at its fair price 1 + m: the capital is multiplied by 1 − g + g (1 + D) / (1 + m),
at most 1 on average under the hypothesis, whatever came before. So the capital, which begins at 1, reaches 1/a with a
chance of at most a (Ville's inequality). This is the capital of Waudby-Smith and Ramdas (2024), "Estimating means of
bounded random variables by betting", with λ = g / (1 + m). "At least m" is the same with all signs turned round.

The best g depends on what is true: near 1 where few pairs differ, small where many do. So the capital is spread over
`SHARES` at the start and every part is played on its own.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from lesion.statistics.paired import Contrast, last

# Shares of the capital that are staked, as many of them below s as s² says: the density 2s. Small ones would only pay
# after more items than studies have; with all at the top, a few pairs that differ would ruin the gambler.
SHARES = np.sqrt((np.arange(8) + 0.5) / 8)
# How finely a limit of the mean is found, in steps of bisection of −1…1.
_STEPS = 20


def log_capital(
    differences: Int[np.ndarray, "*batch items"], mean: float, bets: Bool[np.ndarray, "*batch items"] | None = None
) -> Float[np.ndarray, "*batch items"]:
    """Log capital after each item against "items are drawn independently, with a mean of D of at most `mean`" (above
    −1).

    `bets`: whether the gambler bets on each item, settled before it came; by default on all.
    """
    on = np.True_ if bets is None else bets
    up, down, same = (np.cumsum(what & on, axis=-1) for what in (differences > 0, differences < 0, differences == 0))
    price = 1.0 + mean
    parts = [
        up * math.log(1 - share + 2 * share / price)
        + same * math.log(1 - share + share / price)
        + down * math.log(1 - share)
        for share in SHARES
    ]
    return _together(np.stack(parts))


def log_capital_of_population(
    differences: Int[np.ndarray, "*batch items"],
    total: int,
    population: int,
    bets: Bool[np.ndarray, "*batch items"] | None = None,
) -> Float[np.ndarray, "*batch items"]:
    """Log capital after each item against "over the whole population, the sum of D is at most `total`".

    Items are drawn without replacement, so the price moves with what the remaining items can have on average: (total −
    sum so far) / (items left), also on items without a bet. Where even −1 from all of them would exceed the total, the
    capital is infinite.
    """
    items = differences.shape[-1]
    after = np.cumsum(differences, axis=-1)
    left_before = population - np.arange(items)
    price = 1.0 + np.clip((total - (after - differences)) / left_before, -1.0, 1.0)
    refuted = after - (left_before - 1) > total
    # Price 0: the hypothesis says that −1 comes for certain. Nothing is to be won; anything else refutes it.
    pay = np.where(price > 0, (1.0 + differences) / np.where(price > 0, price, 1.0), 1.0)
    if bets is not None:
        pay = np.where(bets, pay, 1.0)
    parts = np.stack([np.cumsum(np.log(1 - share + share * pay), axis=-1) for share in SHARES])
    return np.where(refuted, np.inf, _together(parts))


def _together(parts: Float[np.ndarray, "shares ..."]) -> NDArray[np.float64]:
    """Log of the mean of the parts, from the log of each."""
    largest = parts.max(axis=0)
    return np.asarray(np.log(np.exp(parts - largest).mean(axis=0)) + largest)


def lower_limit(differences: Int[np.ndarray, " items"], error: float) -> float:
    """Lower end of a confidence sequence for the mean of D: smaller means were refuted by one of the items seen.

    A mean is refuted when the capital against "at most this" reached 1/error after any item; the true one ever is with
    a chance of at most `error`. The capital falls as the mean rises, so the limit is found by bisection; it is short of
    the limit by at most 2⁻²⁰.
    """
    bar, steps = -math.log(error), 2**_STEPS
    return last(lambda step: float(np.max(log_capital(differences, step / steps))) >= bar, -steps, steps) / steps


def confidence_sequence(
    baseline: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, " items"], level: float
) -> Contrast:
    """The drop, the mean of baseline − edited, with limits that hold the true one however often one looks.

    The chance that they ever err is at most `level`. They only close in, unless the mean itself drifts out of them.
    """
    differences = baseline.astype(np.int64) - edited.astype(np.int64)
    drop = float(differences.mean())
    low, high = lower_limit(differences, level / 2), -lower_limit(-differences, level / 2)
    # The mean may drift out of the limits of earlier items, and limits that err may even cross: then the interval
    # holds all of them. It becomes no less likely to hold the truth.
    return Contrast(drop, min(low, high, drop), max(low, high, drop))
