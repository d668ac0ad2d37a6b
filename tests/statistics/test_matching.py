"""Matching finds as many pairs as any matching could, each within the caliper and no item twice."""

from itertools import permutations

import numpy as np
import pytest

from lesion.statistics.matching import matched


def most_pairs(first, second, caliper) -> int:
    """By trying every order of the longer side."""
    short, long = sorted((list(first), list(second)), key=len)
    return max(
        sum(abs(a - b) <= caliper for a, b in zip(short, order, strict=False))
        for order in permutations(long, len(short))
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_other_matching_has_more_pairs(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=rng.integers(1, 6)), rng.normal(0.5, 1, size=rng.integers(1, 6))
    caliper = float(rng.uniform(0, 0.8))
    pairs = matched(first, second, caliper)
    assert len(pairs) == most_pairs(first, second, caliper)
    assert (abs(first[pairs[:, 0]] - second[pairs[:, 1]]) <= caliper).all()
    assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)


def test_what_is_not_finite_has_no_partner_and_no_overlap_is_no_pair():
    assert matched(np.array([np.nan, -np.inf, 1.0]), np.array([1.0, np.nan]), 0.0).tolist() == [[2, 0]]
    assert matched(np.array([0.0]), np.array([5.0]), 1.0).shape == (0, 2)
    assert matched(np.array([]), np.array([5.0]), 1.0).shape == (0, 2)
