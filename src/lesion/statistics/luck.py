"""Luck: what the best of so many candidates gains where none differs from what it is compared with.

An item that a candidate gains could as well have been one that it loses. So the signs of the gains are drawn anew, item
by item; all candidates have the sign of the item, so that they go together as they did. The choice is repeated on every
draw. It is the single-step maxT of Westfall and Young (1993) with signs in the place of permutations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from lesion.statistics.paired import FLIPS


def best_by_luck(
    gains: Sequence[Float[np.ndarray, "candidates items"]], seed: int, draws: int = FLIPS
) -> Float[np.ndarray, " draws"]:
    """The gain of the best candidate on every draw of signs: the mean over tasks of their means over items.

    Args:
        gains: of every task, candidate minus what it is compared with; the candidates are the same in all.
        seed: of the signs.
        draws: how many.
    """
    generator = np.random.default_rng([seed, *(each.shape[1] for each in gains)])
    means = np.zeros((draws, len(gains[0])))
    for each in gains:
        signs = generator.integers(2, size=(draws, each.shape[1])) * 2.0 - 1.0
        means += signs @ each.T / (each.shape[1] * len(gains))
    return means.max(axis=1)


def p_of_best(best: float, by_luck: Float[np.ndarray, " draws"]) -> float:
    """p of "no candidate differs": draws whose best is at least as good, the observed one counted in."""
    return float((1 + np.count_nonzero(by_luck >= best - 1e-9)) / (1 + len(by_luck)))
