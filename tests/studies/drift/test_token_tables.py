"""Which tokens may be named as leaving: often enough there, and more than all tokens beyond chance."""

import math

import pytest

from lesion.report.values import Estimate
from lesion.studies.drift.result import Leaving
from lesion.studies.drift.token_drift import FEWEST, named


def leaving(token, left, count):
    share = Estimate(value=left / count, low=0.9, high=1.0)
    return Leaving(token=token, kind="word", count=count, left=left, share=share)


def tail(left, count, share):
    """P(at least so many of count leave), as a sum."""
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(left, count + 1))


def test_a_token_that_was_there_fewer_than_five_times_is_not_named_however_small_the_share_of_all():
    few, often = leaving("once", FEWEST - 1, FEWEST - 1), leaving("often", FEWEST, FEWEST)
    assert named([leaving("one", 1, 1), few, often], 1e-6, 10) == [often]


def test_a_token_is_named_only_while_p_times_the_number_of_types_is_at_most_alpha():
    sure = leaving("one", 6, 6)
    p = tail(6, 6, 0.3)
    most = int(0.05 / p)
    assert most > 2
    assert named([sure], 0.3, 6 + 5 * (most - 1)) == [sure]
    assert named([sure], 0.3, 6 + 5 * most) == []


def test_the_listed_types_are_corrected_among_themselves_and_the_surest_comes_first():
    sure, next_to_it, no = leaving("a", 18, 20), leaving("b", 9, 10), leaving("c", 4, 10)
    assert named([no, next_to_it, sure], 0.3, 40) == [sure, next_to_it]


@pytest.mark.parametrize("overall", [0.0, 1.0])
def test_where_none_or_all_leave_nothing_breaks(overall):
    assert named([leaving("a", 8, 8)], overall, 8) == ([leaving("a", 8, 8)] if overall == 0 else [])
    assert named([], overall, 0) == []
