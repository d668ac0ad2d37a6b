"""Differences over seeds and items: what they agree with, and how often their intervals hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lesion.statistics.over_seeds import crossed
from lesion.statistics.paired import paired_drop


def drawn(rng, seeds, items, share=0.5):
    return rng.random((seeds, items)) < share


def test_one_seed_has_tangos_interval_for_paired_proportions():
    rng = np.random.default_rng(0)
    first, second = drawn(rng, 1, 80, 0.7), drawn(rng, 1, 80)
    found = crossed(first, second)
    pair = paired_drop(first[0], second[0])
    assert (found.value, found.low, found.high) == pytest.approx((pair.value, pair.low, pair.high))
    assert found.seeds == (pytest.approx(pair.value),)


def test_seeds_that_agree_on_every_item_leave_the_doubt_about_items_alone():
    rng = np.random.default_rng(1)
    first, second = drawn(rng, 1, 300, 0.7), drawn(rng, 1, 300)
    found = crossed(np.repeat(first, 4, 0), np.repeat(second, 4, 0))
    d = first[0].astype(float) - second[0]
    half = stats.t.isf(0.025, 299) * d.std(ddof=1) / math.sqrt(300)
    assert (found.low, found.high) == pytest.approx((d.mean() - half, d.mean() + half))


def test_items_on_which_seeds_alone_decide_leave_students_interval_over_seeds():
    # Under each seed all items go one way: the seed is all there is to know, and there are three of them.
    first = np.array([[True], [True], [False]]).repeat(50, 1)
    found = crossed(first, np.zeros((3, 50), dtype=bool))
    means = np.array([1.0, 1.0, 0.0])
    half = stats.t.isf(0.025, 2) * means.std(ddof=1) / math.sqrt(3)
    assert found.value == pytest.approx(2 / 3)
    assert found.low == pytest.approx(max(-1, 2 / 3 - half))
    assert found.high == 1.0
    assert found.seeds == (1.0, 1.0, 0.0)


def test_the_variance_is_that_of_the_two_way_analysis_in_plain_loops():
    rng = np.random.default_rng(3)
    seeds, items = 4, 60
    lucky, hard = rng.normal(0, 0.1, seeds), rng.normal(0, 0.3, items)
    first = rng.random((seeds, items)) < np.clip(0.6 + lucky[:, None] + hard, 0, 1)
    second = drawn(rng, seeds, items)
    found = crossed(first, second)
    d = [[int(a) - int(b) for a, b in zip(x, y, strict=True)] for x, y in zip(first, second, strict=True)]
    mean = sum(map(sum, d)) / (seeds * items)
    of_seed = [sum(row) / items for row in d]
    of_item = [sum(d[s][i] for s in range(seeds)) / seeds for i in range(items)]
    ms_seeds = items * sum((m - mean) ** 2 for m in of_seed) / (seeds - 1)
    ms_items = seeds * sum((m - mean) ** 2 for m in of_item) / (items - 1)
    rest = 0.0
    for s in range(seeds):
        for i in range(items):
            rest += (d[s][i] - of_seed[s] - of_item[i] + mean) ** 2
    rest /= (seeds - 1) * (items - 1)
    square = stats.t.isf(0.025, seeds - 1) ** 2 * ms_seeds
    square += stats.t.isf(0.025, items - 1) ** 2 * max(0, ms_items - rest)
    half = math.sqrt(square / (seeds * items))
    assert (found.value, found.low, found.high) == pytest.approx((mean, mean - half, mean + half))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1))
def test_the_other_way_round_it_is_the_same_with_the_other_sign_and_the_mean_lies_inside(seeds, items, seed, a, b):
    rng = np.random.default_rng(seed)
    first, second = drawn(rng, seeds, items, a), drawn(rng, seeds, items, b)
    found, mirrored = crossed(first, second), crossed(second, first)
    assert (found.value, found.low, found.high) == pytest.approx((-mirrored.value, -mirrored.high, -mirrored.low))
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.value == pytest.approx(float(np.mean(found.seeds)))


def test_where_nothing_differs_the_interval_still_has_width():
    right = np.ones((3, 100), dtype=bool)
    found = crossed(right, right)
    pair = paired_drop(right[0], right[0])
    assert found.value == 0
    assert (found.low, found.high) == pytest.approx((pair.low, pair.high))
    assert found.low < 0 < found.high


@pytest.mark.slow
@pytest.mark.parametrize(("of_seeds", "of_items"), [(0.0, 0.2), (0.05, 0.1), (0.1, 0.2)])
def test_intervals_over_three_seeds_hold_the_truth_about_as_often_as_they_say(of_seeds, of_items):
    # Where seeds differ much, a bootstrap over both clusters is simulated beside it: it holds the truth less often.
    rng = np.random.default_rng(7)
    rounds, seeds, items, held, boot = 400, 3, 150, 0, 0
    for _ in range(rounds):
        lucky, easy = rng.normal(0, of_seeds, (seeds, 1)), rng.normal(0, of_items, (1, items))
        first = rng.random((seeds, items)) < 0.6 + lucky + easy
        second = rng.random((seeds, items)) < 0.5 + easy
        found = crossed(first, second)
        held += found.low <= 0.1 <= found.high
        if of_seeds >= 0.1:
            d = first.astype(float) - second
            means = [d[rng.integers(0, seeds, seeds)][:, rng.integers(0, items, items)].mean() for _ in range(100)]
            low, high = np.quantile(means, [0.025, 0.975])
            boot += low <= 0.1 <= high
    assert held / rounds >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / rounds)
    if of_seeds >= 0.1:
        assert boot < held
