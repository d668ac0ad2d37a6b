"""The statistics of a study, against scipy, numerical inversion, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, norm

from lesion.errors import LesionError
from lesion.statistics.critical import pairs
from lesion.statistics.paired import (
    holm,
    mcnemar_exact,
    paired_drop,
    rank_agreement,
    sign_flip_exact,
    sign_flips,
    wilson,
)

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def _pairs(both: int, b_only: int, e_only: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    baseline = [True] * (both + b_only) + [False] * (e_only + neither)
    edited = [True] * both + [False] * b_only + [True] * e_only + [False] * neither
    return np.array(baseline, dtype=bool), np.array(edited, dtype=bool)


@given(st.integers(1, 300), st.data(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy_and_holds_the_point(n, data, level):
    successes = data.draw(st.integers(0, n))
    low, high = wilson(successes, n, level)
    expected = binomtest(successes, n).proportion_ci(level, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= successes / n <= high <= 1


def test_wilson_of_all_right_ends_at_exactly_one_and_still_has_width():
    low, high = wilson(20, 20)
    z = norm.ppf(0.975)
    assert high == 1.0
    assert low == pytest.approx(20 / (20 + z * z))  # the closed form at p̂ = 1
    assert wilson(0, 20)[0] == 0.0


def _score_by_maximisation(difference: float, b: int, c: int, n: int) -> float:
    """Tango's score with the nuisance probability found by maximising the likelihood numerically."""

    def loss(q: float) -> float:
        p = q + difference
        rest = 1 - p - q
        total = 0.0
        for count, probability in ((b, p), (c, q), (n - b - c, rest)):
            if count:
                total -= count * math.log(max(probability, 1e-300))
        return total

    lowest, highest = max(0.0, -difference), (1 - difference) / 2
    q = minimize_scalar(loss, bounds=(lowest, highest), method="bounded", options={"xatol": 1e-12}).x
    return (b - c - n * difference) / math.sqrt(n * (2 * q + difference * (1 - difference)))


@pytest.mark.parametrize(
    ("both", "b_only", "e_only", "neither"), [(40, 30, 5, 25), (10, 7, 3, 80), (3, 5, 2, 1), (50, 12, 12, 26)]
)
def test_the_limits_of_the_drop_are_where_the_score_test_just_rejects(both, b_only, e_only, neither):
    n = both + b_only + e_only + neither
    z = norm.ppf(0.975)
    drop = paired_drop(*_pairs(both, b_only, e_only, neither), 0.95)
    assert _score_by_maximisation(drop.low, b_only, e_only, n) == pytest.approx(z, abs=1e-4)
    assert _score_by_maximisation(drop.high, b_only, e_only, n) == pytest.approx(-z, abs=1e-4)


@given(PAIRS, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_drop_is_the_difference_of_the_means_and_lies_in_its_interval(pairs, level):
    baseline, edited = (np.array(side, dtype=bool) for side in zip(*pairs, strict=True))
    drop = paired_drop(baseline, edited, level)
    assert drop.value == pytest.approx(baseline.mean() - edited.mean(), abs=1e-12)
    assert -1 <= drop.low <= drop.value <= drop.high <= 1
    assert drop.high > drop.low  # even when no pair disagrees


@given(PAIRS)
def test_swapping_the_sides_mirrors_the_drop(pairs):
    baseline, edited = (np.array(side, dtype=bool) for side in zip(*pairs, strict=True))
    forth, back = paired_drop(baseline, edited), paired_drop(edited, baseline)
    assert (-back.value, -back.high, -back.low) == pytest.approx((forth.value, forth.low, forth.high), abs=1e-9)


@given(PAIRS)
def test_the_interval_leaves_zero_out_exactly_where_mcnemars_score_test_rejects(pairs):
    baseline, edited = (np.array(side, dtype=bool) for side in zip(*pairs, strict=True))
    b, c = int((baseline & ~edited).sum()), int((edited & ~baseline).sum())
    rejects = b + c > 0 and (b - c) ** 2 / (b + c) > norm.ppf(0.975) ** 2
    drop = paired_drop(baseline, edited, 0.95)
    assert (drop.low > 0 or drop.high < 0) == rejects


def test_with_no_disagreement_the_interval_has_its_closed_form():
    drop = paired_drop(*_pairs(60, 0, 0, 40), 0.95)
    half = norm.ppf(0.975) ** 2 / (100 + norm.ppf(0.975) ** 2)
    assert (drop.value, drop.low, drop.high) == pytest.approx((0.0, -half, half), abs=1e-9)


def test_losing_everything_has_a_lower_limit_of_the_closed_form_and_an_upper_of_one():
    drop = paired_drop(*_pairs(0, 50, 0, 0), 0.95)
    z = norm.ppf(0.975)
    assert drop.high == 1.0
    # b = n, c = 0: q̂ = (1 − Δ)/2, so n(1 − Δ) = z·√(n(1 − Δ²)), hence Δ = (n − z²)/(n + z²).
    assert drop.low == pytest.approx((50 - z * z) / (50 + z * z), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "cells"),
    [
        (30, (0.35, 0.25, 0.05, 0.35)),
        (100, (0.80, 0.02, 0.01, 0.17)),
        (100, (0.02, 0.90, 0.02, 0.06)),
        (200, (0.45, 0.30, 0.05, 0.20)),
    ],
)
def test_the_interval_of_the_drop_covers_the_truth_as_often_as_it_says(n, cells):
    generator = np.random.default_rng(20)
    truth = cells[1] - cells[2]
    draws = 2000
    known: dict[tuple[int, ...], bool] = {}
    covered = 0
    for counts in generator.multinomial(n, cells, size=draws):
        key = tuple(int(count) for count in counts)
        if key not in known:
            drop = paired_drop(*_pairs(*key), 0.95)
            known[key] = drop.low <= truth <= drop.high
        covered += known[key]
    # 4 standard errors of the simulation, and one point of room for discreteness.
    assert covered / draws == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / draws) + 0.01)


@given(st.integers(0, 150), st.integers(0, 150))
def test_mcnemar_equals_scipys_two_sided_binomial_test(b_only, e_only):
    p = mcnemar_exact(b_only, e_only)
    if b_only + e_only == 0:
        assert p == 1.0
    else:
        assert p == pytest.approx(binomtest(b_only, b_only + e_only, 0.5).pvalue, rel=1e-9)


@pytest.mark.parametrize(("b_only", "e_only"), [(6, 1), (0, 8), (4, 4), (9, 2)])
def test_mcnemar_equals_counting_all_ways_the_pairs_could_have_split(b_only, e_only):
    discordant = b_only + e_only
    ways = [sum(sides) for sides in itertools.product((0, 1), repeat=discordant)]
    as_uneven = sum(abs(2 * k - discordant) >= abs(b_only - e_only) for k in ways)
    assert mcnemar_exact(b_only, e_only) == pytest.approx(as_uneven / len(ways))


P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@given(P_VALUES)
def test_holm_rejects_what_the_step_down_procedure_rejects_at_every_threshold(p):
    corrected = holm(p)
    for alpha in (0.001, 0.01, 0.05, 0.3):
        rejected: set[int] = set()
        for step, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
            if p[index] * (len(p) - step) > alpha:
                break
            rejected.add(index)
        assert {index for index, value in enumerate(corrected) if value <= alpha} == rejected


@given(P_VALUES, st.randoms(use_true_random=False))
def test_holm_never_lowers_keeps_order_and_does_not_care_about_the_order_given(p, random):
    corrected = holm(p)
    assert all(before <= after <= 1 for before, after in zip(p, corrected, strict=True))
    for (first, one), (second, other) in itertools.combinations(zip(p, corrected, strict=True), 2):
        assert (one <= other) if first <= second else (one >= other)
    shuffled = random.sample(range(len(p)), len(p))
    assert holm([p[index] for index in shuffled]) == [corrected[index] for index in shuffled]


def test_holm_refuses_what_is_no_p_value():
    with pytest.raises(LesionError, match="within 0…1"):
        holm([0.1, math.nan])


@settings(max_examples=25)
@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=10, unique=True), st.data())
def test_rank_agreement_equals_the_textbook_formula_when_there_are_no_ties(first, data):
    second = data.draw(st.permutations(first))
    n = len(first)
    ranks = [[sorted(side).index(value) for value in side] for side in (first, second)]
    squared = sum((one - other) ** 2 for one, other in zip(*ranks, strict=True))
    profiles = [[float(value) for value in side] for side in (first, second)]
    assert rank_agreement(*profiles) == pytest.approx(1 - 6 * squared / (n * (n * n - 1)))


def test_a_flat_profile_agrees_with_nothing():
    assert math.isnan(rank_agreement([0.0, 0.0, 0.0], [0.1, 0.2, 0.3]))


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=10))
def test_the_sign_flip_test_is_that_of_all_signs(differences):
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    share = sum(each >= observed for each in sums) / len(sums)
    assert sign_flip_exact(np.array(differences)) == pytest.approx(share, abs=1e-12)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
def test_the_sign_flip_test_of_verdicts_is_mcnemars(gained, lost, same):
    differences = np.array([1] * gained + [-1] * lost + [0] * (same + 1))
    assert sign_flip_exact(differences) == pytest.approx(mcnemar_exact(gained, lost), abs=1e-12)


def test_signs_drawn_at_random_give_the_exact_p_up_to_chance_and_never_0():
    generator = np.random.default_rng(3)
    columns = np.stack([generator.integers(-4, 4 + shift, size=25) for shift in (0, 1, 2, 4, 30)], axis=1)
    exact = [sign_flip_exact(column) for column in columns.T]
    drawn = sign_flips(columns.astype(float) / 7, seed=5)
    error = 4 * np.sqrt(np.array(exact) * (1 - np.array(exact)) / 10_000) + 2e-4
    assert (np.abs(drawn - exact) <= error).all()
    assert min(exact) < 1e-5 < min(drawn)
    assert sign_flips(np.zeros((25, 1)), seed=5) == [1.0]


def test_a_drop_of_unequal_items_is_refused():
    with pytest.raises(LesionError, match="3 and the edit 2"):
        paired_drop(np.ones(3, dtype=bool), np.ones(2, dtype=bool), 0.95)
    with pytest.raises(LesionError, match="3 and the edit 1"):
        pairs(np.ones(3, dtype=bool), np.ones(1, dtype=bool))
