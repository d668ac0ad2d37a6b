"""Matching: pairs of items of two tasks that are equally difficult."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def matched(
    first: Float[np.ndarray, " items"], second: Float[np.ndarray, " other_items"], caliper: float
) -> Int[np.ndarray, "pairs two"]:
    """As many pairs as there can be of an item of each side whose scores differ by at most `caliper`, none used twice.

    Both sides are gone through in the order of their scores, and the lowest two that fit are a pair: on a line no
    other matching has more pairs. Scores that are not finite are left out; equal scores keep the order given.

    Returned are the places of each pair in `first` and `second`, by rising score.
    """
    orders = [
        [int(place) for place in np.argsort(side, kind="stable") if np.isfinite(side[place])]
        for side in (first, second)
    ]
    pairs: list[tuple[int, int]] = []
    a = b = 0
    while a < len(orders[0]) and b < len(orders[1]):
        left, right = first[orders[0][a]], second[orders[1][b]]
        if abs(left - right) <= caliper:
            pairs.append((orders[0][a], orders[1][b]))
            a, b = a + 1, b + 1
        elif left < right:
            a += 1
        else:
            b += 1
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
