"""Bets on a drop: worth 1 under their hypothesis, whoever looks when, by enumeration of all that can happen."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.statistics.bets import SHARES, confidence_sequence, log_capital, log_capital_of_population, lower_limit

DIFFERENCES = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=40)


def every(items: int) -> np.ndarray:
    """[3^items, items] all sequences of differences."""
    return np.array(list(itertools.product([-1, 0, 1], repeat=items)), dtype=np.int64)


def capital_of_a_gambler(differences: list[int], mean: float) -> float:
    """One gambler for every share, one bet after another, with λ as in the literature: 1 + λ (D − m)."""
    purses = []
    for share in SHARES:
        purse = 1.0
        for difference in differences:
            purse *= 1 + share / (1 + mean) * (difference - mean)
        purses.append(purse)
    return sum(purses) / len(purses)


def capital_in_a_population(differences: list[int], total: int, population: int) -> float:
    """The same without replacement, in exact arithmetic of prices."""
    purses = [1.0] * len(SHARES)
    seen = 0
    for before, difference in enumerate(differences):
        left = population - before
        mean = max(Fraction(-1), min(Fraction(1), Fraction(total - seen, left)))
        seen += difference
        for place, share in enumerate(SHARES):
            if mean > -1:
                purses[place] *= 1 + share / float(1 + mean) * float(difference - mean)
        if seen - (left - 1) > total:
            return math.inf
    return sum(purses) / len(purses)


@settings(deadline=None)
@given(DIFFERENCES, st.floats(-0.99, 1))
def test_the_capital_is_that_of_gamblers_who_bet_item_by_item(differences, mean):
    found = log_capital(np.array(differences), mean)
    assert found.shape == (len(differences),)
    for items in (1, len(differences)):
        assert found[items - 1] == pytest.approx(math.log(capital_of_a_gambler(differences[:items], mean)), abs=1e-9)


@settings(deadline=None)
@given(DIFFERENCES, st.integers(0, 20), st.data())
def test_without_replacement_it_is_that_of_gamblers_whose_price_follows_what_is_left(differences, more, data):
    population = len(differences) + more
    total = data.draw(st.integers(-population, population))
    found = log_capital_of_population(np.array(differences), total, population)
    for items in range(1, len(differences) + 1):
        expected = capital_in_a_population(differences[:items], total, population)
        assert found[items - 1] == pytest.approx(math.log(expected) if expected < math.inf else math.inf, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3), min_size=2, max_size=5))
def test_many_cells_at_once_are_each_cell_by_itself(cells):
    together = np.array(cells)
    for one, with_replacement, without in zip(
        together, log_capital(together, 0.1), log_capital_of_population(together, 1, 9), strict=True
    ):
        np.testing.assert_allclose(with_replacement, log_capital(one, 0.1))
        np.testing.assert_allclose(without, log_capital_of_population(one, 1, 9))


@pytest.mark.parametrize("mean", [-0.5, 0.0, 0.1, 0.6])
def test_under_independent_draws_the_capital_is_worth_1_at_the_mean_and_no_more_below_it(mean):
    sequences = every(6)
    for differing in np.linspace(abs(mean), 1.0, 5):
        for true in (mean, mean - 0.05, mean - 0.3):
            if abs(true) > differing:
                continue
            chance = np.array([(differing - true) / 2, 1 - differing, (differing + true) / 2])[sequences + 1]
            weight = chance.prod(axis=1)
            assert weight.sum() == pytest.approx(1)
            for worth in _worths(np.exp(log_capital(sequences, mean)), weight):
                assert worth == pytest.approx(1) if true == mean else worth <= 1


@pytest.mark.parametrize("population", [1, 2, 5, 7])
def test_in_every_population_the_capital_is_worth_1_at_its_total_and_no_more_above_it(population):
    """All populations of that size, all hypotheses, all orders: every arrangement of a population is equally likely."""
    orders = every(population)
    truths = orders.sum(axis=1)
    compositions = np.abs(orders).sum(axis=1)
    for total in range(-population, population + 1):
        capital = np.exp(log_capital_of_population(orders, total, population))
        assert np.array_equal(capital[:, -1] == np.inf, truths > total)
        for truth, differing in set(zip(truths.tolist(), compositions.tolist(), strict=True)):
            if truth <= total:
                alike = capital[(truths == truth) & (compositions == differing)]
                for worth in _worths(alike, np.full(len(alike), 1 / len(alike))):
                    assert worth == pytest.approx(1) if truth == total else worth <= 1 + 1e-12


def _worths(capital: np.ndarray, weight: np.ndarray) -> list[float]:
    """What the capital is worth on average: after each number of items, and when stopped as it suits the gambler."""
    rows = np.arange(len(capital))
    found = [float(weight @ capital[:, items]) for items in range(capital.shape[1])]
    for goal in (1.05, 1.3, 2.0):
        reached = capital >= goal
        found.append(float(weight @ capital[rows, np.where(reached.any(1), reached.argmax(1), -1)]))
        # Ville's inequality, exactly.
        assert weight @ reached.any(1) <= 1 / goal + 1e-12
    return found


@settings(deadline=None)
@given(DIFFERENCES, st.floats(-0.98, 0.98), st.floats(-0.98, 0.98), st.integers(0, 9), st.data())
def test_the_higher_the_mean_that_is_doubted_the_lower_the_capital(differences, one, other, more, data):
    low, high = sorted((one, other))
    seen = np.array(differences)
    assert np.all(log_capital(seen, low) >= log_capital(seen, high) - 1e-9)
    population = len(differences) + more
    small, large = sorted(data.draw(st.tuples(*[st.integers(-population, population)] * 2)))
    capitals = (log_capital_of_population(seen, total, population) for total in (small, large))
    # exp: infinity minus a little is still infinity.
    assert np.all(np.exp(next(capitals)) >= np.exp(next(capitals)) * (1 - 1e-9))


@settings(deadline=None, max_examples=30)
@given(DIFFERENCES, st.sampled_from([0.5, 0.1, 0.025]))
def test_the_limit_lies_where_the_largest_capital_so_far_crosses_the_bar(differences, error):
    limit = lower_limit(np.array(differences), error)
    prefixes = [differences[: items + 1] for items in range(len(differences))]
    if limit > -1:
        assert max(capital_of_a_gambler(prefix, limit) for prefix in prefixes) >= 1 / error * (1 - 1e-9)
    above = limit + 2.0**-19
    assert max(capital_of_a_gambler(prefix, above) for prefix in prefixes) < 1 / error


@settings(deadline=None)
@given(DIFFERENCES)
def test_limits_only_rise(differences):
    limits = [
        lower_limit(np.array(differences[:items]), 0.1)
        for items in sorted({1, 1 + len(differences) // 2, len(differences)})
        if items <= len(differences)
    ]
    assert limits == sorted(limits)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.sampled_from([0.05, 0.5]))
def test_a_confidence_sequence_holds_the_drop_is_that_of_the_gain_mirrored_and_widens_with_a_smaller_level(
    pairs, level
):
    baseline, edited = np.array(pairs, dtype=bool).T
    found, surer = (confidence_sequence(baseline, edited, each) for each in (level, level / 10))
    assert found.value == pytest.approx(np.mean(baseline.astype(int) - edited))
    assert -1 <= surer.low <= found.low <= found.value <= found.high <= surer.high <= 1
    mirrored = confidence_sequence(edited, baseline, level)
    assert (mirrored.value, mirrored.low, mirrored.high) == (-found.value, -found.high, -found.low)


def test_a_confidence_sequence_is_whole_even_where_items_come_in_an_order_that_is_not_random():
    edited = np.repeat([False, True], 100)
    # First all 100 are lost, then all 100 are won: the limits of the two halves contradict each other.
    found, differences = confidence_sequence(~edited, edited, 0.05), np.where(edited, -1, 1)
    low, high = lower_limit(differences, 0.025), -lower_limit(-differences, 0.025)
    assert high < low
    assert (found.low, found.value, found.high) == (min(high, 0.0), 0.0, max(low, 0.0))


@pytest.mark.parametrize(("down", "up"), [(0.05, 0.05), (0.02, 0.12), (0.25, 0.25), (0.0, 0.1), (0.1, 0.8)])
def test_the_true_mean_is_rarely_refuted_at_any_time(down, up):
    """400 sequences looked at after every item: three standard errors of a share of 0.1 are 4.5 points."""
    generator = np.random.default_rng(1)
    drawn = generator.choice([-1, 0, 1], p=[down, 1 - down - up, up], size=(400, 300))
    refuted = (log_capital(drawn, up - down).max(axis=1) >= math.log(10)).mean()
    assert refuted <= 0.1 + 0.045
    population = np.repeat([-1, 0, 1], np.round(300 * np.array([down, 1 - down - up, up])).astype(int))
    shuffled = np.array([generator.permutation(population) for _ in range(400)])
    capital = log_capital_of_population(shuffled, int(population.sum()), 300)
    assert (capital.max(axis=1) >= math.log(10)).mean() <= 0.1 + 0.045
    # A bar that does not know how often it is looked at is crossed more often, and this test would see it.
    means = drawn.cumsum(axis=1)[:, 9:] / np.arange(10, 301)
    naive = means - up + down > 1.28 * drawn.std() / np.sqrt(np.arange(10, 301))
    assert naive.any(axis=1).mean() > 0.145
