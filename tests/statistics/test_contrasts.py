"""Contrasts: what an edit does beyond its random controls, to a skill beyond a control, to a perplexity."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

from lesion.statistics.contrasts import (
    beyond_random,
    difference_of_drops,
    mean_p,
    paired_difference_of_drops,
    perplexity,
    perplexity_p,
    perplexity_ratio,
)
from lesion.statistics.paired import Contrast, paired_drop

rates = st.floats(-1, 1, allow_nan=False)
drops = st.tuples(rates, rates, rates).map(sorted).map(lambda three: Contrast(three[1], three[0], three[2]))
answers = st.lists(st.booleans(), min_size=1, max_size=30).map(lambda values: np.array(values, dtype=bool))


def nearly(value: float):
    return pytest.approx(value, abs=1e-12)


@given(drops, drops)
def test_the_difference_of_two_drops_adds_the_squares_of_the_arms_that_count(one, other):
    found = difference_of_drops(one, other)
    assert found.value == nearly(one.value - other.value)
    # To fall, the first drop falls or the second rises: only these two arms make the lower limit.
    if found.low > -2:
        assert (found.value - found.low) ** 2 == nearly((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    if found.high < 2:
        assert (found.high - found.value) ** 2 == nearly((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    assert -2 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 2


@given(drops, drops)
def test_the_difference_the_other_way_round_is_its_mirror_image(one, other):
    found, mirrored = difference_of_drops(one, other), difference_of_drops(other, one)
    assert (found.value, found.low, found.high) == (
        nearly(-mirrored.value),
        nearly(-mirrored.high),
        nearly(-mirrored.low),
    )


def pairs(rng: np.random.Generator, items: int, before: float, lost: float) -> tuple[np.ndarray, np.ndarray]:
    """Right without and with an edit that takes a share of what was right."""
    baseline = rng.random(items) < before
    return baseline, baseline & (rng.random(items) >= lost)


@pytest.mark.slow
def test_the_interval_of_a_difference_of_drops_covers_as_often_as_it_says():
    rng = np.random.default_rng(20)
    truth = 0.8 * 0.5 - 0.9 * 0.1
    held, tries = 0, 1000
    for _ in range(tries):
        skill, control = pairs(rng, 60, 0.8, 0.5), pairs(rng, 90, 0.9, 0.1)
        found = difference_of_drops(paired_drop(*skill), paired_drop(*control))
        held += found.low <= truth <= found.high
    assert 0.93 <= held / tries <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_the_interval_of_a_paired_difference_of_drops_covers_as_often_as_it_says(shared):
    rng = np.random.default_rng(21)
    held, tries, items = 0, 600, 50
    for _ in range(tries):
        hard, same = rng.random((2, items)), rng.random(items) < shared
        luck = np.where(same, hard[:, None], rng.random((2, 2, items)))  # model, edited or not, item
        arms = [np.stack([luck[0, model] < 0.85, luck[1, model] < left]) for model, left in enumerate((0.6, 0.4))]
        found = paired_difference_of_drops(*arms)
        held += found.low <= -0.2 <= found.high
    assert 0.93 <= held / tries <= 0.98


def test_a_paired_difference_of_equal_drops_has_width():
    right, wrong = np.ones(10, dtype=bool), np.zeros(10, dtype=bool)
    found = paired_difference_of_drops(np.stack([right, wrong]), np.stack([right, wrong]))
    assert found.value == 0
    assert found.low < -0.1 < 0.1 < found.high


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=20).filter(lambda values: len(set(values)) > 1))
def test_p_of_a_mean_is_scipys(values):
    assert mean_p(np.array(values, dtype=float)) == pytest.approx(ttest_1samp(values, 0.0).pvalue, abs=1e-12)


def test_p_of_a_mean_without_spread_or_numbers_says_so():
    assert mean_p(np.zeros(4)) == 1.0
    assert mean_p(np.ones(4)) == 0.0
    assert math.isnan(mean_p(np.array([1.0])))
    assert math.isnan(mean_p(np.array([1.0, math.nan])))


@settings(max_examples=30, deadline=None)
@given(answers, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_beyond_random_is_the_mean_of_random_minus_edited_over_draws_and_items(edited, draws, seed):
    random = np.random.default_rng(seed).random((draws, len(edited))) < 0.5
    found = beyond_random(edited, random)
    naive = sum(int(random[d, i]) - int(edited[i]) for d in range(draws) for i in range(len(edited)))
    assert found.value == nearly(naive / (draws * len(edited)))
    assert -1 <= found.low <= found.high <= 1


def test_with_one_draw_it_is_the_paired_drop_from_that_control():
    rng = np.random.default_rng(4)
    random, edited = rng.random((1, 40)) < 0.7, rng.random(40) < 0.3
    found, drop = beyond_random(edited, random), paired_drop(random[0], edited)
    assert (found.value, found.low, found.high) == (nearly(drop.value), nearly(drop.low), nearly(drop.high))


def test_draws_that_differ_widen_it_by_students_interval_of_their_mean():
    rng = np.random.default_rng(1)
    edited = rng.random(200) < 0.5
    apart = np.stack([rng.random(200) < share for share in (0.2, 0.6, 1.0)])
    drops = [paired_drop(one, edited) for one in apart]
    students = ttest_1samp([one.value for one in drops], 0).confidence_interval(0.95)
    found = beyond_random(edited, apart)
    reach = np.mean([one.value - one.low for one in drops])
    assert found.value - max(-1, found.value - np.hypot(found.value - students.low, reach)) == nearly(
        found.value - found.low
    )
    alike = np.stack([apart[1]] * 3)
    assert beyond_random(edited, alike).low == nearly(paired_drop(apart[1], edited).low)
    assert found.high - found.low > 2 * (beyond_random(edited, alike).high - beyond_random(edited, alike).low)
    assert beyond_random(edited, alike, level=0.5).high < beyond_random(edited, alike).high


@pytest.mark.parametrize("items", [1, 7, 100])
def test_items_that_tell_nothing_apart_leave_doubt(items):
    right = np.ones(items, dtype=bool)
    found = beyond_random(right, np.stack([right, right]))
    assert found.value == 0
    assert found.low < 0 < found.high


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "spread"), [(1, 0.0), (3, 0.3), (10, 0.5)])
def test_the_interval_beyond_random_covers_what_other_items_and_draws_would_give(draws, spread):
    rng = np.random.default_rng(2)

    def chance(logit: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-logit))

    many, shift = rng.normal(size=200_000), spread * rng.normal(size=200_000)
    truth = float((chance(many + shift) - chance(many - 0.8)).mean())
    held, tries = 0, 300
    for _ in range(tries):
        difficulty, harm = rng.normal(size=100), spread * rng.normal(size=draws)
        random = rng.random((draws, 100)) < chance(difficulty + harm[:, None])
        edited = rng.random(100) < chance(difficulty - 0.8)
        found = beyond_random(edited, random)
        held += found.low <= truth <= found.high
    assert held / tries >= 0.93


def test_perplexity_is_the_exponential_of_the_mean_loss_over_all_tokens_together():
    rng = np.random.default_rng(0)
    losses = [rng.exponential(2.0, size) for size in (5, 17, 40, 3)]
    scores, tokens = np.array([-loss.sum() for loss in losses]), np.array([len(loss) for loss in losses])
    found = perplexity(scores, tokens)
    assert found.value == pytest.approx(float(np.exp(np.concatenate(losses).mean())))
    assert found.low < found.value < found.high
    # Symmetric for the logarithm: the point is the geometric mean of the limits.
    assert found.low * found.high == pytest.approx(found.value**2)


def test_the_spread_of_a_perplexity_is_that_of_a_jackknife_over_stretches():
    rng = np.random.default_rng(3)
    tokens = rng.integers(100, 300, 200)
    losses = tokens * rng.gamma(30, 0.1, 200)
    found = perplexity(-losses, tokens)
    left = [np.delete(losses, i).sum() / np.delete(tokens, i).sum() for i in range(200)]
    spread = math.sqrt(199 / 200 * ((np.array(left) - np.mean(left)) ** 2).sum())
    assert math.log(found.high / found.value) == pytest.approx(1.959964 * spread, rel=0.02)


def test_the_test_of_a_ratio_is_students_where_stretches_have_one_length():
    rng = np.random.default_rng(9)
    before, after = rng.normal(-20, 1, (2, 8))
    found = perplexity_p(before, after, np.full(8, 10))
    assert found == pytest.approx(ttest_rel(before, after).pvalue)
    # It and the interval at its level agree.
    ratio = perplexity_ratio(before, after, np.full(8, 10), 1 - found)
    assert pytest.approx(ratio.low) == 1.0 or pytest.approx(ratio.high) == 1.0


def test_the_test_of_a_ratio_says_nothing_of_one_stretch_or_where_a_score_is_not_finite():
    assert perplexity_p(np.array([-20.0, -30.0]), np.array([-20.0, -30.0]), np.array([10, 10])) == 1.0
    assert math.isnan(perplexity_p(np.array([-20.0]), np.array([-21.0]), np.array([10])))
    assert math.isnan(perplexity_p(np.array([-20.0, -30.0]), np.array([-20.0, -math.inf]), np.array([10, 10])))


def test_a_text_against_itself_has_the_ratio_one_without_doubt():
    rng = np.random.default_rng(5)
    tokens = rng.integers(1, 50, 20)
    scores = -rng.exponential(2.0, 20) * tokens
    found = perplexity_ratio(scores, scores, tokens)
    assert (found.value, found.low, found.high) == (1, 1, 1)


def test_the_ratio_is_that_of_the_two_perplexities_and_pairing_makes_it_narrow():
    rng = np.random.default_rng(6)
    tokens = rng.integers(50, 60, 100)
    before = -tokens * rng.gamma(4, 0.5, 100)
    after = before - 0.1 * tokens + rng.normal(0, 0.5, 100)
    found = perplexity_ratio(before, after, tokens)
    one, other = perplexity(before, tokens), perplexity(after, tokens)
    assert found.value == pytest.approx(other.value / one.value)
    assert 1 < found.low < found.value < found.high
    assert found.high / found.low < 1.02 < other.high / other.low


@pytest.mark.slow
def test_the_interval_of_a_perplexity_covers_as_often_as_it_says():
    rng = np.random.default_rng(7)
    held, tries = 0, 1000
    for _ in range(tries):
        tokens = rng.integers(100, 300, 40)
        held += (found := perplexity(-tokens * rng.gamma(30, 0.1, 40), tokens)).low <= math.exp(3) <= found.high
    assert 0.92 <= held / tries <= 0.97


@pytest.mark.parametrize("broken", [math.nan, -math.inf])
def test_a_stretch_without_a_finite_score_makes_the_perplexity_infinite(broken):
    tokens = np.array([10, 10])
    for found in (
        perplexity(np.array([-20.0, broken]), tokens),
        perplexity_ratio(np.array([-20.0, -20.0]), np.array([-20.0, broken]), tokens),
    ):
        assert (found.value, found.low, found.high) == (math.inf, math.inf, math.inf)


def test_one_stretch_alone_says_nothing_of_its_spread():
    found = perplexity(np.array([-20.0]), np.array([10]))
    assert (found.value, found.low, found.high) == (pytest.approx(math.exp(2)), 0, math.inf)
