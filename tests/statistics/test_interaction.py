"""What places cost together beyond the sum, and Shapley values: against definitions written out, and in simulations."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from lesion.statistics.interaction import beyond_sum, beyond_sum_p, orders_of, shapley

ITEMS = 40


def answers(seed: int, chances=(0.9, 0.6, 0.7, 0.3), items=ITEMS) -> np.ndarray:
    """[baseline, alone 1, alone 2, together; items] whether each is right; items differ in how easy they are."""
    generator = np.random.default_rng(seed)
    ease = generator.uniform(size=items)
    return (0.5 * ease + 0.5 * generator.uniform(size=(4, items))) < np.array(chances)[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_the_contrast_of_two_places_is_that_of_four_accuracies(seed):
    b, first, second, both = rows = answers(seed)
    accuracies = rows.mean(axis=1)
    found = beyond_sum(b, rows[1:3], both)
    assert found.value == pytest.approx(accuracies[1] + accuracies[2] - accuracies[0] - accuracies[3])
    assert found.low < found.value < found.high
    swapped = beyond_sum(b, np.array([second, first]), both)
    assert (swapped.low, swapped.high) == pytest.approx((found.low, found.high))


def test_p_is_the_share_of_all_signs_whose_sum_is_as_large():
    b, first, second, both = rows = answers(5, items=12)
    contrasts = first.astype(int) + second - b - both
    signs = itertools.product((-1, 1), repeat=12)
    share = np.mean([abs(np.dot(each, contrasts)) >= abs(contrasts.sum()) for each in signs])
    assert beyond_sum_p(b, rows[1:3], both) == pytest.approx(share)


def test_the_interval_covers_the_true_interaction_about_as_often_as_it_says():
    chances = (0.9, 0.6, 0.7, 0.3)
    accuracies = answers(10**6, chances, 200_000).mean(axis=1)
    truth = accuracies[1] + accuracies[2] - accuracies[0] - accuracies[3]
    assert truth > 0.05
    hits = 0
    for seed in range(300):
        rows = answers(seed, chances)
        found = beyond_sum(rows[0], rows[1:3], rows[3], 0.9)
        hits += found.low <= truth <= found.high
    assert 0.86 <= hits / 300 <= 0.97  # three standard errors about 0.9, and a little more on the wide side


def test_it_has_width_where_all_items_agree():
    right, wrong = np.ones(30, dtype=bool), np.zeros(30, dtype=bool)
    redundant = beyond_sum(right, np.array([right, right]), wrong)
    assert redundant.value == 1.0
    assert 0 < redundant.low < 0.95
    one_path = beyond_sum(right, np.array([wrong, wrong]), wrong)
    assert one_path.value == -1.0
    assert one_path.high > -0.95


def test_log_probabilities_have_students_interval_and_test():
    values = np.random.default_rng(0).normal(size=(5, 25))
    contrasts = (values[0] - values[4]) - (3 * values[0] - values[1:4].sum(axis=0))
    by_scipy = ttest_1samp(contrasts, 0.0)
    interval = by_scipy.confidence_interval(0.95)
    found = beyond_sum(values[0], values[1:4], values[4])
    assert (found.value, found.low, found.high) == pytest.approx((contrasts.mean(), interval.low, interval.high))
    assert beyond_sum_p(values[0], values[1:4], values[4]) == pytest.approx(by_scipy.pvalue)


def game(places: int, seed: int) -> dict[frozenset[int], np.ndarray]:
    """What every set of places takes from every one of eight items."""
    generator = np.random.default_rng(seed)
    sets = [frozenset(each) for size in range(places + 1) for each in itertools.combinations(range(places), size)]
    return {each: generator.normal(size=8) * bool(each) for each in sets}


def marginals(worth: dict[frozenset[int], np.ndarray], orders, place: int) -> np.ndarray:
    rows = []
    for order in orders:
        before = frozenset(order[: order.index(place)])
        rows.append(worth[before | {place}] - worth[before])
    return np.array(rows)


def enumerated(worth: dict[frozenset[int], np.ndarray], place: int, places: int) -> float:
    """Shapley's (1953) formula over all sets without the place."""
    value = 0.0
    for each in worth:
        if place not in each:
            weight = math.factorial(len(each)) * math.factorial(places - len(each) - 1) / math.factorial(places)
            value += weight * float((worth[each | {place}] - worth[each]).mean())
    return value


def test_all_orders_of_four_places_give_shapleys_formula_and_no_doubt_about_orders():
    worth = game(4, 0)
    orders, every = orders_of(range(4), 24, seed=0)
    assert every
    assert len(set(orders)) == 24
    for place in range(4):
        value, sampling = shapley(marginals(worth, orders, place), every=True)
        assert value.value == pytest.approx(enumerated(worth, place, 4))
        assert sampling.low == sampling.high == value.value
        assert value.low < value.value < value.high


def test_values_over_drawn_orders_add_up_to_the_drop_of_all_and_their_intervals_hold_the_exact_ones():
    worth, hits = game(5, 1), 0
    for seed in range(40):
        orders, every = orders_of(range(5), 30, seed)
        assert not every
        found = [shapley(marginals(worth, orders, place))[1] for place in range(5)]
        assert sum(each.value for each in found) == pytest.approx(float(worth[frozenset(range(5))].mean()))
        exact = [enumerated(worth, place, 5) for place in range(5)]
        hits += sum(each.low <= truth <= each.high for each, truth in zip(found, exact, strict=True))
    assert hits / 200 > 0.88


def test_one_order_or_one_item_shows_no_spread():
    for shape in ((1, 8), (8, 1)):
        both, _ = shapley(np.random.default_rng(0).normal(size=shape))
        assert (both.low, both.high) == (-math.inf, math.inf)


def test_orders_are_permutations_and_repeat_with_their_seed():
    orders, every = orders_of([3, 5, 8, 13, 21], 7, seed=4)
    assert not every
    assert len(orders) == 7
    assert all(sorted(order) == [3, 5, 8, 13, 21] for order in orders)
    assert orders == orders_of([3, 5, 8, 13, 21], 7, seed=4)[0]
    assert orders != orders_of([3, 5, 8, 13, 21], 7, seed=5)[0]
