"""Whether one task loses more than another, against its definition and its level."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.relative_losses import difference, p_loses_more, relative_loss
from lesion.statistics.spared import p_spared


def test_a_relative_loss_is_the_share_of_what_lies_between_the_baseline_and_chance():
    assert relative_loss(Pairs(60, 30, 5, 5), 0.0) == pytest.approx(55 / 90)
    assert relative_loss(Pairs(60, 30, 5, 5), 0.25) == pytest.approx(55 / 65)
    assert np.isnan(relative_loss(Pairs(0, 0, 3, 20), 0.25))


def test_p_is_the_largest_over_the_shares_that_both_tasks_may_keep():
    first, second = Pairs(50, 8, 1, 1), Pairs(18, 22, 2, 18)
    found = p_loses_more(first, second)
    largest = 0.0
    for kept in np.linspace(0.01, 0.5, 50):
        p = p_critical(first, 1 - kept), p_spared(second, 1 - kept)
        q = sum(max(0.0, norm.isf(each)) ** 2 for each in p)
        largest = max(largest, 0.5 * chi2.sf(q, 1) + 0.25 * chi2.sf(q, 2) if q > 0 else 1.0)
    assert found == pytest.approx(largest, rel=0.07)


def test_a_task_that_loses_no_more_than_the_other_is_not_shown_to():
    assert p_loses_more(Pairs(30, 10, 0, 0), Pairs(30, 10, 0, 0)) == 1.0
    assert p_loses_more(Pairs(30, 10, 0, 0), Pairs(19, 1, 0, 0)) == 1.0
    # Days beside capitals: 80 to 15 % of 20, chance 1 in 7, though days are not called critical on their own.
    assert p_loses_more(Pairs(19, 1, 0, 0), Pairs(13, 3, 0, 4), 0.0, 1 / 7) == 1.0


def test_equal_losses_are_called_different_at_most_as_often_as_the_level_says():
    generator = np.random.default_rng(1)
    called = 0
    for _ in range(200):
        sides = []
        for right, items in ((60, 60), (40, 80)):
            lost = int(generator.binomial(right, 0.8))
            sides.append(Pairs(lost, right - lost, 0, items - right))
        called += p_loses_more(*sides) <= 0.05
    assert called <= 16  # 200 · .05, and two standard deviations


def test_the_interval_of_the_difference_holds_it_and_leaves_0_out_where_the_test_is_clear():
    first, second = Pairs(90, 10, 0, 0), Pairs(20, 60, 0, 20)
    of = difference(first, second)
    assert of.value == pytest.approx(0.9 - 0.25)
    assert of.low < of.value < of.high
    assert of.low > 0
    assert p_loses_more(first, second) < 1e-6
    # Of a loss of everything no more can be lost.
    assert difference(Pairs(50, 0, 0, 0), Pairs(50, 0, 0, 0)).high == pytest.approx(
        -difference(Pairs(50, 0, 0, 0), Pairs(50, 0, 0, 0)).low
    )
