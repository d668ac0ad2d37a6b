"""Giving up early errs no more often than it says, over whatever cells and looks."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.studies.truncation.search import hopeless, looks, no_worse, threshold


@st.composite
def counts(draw) -> tuple[int, int, int, int]:
    items = draw(st.integers(1, 40))
    seen = draw(st.integers(0, items))
    better = draw(st.integers(0, seen))
    return better, draw(st.integers(0, seen - better)), seen, items


def tail(better: int, differing: int, good: int, total: int) -> Fraction:
    """The chance that of `differing` draws from `total` items, `good` of them good, at most `better` are good."""
    ways = sum(comb(good, drawn) * comb(total - good, differing - drawn) for drawn in range(min(better, differing) + 1))
    return Fraction(ways, comb(total, differing))


@given(counts())
def test_p_is_the_largest_tail_over_all_populations_in_which_the_edit_is_no_worse(counted):
    better, worse, seen, items = counted
    differing = better + worse
    populations = [
        (good, total)
        for total in range(differing, differing + items - seen + 1)
        for good in range(-(-total // 2), total + 1)
    ]
    largest = max(tail(better, differing, good, total) for good, total in populations)
    found = no_worse(*counted)
    # Where more of the seen speak for the edit than against it no look is taken: 1 is a bound of every tail.
    assert found == pytest.approx(1.0 if better >= worse else float(largest), abs=1e-12)


@pytest.mark.parametrize("items", [1, 2, 5, 8, 12])
def test_p_is_at_most_a_with_a_chance_of_at_most_a_in_every_population_where_the_edit_is_no_worse(items):
    """Exact: all populations, all samples, all values that p can take."""
    for seen in range(1, items + 1):
        p = {
            (better, worse): no_worse(better, worse, seen, items)
            for better in range(seen + 1)
            for worse in range(seen + 1 - better)
        }
        for good in range(items + 1):
            for bad in range(min(good, items - good) + 1):
                chances = {
                    pair: Fraction(
                        comb(good, pair[0]) * comb(bad, pair[1]) * comb(items - good - bad, seen - sum(pair)),
                        comb(items, seen),
                    )
                    for pair in p
                }
                assert sum(chances.values()) == 1
                for at in sorted(set(p.values())):
                    assert sum(chance for pair, chance in chances.items() if p[pair] <= at) <= at + 1e-12


@given(counts())
def test_p_is_0_exactly_when_the_items_to_come_cannot_make_good_what_is_lost(counted):
    better, worse, seen, items = counted
    assert (no_worse(*counted) == 0.0) == (worse - better > items - seen)


@given(counts())
def test_one_more_item_on_which_the_edit_is_worse_never_raises_p(counted):
    better, worse, seen, items = counted
    if better + worse < seen:
        assert no_worse(better, worse + 1, seen, items) <= no_worse(*counted) + 1e-12


def test_a_search_looks_back_after_8_items_and_after_twice_as_many_each_time_and_never_at_the_end():
    assert looks(8) == []
    assert looks(9) == [8]
    assert looks(64) == [8, 16, 32]
    assert looks(65) == [8, 16, 32, 64]


def test_the_chance_of_error_is_shared_among_all_cells_and_looks():
    assert threshold(0.05, 20, 5) == 0.05 / 100
    assert threshold(0.05, 0, 0) == 0.05


def test_each_cell_is_judged_by_its_own_counts():
    assert hopeless([0, 3, 0], [8, 3, 8], 8, 16, 0.01) == [True, False, True]


def test_cells_as_good_as_the_baseline_are_rarely_given_up_over_all_cells_and_looks():
    """The worst that is no error not to give up: as many items better as worse, and all differ."""
    items, cells, error, runs = 64, 8, 0.2, 300
    steps = looks(items)
    generator = np.random.default_rng(0)
    given_up = {"told": 0, "naive": 0}
    for _ in range(runs):
        signs = np.array([generator.permutation(np.repeat([1, -1], items // 2)) for _ in range(cells)])
        for rule, at in (("told", threshold(error, cells, len(steps))), ("naive", error)):
            given_up[rule] += any(
                any(hopeless((s > 0).sum(1).tolist(), (s < 0).sum(1).tolist(), s.shape[1], items, at))
                for s in (signs[:, :seen] for seen in steps)
            )
    # Three standard errors of a share of 300 runs are 7 points.
    assert given_up["told"] / runs <= error + 0.07
    # Without sharing the chance among cells and looks the bound would be broken, and this test would see it.
    assert given_up["naive"] / runs > 2 * error


def test_a_cell_that_is_always_worse_is_given_up_at_the_first_looks():
    at = threshold(0.05, 300, 3)
    assert [hopeless([0], [seen], seen, 64, at)[0] for seen in looks(64)] == [False, True, True]
