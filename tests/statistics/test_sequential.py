"""Evidence and decisions that may be looked at at any time: against naive loops, enumeration and simulated studies."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.statistics.bets import SHARES, lower_limit
from lesion.statistics.sequential import evidence, log_e_values, within_effect

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


def sides(pairs: list[tuple[bool, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([one for one, _ in pairs], dtype=bool), np.array([other for _, other in pairs], dtype=bool)


def worth(differences: list[int], effect: float) -> float:
    """The capital of gamblers against "the mean is at most the effect", with λ (D − effect) as in the literature."""
    purses = [
        math.prod(1 + share / (1 + effect) * (difference - effect) for difference in differences) for share in SHARES
    ]
    return sum(purses) / len(purses)


@settings(deadline=None, max_examples=30)
@given(PAIRS, st.sampled_from([0.05, 0.1, 0.5]))
def test_evidence_is_what_gamblers_have_who_bet_against_either_side_of_the_effect(pairs, effect):
    found = evidence(*sides(pairs), effect, 0.05)
    differences = [int(one) - int(other) for one, other in pairs]
    assert found.items == len(pairs)
    assert found.drop == pytest.approx(sum(differences) / len(pairs))
    assert found.log_above == pytest.approx(math.log(worth(differences, effect)), abs=1e-9)
    assert found.log_below == pytest.approx(math.log(worth([-one for one in differences], -effect)), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(PAIRS, st.sampled_from([0.05, 0.1, 0.5]), st.sampled_from([None, 40, 100]))
def test_evidence_for_a_drop_is_evidence_for_the_opposite_gain(pairs, effect, population):
    baseline, edited = sides(pairs)
    found, mirrored = (
        evidence(baseline, edited, effect, 0.1, population),
        evidence(edited, baseline, effect, 0.1, population),
    )
    assert (mirrored.drop, mirrored.low, mirrored.high) == (-found.drop, -found.high, -found.low)
    if population is None:
        differences = baseline.astype(int) - edited.astype(int)
        above, below = log_e_values(differences, effect)
        mirrored_above, mirrored_below = log_e_values(-differences, -effect)
        np.testing.assert_array_equal(above, mirrored_below)
        np.testing.assert_array_equal(below, mirrored_above)


@settings(deadline=None, max_examples=30)
@given(PAIRS, st.sampled_from([None, 40, 100]), st.sampled_from([0.05, 0.5]))
def test_the_interval_holds_the_drop_and_a_smaller_level_widens_it(pairs, population, level):
    found = evidence(*sides(pairs), 0.1, level, population)
    assert -1 <= found.low <= found.drop <= found.high <= 1
    surer = evidence(*sides(pairs), 0.1, level / 10, population)
    assert surer.low <= found.low
    assert surer.high >= found.high


def test_the_interval_is_whole_even_where_items_come_in_an_order_that_is_not_random():
    edited = np.repeat([False, True], 100)
    # First all 100 are lost, then all 100 are won: the limits of the two halves contradict each other.
    for population in (None, 201):
        found = evidence(~edited, edited, 0.1, 0.05, population)
        differences = np.where(edited, -1, 1)
        low, high = lower_limit(differences, 0.025, population), -lower_limit(-differences, 0.025, population)
        assert high < low
        assert (found.low, found.drop, found.high) == (min(high, 0.0), 0.0, max(low, 0.0))


@settings(deadline=None, max_examples=30)
@given(PAIRS.filter(lambda pairs: len(pairs) > 4), st.sampled_from([0.07, 0.1, 0.29, 0.5]))
def test_when_all_items_of_the_table_are_seen_only_a_drop_over_the_effect_is_not_decided_yet(pairs, effect):
    found = evidence(*sides(pairs), effect, 0.05, len(pairs))
    lost = sum(int(one) - int(other) for one, other in pairs)
    assert found.low == found.high == found.drop == pytest.approx(lost / len(pairs))
    if Fraction(lost, len(pairs)) <= Fraction(str(effect)):
        assert (found.log_above, found.log_below) == (-math.inf, math.inf)
    else:
        assert found.log_below == -math.inf


@pytest.mark.parametrize("population", [10, 29, 100, 200, 1000, 1319])
def test_how_many_items_an_effect_is_does_not_depend_on_rounding(population):
    for percent in range(1, 100):
        assert within_effect(percent / 100, population) == math.floor(Fraction(percent, 100) * population)


def test_a_cell_that_exceeds_the_effect_in_the_table_by_luck_is_not_called_so():
    """3 of 20 items are lost: more than 0.1 of the table, but no evidence on what the items were drawn from."""
    baseline = np.ones(20, dtype=bool)
    edited = np.arange(20) >= 3
    found = evidence(baseline, edited, 0.1, 0.05, 20)
    assert found.low == found.high == pytest.approx(0.15)
    assert found.log_above == evidence(baseline, edited, 0.1, 0.05).log_above < math.log(20)
    assert max(found.log_above, found.log_below) < math.log(20)


def test_without_a_single_difference_some_35_items_are_enough_and_fewer_of_a_small_table():
    same = np.ones(200, dtype=bool)

    def enough(population: int | None) -> int:
        return next(
            items
            for items in range(1, 201)
            if evidence(same[:items], same[:items], 0.1, 0.05, population).log_below >= math.log(20)
        )

    # No way of betting against 0.1 makes more than 1/0.9 of a pair without a difference: log 20 / log (1/0.9) is 28.4.
    assert 29 <= enough(1000) <= enough(None) <= 40
    assert enough(200) < enough(1000)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 60, 90]))
def test_e_values_after_every_item_are_those_of_the_evidence_so_far(seed, population):
    baseline, *edited = np.random.default_rng(seed).random((4, 60)) < 0.6
    cells = np.array([baseline.astype(int) - one for one in edited])
    above, below = log_e_values(cells, 0.1, population)
    for place, one in enumerate(edited):
        for items in (1, 17, 60):
            found = evidence(baseline[:items], one[:items], 0.1, 0.05, population)
            assert found.log_above == pytest.approx(above[place, items - 1], abs=1e-9)
            assert found.log_below == pytest.approx(below[place, items - 1], abs=1e-9)


def test_with_a_population_evidence_for_exceeding_is_worth_no_more_than_1_in_the_table_and_beyond_it():
    """Exact, stopped as it suits: all orders of every table within the effect; all draws with a mean of the effect."""
    sequences = np.array(list(itertools.product([-1, 0, 1], repeat=7)), dtype=np.int64)
    above, below = (np.exp(one) for one in log_e_values(sequences, 0.3, 7))
    lost, differing = sequences.sum(axis=1), np.abs(sequences).sum(axis=1)
    for goal in (1.05, 1.3, 2.0, math.inf):
        stopped_above, stopped_below = (_when_reached(one, goal) for one in (above, below))
        for table in set(zip(lost.tolist(), differing.tolist(), strict=True)):
            orders = (lost == table[0]) & (differing == table[1])
            within = table[0] <= 2  # of 7 items, 0.3
            assert (stopped_above if within else stopped_below)[orders].mean() <= 1 + 1e-12
        for differ in (0.3, 0.6, 1.0):
            chance = np.array([(differ - 0.3) / 2, 1 - differ, (differ + 0.3) / 2])[sequences + 1].prod(axis=1)
            assert chance @ stopped_above <= 1 + 1e-12


def _when_reached(capital: np.ndarray, goal: float) -> np.ndarray:
    """[sequences] the capital when it first reaches the goal, else at the end."""
    reached = capital >= goal
    return capital[np.arange(len(capital)), np.where(reached.any(axis=1), reached.argmax(axis=1), -1)]
