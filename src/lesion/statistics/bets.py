"""Bets on a drop: the capital of a gambler who doubts a hypothesis, an e-value however often one looks.

A pair's difference is D = baseline − edited, each 1 if right and 0 if wrong, so D is −1, 0 or 1. Against "the mean of D
is at most m" a gambler stakes the share g of the capital on 1 + D at its fair price 1 + m, and keeps the rest: the
capital is multiplied by 1 − g + g (1 + D) / (1 + m). If the hypothesis holds this is on average at most 1, whatever
came before. So the capital, which begins at 1, is an e-value at any stopping time, and the chance that it ever gets to
1/a is at most a (Ville's inequality). This is the capital of Waudby-Smith and Ramdas (2024), "Estimating means of
bounded random variables by betting", with λ = g / (1 + m). "At least m" is the same with all signs turned round.

The best g depends on what is true: near 1 where few pairs differ, small where many do. So the capital is spread over
`SHARES` at the start and every part is played on its own; together they have what the best part has, but for a factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

# Shares of the capital that are staked, as many of them below s as s² says: the density 2s. Small ones would only pay
# after more items than studies have; with all at the top, a few pairs that differ would ruin the gambler.
SHARES = np.sqrt((np.arange(8) + 0.5) / 8)
# How finely a limit of the mean of an infinite population is found, in steps of bisection of −1…1.
_STEPS = 20


def log_capital(
    differences: Int[np.ndarray, "*batch items"], mean: float, bets: Bool[np.ndarray, "*batch items"] | None = None
) -> Float[np.ndarray, "*batch items"]:
    """The log capital after each item against "items are drawn independently, with a mean of D of at most `mean`".

    Args:
        differences: [..., items] −1, 0 or 1, in the order in which the items were drawn.
        mean: of the hypothesis, above −1 and at most 1.
        bets: [..., items] whether the gambler bets on each item, as settled before it came; by default on all.
    """
    on = np.True_ if bets is None else bets
    up, down, same = (np.cumsum(what & on, axis=-1) for what in (differences > 0, differences < 0, differences == 0))
    return log_capital_of_counts(up, down, same, mean)


def log_capital_of_counts(
    up: Int[np.ndarray, "*batch"], down: Int[np.ndarray, "*batch"], same: Int[np.ndarray, "*batch"], mean: float
) -> Float[np.ndarray, "*batch"]:
    """The same from counts alone: how many D are 1, −1 and 0. The order does not matter."""
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
    """The log capital after each item against "over the whole population, the sum of D is at most `total`".

    Items are drawn without replacement, so the hypothesis tells from those seen what those that are left can have on
    average: (total − sum so far) / (items left), and the price moves with it. Where even −1 from all that are left
    would exceed the total, the hypothesis is refuted and the capital infinite.

    Args:
        differences: [..., items] −1, 0 or 1, in a random order.
        total: of the hypothesis, −population…population.
        population: how many items there are in all, at least as many as have been seen.
        bets: [..., items] whether the gambler bets on each item, as settled before it came; by default on all. What
            comes of the others still moves the price.
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
    """The log of the mean of what the parts have, from the log of each."""
    largest = parts.max(axis=0)
    together: NDArray[np.float64] = np.log(np.exp(parts - largest).mean(axis=0)) + largest
    return together


def lower_limit(differences: Int[np.ndarray, " items"], error: float, population: int | None = None) -> float:
    """The lower end of a confidence sequence for the mean of D: smaller means were refuted by one of the items seen.

    A mean is refuted when the capital against "at most this" reached 1/error after any item; the chance that the true
    one ever is, is at most `error`. The capital falls as the mean rises, so the limit is found by bisection.

    Args:
        differences: [items] −1, 0 or 1, in the order in which the items were drawn.
        error: the chance of error, between 0 and 1.
        population: how many items there are in all, for their mean; None for the mean of what they are drawn from.

    Returns:
        −1…1. Of a finite population, exactly the smallest mean it can have; else short of the limit by at most 2⁻²⁰.
    """
    bar = -math.log(error)
    if population is None:
        refuted, stands = _bisect(
            lambda step: float(np.max(log_capital(differences, step / 2**_STEPS))) >= bar, -(2**_STEPS), 2**_STEPS
        )
        return refuted / 2**_STEPS
    refuted, stands = _bisect(
        lambda total: float(np.max(log_capital_of_population(differences, total, population))) >= bar,
        -population - 1,
        population,
    )
    return stands / population


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Neighbouring whole numbers between which `holds` turns from true to false; `low` counts as true, `high` not."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high
