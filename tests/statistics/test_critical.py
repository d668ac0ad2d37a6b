"""The rules of what is critical and spared, against enumeration of the multinomial and numerical maximum likelihood."""

import math

import numpy as np
import pytest
from enumerated import edge, outcomes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, multinomial

from lesion.statistics.critical import (
    Pairs,
    critical,
    critical_cells,
    fewest_right,
    out_of_reach,
    p_critical,
    pairs,
    score,
    smallest_loss,
)
from lesion.statistics.spared import p_spared

SHARES = st.sampled_from([0.3, 0.5, 0.8])


def _score_by_maximisation(lost: int, retained: int, won: int, kept: float) -> float:
    """kept · (lost + retained) − (retained + won) over its standard deviation at the numerically fitted edge."""

    def loss(q: float) -> float:
        return -sum(
            n * math.log(chance) for n, chance in zip((lost, retained, won), edge(q, kept), strict=True) if n > 0
        )

    last = kept / (1 + kept)
    q = minimize_scalar(loss, bounds=(1e-12, last - 1e-12), method="bounded", options={"xatol": 1e-12}).x
    chances = np.array(edge(q, kept))
    values = np.array([kept, kept - 1, -1])
    variance = (lost + retained + won) * float(chances @ values**2)  # the mean of the values is 0 at the edge
    return float(np.array([lost, retained, won]) @ values) / math.sqrt(variance)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), SHARES)
def test_the_score_is_that_of_the_numerical_maximum_likelihood_fit(lost, retained, won, share):
    if lost + retained + won:
        found = score(np.array([lost]), np.array([retained]), np.array([won]), 1 - share)[0]
        assert found == pytest.approx(_score_by_maximisation(lost, retained, won, 1 - share), abs=2e-4)


RULES = [(p_critical, 1), (p_spared, -1)]
"""With the side of its hypothesis on which a score speaks against it."""


@pytest.mark.parametrize(("p_of", "side"), RULES)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 14), st.data(), st.sampled_from([0.1, 0.25, 0.5, 0.8]))
def test_p_is_the_largest_chance_of_such_a_score_by_enumeration(p_of, side, m, data, share):
    kept, every = 1 - share, outcomes(m)
    lost, retained, won = every[data.draw(st.integers(0, len(every) - 1))].tolist()
    found = p_of(Pairs(lost, retained, won), share)
    if side * (kept * (lost + retained) - (retained + won)) <= 1e-9:
        assert found == 1.0
        return
    scores = side * score(*every.T, kept)
    tail = every[scores >= side * score(*np.array([[lost], [retained], [won]]), kept) - 1e-9]
    grid = kept / (1 + kept) * np.sin(np.linspace(0, np.pi / 2, 400)) ** 2
    largest = max(multinomial.pmf(tail, m, edge(q, kept)).sum() for q in grid)
    assert found == pytest.approx(largest, rel=2e-3)


@pytest.mark.parametrize(("p_of", "side"), RULES)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
@pytest.mark.parametrize("m", [6, 20, 45])
def test_no_hypothesis_is_rejected_too_often_at_its_edge_or_inside_it(p_of, side, m, share):
    kept, every = 1 - share, outcomes(m)
    p = np.array([p_of(Pairs(*outcome), share) for outcome in every.tolist()])
    inside = [
        [lost, retained, 1 - lost - retained]
        for lost in np.linspace(0, 1, 12)
        for retained in np.linspace(0, 1 - lost, 6)
        if side * (kept * (lost + retained) - (1 - lost)) <= 0
    ]
    for chances in [*(edge(q, kept) for q in np.linspace(0, kept / (1 + kept), 60)), *inside]:
        mass = multinomial.pmf(every, m, np.array(chances) / sum(chances))
        for level in (0.05, 0.05 / 8, 0.05 / 28):
            assert mass[p <= level].sum() <= level * (1 + 1e-6)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), SHARES)
def test_a_lost_item_that_is_retained_or_won_instead_speaks_against_a_loss_and_for_none(lost, retained, won, share):
    for p_of, side in RULES:
        found = p_of(Pairs(lost, retained, won), share)
        for other in (Pairs(lost - 1, retained + 1, won), Pairs(lost - 1, retained, won + 1)):
            assert side * p_of(other, share) >= side * found - 1e-3 * found


def test_an_edit_that_leaves_nothing_right_has_p_in_closed_form():
    # At worst an edit wins, elsewhere, the half that the hypothesis wants: then two of three of the items are lost.
    for right in (1, 5, 30):
        assert p_critical(Pairs(right, 0, 0)) == pytest.approx((2 / 3) ** right, rel=1e-9)
        assert p_critical(Pairs(right, 0, 0), 0.8) == pytest.approx((1 / 1.2) ** right, rel=1e-9)


def test_items_that_neither_has_right_say_nothing():
    baseline = np.array([True] * 30 + [False] * 10)
    edited = np.array([True] * 4 + [False] * 26 + [True] * 2 + [False] * 8)
    assert pairs(baseline, edited) == Pairs(26, 4, 2, 8)
    more = np.zeros(100, dtype=bool)
    assert pairs(np.concatenate([baseline, more]), np.concatenate([edited, more])) == Pairs(26, 4, 2, 108)
    assert p_critical(Pairs(26, 4, 2, 8)) == p_critical(Pairs(26, 4, 2, 108))


def test_nothing_is_critical_for_a_skill_that_is_not_there():
    nothing = np.zeros(50, dtype=bool)
    assert p_critical(pairs(nothing, nothing)) == 1.0
    assert not critical(1.0)


def test_cells_without_answers_count_as_tests_at_every_share():
    cells = [Pairs(14, 0, 0), Pairs(5, 9, 0)]
    assert critical_cells(cells) == [True, False]
    assert critical_cells(cells, missing=30) == [False, False]
    assert critical_cells(cells, share=0.8) == [False, False]
    assert critical_cells([Pairs(14, 0, 0), Pairs(9, 5, 0)], share=0.3) == [True, True]


def test_the_fewest_right_answers_are_those_with_which_everything_lost_is_critical():
    for tests in (1, 8, 28):
        fewest = fewest_right(tests)
        assert (2 / 3) ** fewest <= 0.05 / tests < (2 / 3) ** (fewest - 1)


@pytest.mark.parametrize("tests", [8, 28])
@pytest.mark.parametrize("right", [20, 86, 200])
def test_the_smallest_loss_is_called_critical_with_the_power_that_is_said(right, tests):
    loss = smallest_loss(right, tests)
    retained = np.arange(right + 1)
    called = np.array([p_critical(Pairs(right - r, r, 0)) * tests <= 0.05 for r in retained.tolist()])
    assert binom.pmf(retained, right, 1 - loss)[called].sum() == pytest.approx(0.8)
    assert 0.5 < loss < 1


def test_where_nothing_can_be_critical_no_loss_has_the_power_and_a_warning_says_so():
    assert smallest_loss(4, 8) is None
    warning = out_of_reach("a model", "a task", 4, 200, 8)
    assert warning.startswith("a model, a task: nothing can be critical here.")
    assert "4 of 200" in warning
    assert "650 items would be enough for such an edit" in warning  # 13 right answers at 2 %
    enough = next(right for right in range(13, 400) if (smallest_loss(right, 8) or 1) <= 0.75)
    assert f"and about {50 * enough:,} for one that takes 75 %" in warning
    assert "whatever the number of items" in out_of_reach("a model", "a task", 0, 200, 8)
    assert out_of_reach("a model", "a task", 13, 200, 8) is None
    assert "(1 place is tested)" in out_of_reach("a model", "a task", 1, 200, 1)


def test_much_that_is_lost_is_not_spared_and_no_item_says_nothing():
    assert p_spared(Pairs(25, 75, 0)) == 1.0
    assert p_spared(Pairs(0, 0, 0)) == 1.0
    assert p_spared(Pairs(5, 95, 5)) < 1e-4


@pytest.mark.parametrize(("lost", "right"), [(0, 30), (1, 40), (3, 50)])
def test_the_numbers_that_the_page_on_statistics_names_pass_among_thirty_blocks(lost, right):
    assert 30 * p_spared(Pairs(lost, right - lost, 0)) <= 0.05 < 30 * p_spared(Pairs(lost + 1, right - lost - 1, 0))
