"""Agreement of profiles against scipy, enumeration and simulation: rank correlation, its noise, permutations, sets."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from lesion.errors import LesionError
from lesion.statistics import agreement as invariance_statistics
from lesion.statistics.agreement import PERMUTATIONS, Profile, agreement, joint_overlap, overlap, permutation_p, profile

STEEP = np.array([0.9, 0.35, 0.85, 0.45, 0.4, 0.8, 0.6, 0.75])


def measured(drops: np.ndarray, items: int, rng: np.random.Generator, able: float = 0.9) -> np.ndarray:
    """Answers of a model that loses on each layer about this part of what it has, with luck of its own."""
    base = rng.random(items) < able
    return np.stack([base, *(base & (rng.random(items) >= drop) for drop in drops)])


def of(drops: np.ndarray, items: int = 200, seed: int = 0) -> Profile:
    return profile(measured(drops, items, np.random.default_rng(seed)), range(len(drops)), 0)


@settings(max_examples=10, deadline=None)
@given(st.data(), st.integers(3, 10))
def test_rho_is_spearmans_also_with_ties(data, layers):
    rights = [
        np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=layers, max_size=layers)))
        for _ in range(2)
    ]
    first, second = (profile(np.concatenate([np.ones((1, 5), bool), right]), range(layers), 0) for right in rights)
    found = agreement(first, second)
    if np.ptp(first.drops) == 0 or np.ptp(second.drops) == 0:
        assert all(math.isnan(value) for value in (found.rho, found.low, found.high, found.p, found.corrected))
    else:
        assert found.rho == pytest.approx(spearmanr(first.drops, second.drops).statistic, abs=1e-12)
    assert list(first.drops) == [pytest.approx(1 - row.mean()) for row in rights[0]]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_p_of_few_layers_counts_all_orders(first, second):
    one, other = np.array(first, float), np.array(second, float)
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        assert math.isnan(permutation_p(one, other))
        return
    seen = np.corrcoef(one, other)[0, 1]
    orders = list(itertools.permutations(range(4)))
    hits = sum(np.corrcoef(one, other[list(order)])[0, 1] >= seen - 1e-9 for order in orders)
    assert permutation_p(one, other) == pytest.approx(hits / len(orders))


def test_p_of_many_layers_is_drawn_by_the_seed_near_the_exact_one_and_never_zero(monkeypatch):
    one, other = np.arange(6.0), np.array([1.0, 0, 4, 2, 5, 3])
    exact = permutation_p(one, other)
    assert permutation_p(np.arange(20.0), np.arange(20.0)) == 1 / (1 + PERMUTATIONS)
    monkeypatch.setattr(invariance_statistics, "EXACT", 5)
    invariance_statistics._orders.cache_clear()
    drawn = permutation_p(one, other, seed=3)
    invariance_statistics._orders.cache_clear()
    assert drawn == permutation_p(one, other, seed=3)
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / PERMUTATIONS))
    invariance_statistics._orders.cache_clear()


def test_one_layer_that_costs_everything_leaves_no_order_that_could_surprise():
    right = np.ones((9, 50), bool)
    right[1] = False
    found = agreement(*(profile(right, range(8), 0) for _ in range(2)))
    assert found.rho == 1.0
    assert found.p == found.p_least == pytest.approx(1 / 8)
    assert (math.isnan(found.low), math.isnan(found.high)) == (True, True)


def test_ties_that_leave_no_order_to_surprise_leave_no_interval_however_wide():
    rng = np.random.default_rng(1)
    base = rng.random(20) < 0.95
    right = [np.stack([base, base & (rng.random(20) < 0.1), *[base] * 7]) for _ in range(2)]
    found = agreement(*(profile(one, range(8), 0) for one in right))
    assert (found.rho, found.ceiling) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.p_least > 0.05
    assert (math.isnan(found.low), math.isnan(found.high)) == (True, True)


def test_an_interval_of_no_width_is_none():
    answers = np.arange(400) % 20
    right = np.stack([answers >= 0, *(answers >= 2 * layer + 1 for layer in range(8))])  # far apart: no draw swaps two
    found = agreement(*(profile(right, range(8), 0) for _ in range(2)))
    assert (found.rho, found.corrected) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.p_least < 0.001
    assert (math.isnan(found.low), math.isnan(found.high)) == (True, True)
    noisy = agreement(of(STEEP, 200, 1), of(STEEP, 200, 2))
    assert noisy.low < noisy.high


def test_a_profile_agrees_with_itself_entirely():
    found = agreement(of(STEEP), of(STEEP))
    assert (found.rho, found.corrected, found.same_top, found.top_two) == (1.0, pytest.approx(1.0, abs=0.02), True, 2)
    assert found.p == pytest.approx(1 / math.factorial(8))


def test_the_ceiling_is_what_two_measurements_of_one_profile_reach():
    drops = np.array([0.8, 0.02, 0.05, 0.1, 0.15, 0.04, 0.2, 0.12])
    found = [agreement(of(drops, 120, 2 * seed), of(drops, 120, 2 * seed + 1)) for seed in range(40)]
    reached, ceilings = ([getattr(one, name) for one in found] for name in ("rho", "ceiling"))
    assert np.mean(reached) < 0.95  # far from 1, although the true profiles are the same
    assert np.mean(ceilings) == pytest.approx(np.mean(reached), abs=0.05)


@pytest.mark.slow
def test_the_interval_holds_the_correlation_of_the_true_profiles():
    other = STEEP[[0, 2, 1, 3, 4, 5, 7, 6]]
    for second in (STEEP, other):
        true = spearmanr(STEEP, second).statistic
        found = [agreement(of(STEEP, 150, 2 * seed), of(second, 150, 2 * seed + 1)) for seed in range(100)]
        assert np.mean([one.low - 1e-9 <= true <= one.high + 1e-9 for one in found]) >= 0.9


def test_the_interval_narrows_with_the_items_and_holds_the_estimate():
    few, many = (agreement(of(STEEP, items, 1), of(STEEP, items, 2)) for items in (60, 1000))
    assert many.high - many.low < few.high - few.low
    for found in (few, many):
        assert found.low <= found.corrected <= found.high


def test_noise_that_two_models_share_is_no_agreement():
    rng = np.random.default_rng(0)
    noise = 0.05 + 0.1 * rng.random(8)  # true profiles that differ only as noise does
    shared = measured(noise, 100, rng)
    one, other = shared.copy(), shared.copy()
    one[:, :5], other[:, 5:10] = shared[0, :5], shared[0, 5:10]
    found = agreement(profile(one, range(8), 0), profile(other, range(8), 0))
    assert found.rho > 0.8  # they err on the same items
    assert found.rho > found.ceiling + 0.2  # more than two measurements of one profile can agree
    # What is left of it between disjoint items is no more than what one model's own halves agree.
    crossed = invariance_statistics._crossed(*(profile(right, range(8), 0) for right in (one, other)))
    assert crossed < found.rho - 0.3


def test_noise_alone_tells_no_interval():
    flat = np.full(8, 0.02)
    found = agreement(of(flat, 60, 1), of(flat, 60, 2))
    assert not found.ceiling >= 0.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_profiles_of_the_same_items_are_resampled_together():
    right = measured(STEEP, 100, np.random.default_rng(0))
    first, second = (profile(right, range(8), 5) for _ in range(2))
    assert np.array_equal(first.drawn, second.drawn)
    assert not np.array_equal(first.drawn, profile(right, range(8), 6).drawn)
    assert first.drawn.mean(axis=0) == pytest.approx(first.drops, abs=0.01)
    assert first.drawn.std(axis=0) == pytest.approx(
        (right[0].astype(float) - right[1:]).std(axis=1) / 10, rel=0.1
    )  # the standard error of a mean of 100


def test_some_layers_of_a_profile_are_ranked_anew():
    part = of(STEEP).at((5, 0, 1))
    assert part.layers == (5, 0, 1)
    assert list(part.ranks) == [2, 3, 1]
    assert part.drawn.shape == (2000, 3)


def test_some_layers_of_a_profile_have_a_reliability_of_their_own():
    drops = np.array([0.9, 0.5, 0.1, 0.02, 0.02, 0.02, 0.02, 0.02])
    right = measured(drops, 200, np.random.default_rng(3))
    whole = profile(right, range(8), 0)
    clear, noise = (1, 0, 2), (3, 4, 5, 6, 7)
    for layers in (clear, noise):
        alone = profile(right[[0, *(layer + 1 for layer in layers)]], layers, 0)
        assert whole.at(layers).reliability == alone.reliability
    assert whole.at(noise).reliability < whole.reliability < whole.at(clear).reliability


def test_profiles_of_other_layers_are_not_compared():
    with pytest.raises(LesionError, match="over the same layers"):
        agreement(of(STEEP), of(STEEP).at((0, 1, 2)))


@pytest.mark.parametrize(
    ("layers", "first", "second"), [(6, {0, 1}, {1, 2, 3}), (5, {0}, {0}), (4, {0, 1, 2}, {1, 2, 3})]
)
def test_overlap_counts_all_sets_of_that_size(layers, first, second):
    sets = [set(chosen) for chosen in itertools.combinations(range(layers), len(second))]
    shared = [len(first & chosen) for chosen in sets]
    found = overlap(layers, first, second)
    assert found.shared == tuple(sorted(first & second))
    assert found.expected == pytest.approx(np.mean(shared))
    assert found.p == pytest.approx(np.mean(np.array(shared) >= len(first & second)))
    assert found.p_least == pytest.approx(np.mean(np.array(shared) >= max(shared)))


@given(
    st.integers(1, 7).flatmap(
        lambda layers: st.tuples(
            st.just(layers),
            st.sets(st.integers(0, layers - 1), min_size=1),
            st.lists(st.sets(st.integers(0, layers - 1)), min_size=1, max_size=3).filter(any),
        )
    )
)
def test_the_overlaps_of_several_children_are_held_against_a_base_that_lies_anywhere_else(drawn):
    layers, base, children = drawn
    anywhere = [set(chosen) for chosen in itertools.combinations(range(layers), len(base))]
    sums = np.array([sum(len(chosen & child) for child in children) for chosen in anywhere])
    found = joint_overlap(layers, base, children)
    assert found.shared == tuple(sorted(base.intersection(*children)))
    assert found.expected == pytest.approx(sums.mean())
    assert found.p == pytest.approx(np.mean(sums >= sum(len(base & child) for child in children)))
    assert found.p_least == pytest.approx(np.mean(sums >= sums.max()))


def test_children_that_agree_among_themselves_are_no_evidence_beyond_one_of_them():
    assert joint_overlap(8, {3}, [{3}] * 3).p == pytest.approx(1 / 8)
    assert joint_overlap(8, {3}, [{3}, set()]).p == pytest.approx(1 / 8)  # an empty set says nothing
    assert joint_overlap(8, {0, 2, 5, 6, 7}, [{0, 2, 5, 6, 7}] * 3).p == pytest.approx(1 / 56)
