"""Elimination: cells of a search that are worse than the baseline, given up early with a bounded chance of error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count, takewhile

import numpy as np
from scipy.stats import hypergeom

from lesion.errors import LesionError


def looks(items: int) -> list[int]:
    """After how many of the items a search looks back: 8, 16, 32, … below their number.

    The last look is when all are answered; it is no part of the list, since nothing is left to be saved then.
    """
    return list(takewhile(lambda seen: seen < items, (8 << doubling for doubling in count())))


def no_worse(better: int, worse: int, seen: int, items: int) -> float:
    """A p-value of "on all items this edit is right at least as often as the baseline", from a part of them.

    Items come in random order, so those on which the two differ are drawn without replacement from all such items of
    the whole set. If among all D of them at least half speak for the edit, the chance that of those seen so far at
    most `better` do is at most the hypergeometric tail with exactly half. D is not known; the largest tail over all D
    that are still possible is an exact bound, 0 where the remaining items could not make good what is lost.

    Args:
        better: of the items seen, those that only the edit has right.
        worse: those that only the baseline has right.
        seen: how many items both have answered.
        items: how many there are in all.

    Raises:
        LesionError: the counts do not fit each other.
    """
    differing = better + worse
    if min(better, worse) < 0 or differing > seen or seen > items:
        raise LesionError(f"Of {seen} items seen, {items} in all, {better} better and {worse} worse cannot be.")
    if better >= worse:
        return 1.0
    total = np.arange(differing, differing + items - seen + 1)
    half = -(-total // 2)
    # P(at most `better` of `differing` draws are among the `half` that speak for the edit).
    return float(np.max(hypergeom.cdf(better, total, half, differing)))


def threshold(error: float, cells: int, number_of_looks: int) -> float:
    """The p-value at which a cell is given up, so that over all cells and looks the chance of any error is bounded.

    An error is: a cell that on all validation items is right as often as the baseline, or more often, is given up.
    Bonferroni's inequality over cells and looks, whatever their dependence.
    """
    return error / max(1, cells * number_of_looks)


def hopeless(better: Sequence[int], worse: Sequence[int], seen: int, items: int, at: float) -> list[bool]:
    """Which cells are given up at a look; `better` and `worse` per cell as in `no_worse`, `at` from `threshold`."""
    if not 0 < at < 1 or math.isnan(at):
        raise LesionError(f"A threshold lies between 0 and 1, not {at}.")
    pairs = list(zip(better, worse, strict=True))
    p_values = {pair: no_worse(*pair, seen, items) for pair in set(pairs)}
    return [p_values[pair] <= at for pair in pairs]
