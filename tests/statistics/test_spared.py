"""The rule of what is spared, against enumeration of the multinomial."""

import numpy as np
import pytest
from enumerated import edge, outcomes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial

from lesion.statistics.critical import Pairs, score
from lesion.statistics.spared import p_spared

SHARES = st.sampled_from([0.1, 0.25, 0.5])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 14), st.data(), SHARES)
def test_p_is_the_largest_chance_of_such_a_score_by_enumeration(m, data, share):
    kept, every = 1 - share, outcomes(m)
    lost, retained, won = every[data.draw(st.integers(0, len(every) - 1))].tolist()
    found = p_spared(Pairs(lost, retained, won), share)
    if kept * (lost + retained) >= retained + won - 1e-9:
        assert found == 1.0
        return
    scores = score(*every.T, kept)
    tail = every[scores <= score(*np.array([[lost], [retained], [won]]), kept) + 1e-9]
    grid = kept / (1 + kept) * np.sin(np.linspace(0, np.pi / 2, 400)) ** 2
    largest = max(multinomial.pmf(tail, m, edge(q, kept)).sum() for q in grid)
    assert found == pytest.approx(largest, rel=2e-3)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("m", [6, 20, 45])
def test_no_hypothesis_is_rejected_too_often_at_its_edge_or_inside_it(m, share):
    kept, every = 1 - share, outcomes(m)
    p = np.array([p_spared(Pairs(*outcome), share) for outcome in every.tolist()])
    inside = [
        [lost, retained, 1 - lost - retained]
        for lost in np.linspace(0, 1, 12)
        for retained in np.linspace(0, 1 - lost, 6)
        if retained + (1 - lost - retained) <= kept * (lost + retained)
    ]
    for chances in [*(edge(q, kept) for q in np.linspace(0, kept / (1 + kept), 60)), *inside]:
        mass = multinomial.pmf(every, m, np.array(chances) / sum(chances))
        for level in (0.05, 0.05 / 8, 0.05 / 28):
            assert mass[p <= level].sum() <= level * (1 + 1e-6)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), SHARES)
def test_a_lost_item_that_is_retained_or_won_instead_is_more_evidence(lost, retained, won, share):
    found = p_spared(Pairs(lost, retained, won), share)
    assert p_spared(Pairs(lost - 1, retained + 1, won), share) <= found * (1 + 1e-3)
    assert p_spared(Pairs(lost - 1, retained, won + 1), share) <= found * (1 + 1e-3)


def test_much_that_is_lost_is_not_spared_and_no_item_says_nothing():
    assert p_spared(Pairs(25, 75, 0)) == 1.0
    assert p_spared(Pairs(0, 0, 0)) == 1.0
    assert p_spared(Pairs(5, 95, 5)) < 1e-4


@pytest.mark.parametrize(("lost", "right"), [(0, 30), (1, 40), (3, 50)])
def test_the_numbers_that_the_page_on_statistics_names_pass_among_thirty_blocks(lost, right):
    assert 30 * p_spared(Pairs(lost, right - lost, 0)) <= 0.05 < 30 * p_spared(Pairs(lost + 1, right - lost - 1, 0))
