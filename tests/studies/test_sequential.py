"""Evidence and decisions that may be looked at at any time: against naive loops, enumeration and simulated studies."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.errors import LesionError, UsageError
from lesion.studies.sequential import (
    Decision,
    Evidence,
    decide,
    e_bh,
    evidence,
    log_e_values,
    rounds,
    within_effect,
)
from lesion.studies.sequential_bets import SHARES, lower_limit

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)
LOG_E = st.lists(st.one_of(st.floats(-5, 12), st.sampled_from([math.inf, math.log(20), 0.0])), min_size=1, max_size=30)


def sides(pairs: list[tuple[bool, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([one for one, _ in pairs], dtype=bool), np.array([other for _, other in pairs], dtype=bool)


def cell(above: float, below: float) -> Evidence:
    return Evidence(10, 0.0, -1.0, 1.0, float(above), float(below))


def worth(differences: list[int], effect: float) -> float:
    """The capital of gamblers against "the mean is at most the effect", with λ (D − effect) as in the literature."""
    purses = [
        math.prod(1 + share / (1 + effect) * (difference - effect) for difference in differences) for share in SHARES
    ]
    return sum(purses) / len(purses)


@settings(deadline=None, max_examples=50)
@given(PAIRS, st.sampled_from([0.05, 0.1, 0.5]))
def test_evidence_is_what_gamblers_have_who_bet_against_either_side_of_the_effect(pairs, effect):
    found = evidence(*sides(pairs), effect, 0.05)
    differences = [int(one) - int(other) for one, other in pairs]
    assert found.items == len(pairs)
    assert found.drop == pytest.approx(sum(differences) / len(pairs))
    assert found.log_above == pytest.approx(math.log(worth(differences, effect)), abs=1e-9)
    assert found.log_below == pytest.approx(math.log(worth([-one for one in differences], -effect)), abs=1e-9)


@settings(deadline=None, max_examples=50)
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


@settings(deadline=None, max_examples=50)
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


@settings(deadline=None, max_examples=50)
@given(PAIRS.filter(lambda pairs: len(pairs) > 4), st.sampled_from([0.07, 0.1, 0.29, 0.5]))
def test_when_all_items_of_the_table_are_seen_only_a_drop_over_the_effect_is_not_decided_yet(pairs, effect):
    found = evidence(*sides(pairs), effect, 0.05, len(pairs))
    lost = sum(int(one) - int(other) for one, other in pairs)
    assert found.low == found.high == found.drop == pytest.approx(lost / len(pairs))
    if Fraction(lost, len(pairs)) <= Fraction(str(effect)):
        assert (found.log_above, found.log_below) == (-math.inf, math.inf)
        assert decide([found], 0.05) == ["not"]
    else:
        assert found.log_below == -math.inf
        assert decide([found], 0.05)[0] in ("critical", "open")


@pytest.mark.parametrize("population", [10, 29, 100, 200, 1000, 1319])
def test_how_many_items_an_effect_is_does_not_depend_on_rounding(population):
    for percent in range(1, 100):
        assert within_effect(percent / 100, population) == math.floor(Fraction(percent, 100) * population)


def test_a_cell_that_exceeds_the_effect_in_the_table_by_luck_is_not_critical():
    """3 of 20 items are lost: more than 0.1 of the table, but no evidence on what the items were drawn from."""
    baseline = np.ones(20, dtype=bool)
    edited = np.arange(20) >= 3
    found = evidence(baseline, edited, 0.1, 0.05, 20)
    assert found.low == found.high == pytest.approx(0.15)
    assert found.log_above == evidence(baseline, edited, 0.1, 0.05).log_above < math.log(20)
    assert decide([found], 0.05) == ["open"]


def test_without_a_single_difference_some_35_items_are_enough_and_fewer_of_a_small_table():
    same = np.ones(200, dtype=bool)

    def enough(population: int | None) -> int:
        return next(
            items
            for items in range(1, 201)
            if decide([evidence(same[:items], same[:items], 0.1, 0.05, population)], 0.05) == ["not"]
        )

    # No way of betting against 0.1 makes more than 1/0.9 of a pair without a difference: log 20 / log (1/0.9) is 28.4.
    assert 29 <= enough(1000) <= enough(None) <= 40
    assert enough(200) < enough(1000)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_an_effect_or_level_outside_0_to_1_is_refused(wrong):
    pair = np.array([True]), np.array([False])
    with pytest.raises(UsageError, match=r"effect lies between 0 and 1, for example 0\.1"):
        evidence(*pair, wrong, 0.05)
    with pytest.raises(UsageError, match=r"level lies between 0 and 1, for example 0\.05"):
        evidence(*pair, 0.1, wrong)
    with pytest.raises(UsageError, match="level"):
        decide([cell(1, 1)], wrong)


def test_pairs_need_both_sides_and_fit_their_population():
    three, four = np.ones(3, dtype=bool), np.ones(4, dtype=bool)
    with pytest.raises(LesionError, match="3 answers and the edit 4"):
        evidence(three, four, 0.1, 0.05)
    with pytest.raises(LesionError, match="at least one"):
        evidence(three[:0], four[:0], 0.1, 0.05)
    with pytest.raises(LesionError, match="4 items cannot be drawn from a population of 3"):
        evidence(four, four, 0.1, 0.05, 3)


@settings(deadline=None)
@given(LOG_E, st.sampled_from([0.01, 0.05, 0.2]))
def test_e_bh_is_the_largest_set_whose_members_all_reach_its_bar(log_e, level):
    sizes = [
        size
        for size in range(1, len(log_e) + 1)
        if sum(one >= math.log(len(log_e) / (size * level)) for one in log_e) >= size
    ]
    bar = math.log(len(log_e) / (max(sizes) * level)) if sizes else math.inf
    expected = [bool(sizes) and one >= bar for one in log_e]
    assert e_bh(np.array(log_e), level).tolist() == expected


def test_e_bh_errs_as_often_as_it_says_where_the_e_values_are_the_worst_there_are():
    """Exact: all hypotheses true, and all e-values 1/level with a chance of `level`, else 0. Then one error is all."""
    assert e_bh(np.full(28, math.log(20)), 0.05).all()
    assert not e_bh(np.full(28, math.log(19.9)), 0.05).any()


def test_many_cells_that_are_not_critical_help_each_other():
    alone = decide([cell(-5, math.log(30)), *[cell(-5, 0.0)] * 27], 0.05)
    together = decide([cell(-5, math.log(30))] * 27 + [cell(9, -9)], 0.05)
    assert alone == ["open"] * 28
    assert together == ["not"] * 27 + ["critical"]


def test_evidence_for_both_sides_at_once_decides_nothing():
    assert decide([cell(9, 9), cell(9, -9), cell(-9, 9), cell(0, 0)], 0.05) == ["open", "critical", "not", "open"]
    assert decide([], 0.05) == []


@settings(deadline=None)
@given(st.lists(LOG_E.filter(lambda values: len(values) >= 4).map(lambda values: values[:4]), min_size=2, max_size=8))
def test_what_is_decided_stays_so_if_it_keeps_its_evidence(looks):
    kept = [cell(one, -one) for one in looks[0]]
    before = decide(kept, 0.2)
    for look in looks[1:]:
        kept = [old if what != "open" else cell(one, -one) for old, what, one in zip(kept, before, look, strict=True)]
        now = decide(kept, 0.2)
        assert all(what in ("open", then) for what, then in zip(before, now, strict=True))
        before = now


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(1, 50), st.floats(1, 4))
def test_rounds_go_through_all_items_once_and_grow(total, first, growth):
    slices = list(rounds(total, first, growth))
    assert [item for start, stop in slices for item in range(start, stop)] == list(range(total))
    for (_, stop), (_, later) in itertools.pairwise(slices[:-1]):
        assert later == max(stop + 1, math.ceil(stop * growth))
    if total:
        assert slices[0] == (0, min(first, total))


@pytest.mark.parametrize(("first", "growth"), [(0, 2.0), (8, 0.9), (8, math.nan), (8, math.inf)])
def test_rounds_that_would_not_end_are_refused(first, growth):
    with pytest.raises(UsageError, match="at least 1"):
        list(rounds(10, first, growth))


def stopped(differences: np.ndarray, effect: float, level: float, population: int | None) -> list[Decision]:
    """A whole study [cells, items], cell by cell and round by round, by way of what the package offers."""
    above, below = log_e_values(differences, effect, population)
    found: list[Decision] = ["open"] * len(differences)
    kept = [cell(0, 0)] * len(differences)
    for _, stop in rounds(differences.shape[1]):
        kept = [
            cell(above[place, stop - 1], below[place, stop - 1]) if what == "open" else old
            for place, (old, what) in enumerate(zip(kept, found, strict=True))
        ]
        found = decide(kept, level)
    return found


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


def test_with_a_population_evidence_for_critical_is_worth_no_more_than_1_in_the_table_and_beyond_it():
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


def noisy(generator: np.random.Generator, cells: int, items: int, drop: float) -> np.ndarray:
    """[cells, items] differences of cells that lose `drop` of 0.6, every answer drawn anew by how hard the item is."""
    difficulty = generator.beta(0.6, 0.4, size=items)
    baseline = generator.random(items) < difficulty
    edited = generator.random((cells, items)) < difficulty * (1 - drop / 0.6)
    return baseline.astype(np.int64) - edited.astype(np.int64)


@pytest.mark.parametrize("population", [None, 80])
def test_studies_without_any_edit_rarely_raise_an_alarm_even_where_answers_are_noisy(population):
    """400 studies: three standard errors of a share of 0.05 are 3.3 points."""
    generator = np.random.default_rng(4)
    studies = [noisy(generator, 6, 80, 0.0) for _ in range(400)]
    alarms = np.mean(["critical" in stopped(study, 0.1, 0.05, population) for study in studies])
    assert alarms <= 0.05 + 0.033
    # The table itself exceeds the effect by luck in many of these, so it is not enough to know the table.
    assert np.mean([(study.mean(axis=1) > 0.1).any() for study in studies]) > 0.1


@pytest.mark.parametrize("population", [None, 100])
def test_studies_whose_drops_are_exactly_the_effect_are_rarely_decided_wrongly(population):
    """All six cells at the border: "critical" is wrong, and without a population "not" is wrong too."""
    generator = np.random.default_rng(5)
    called: dict[str, list[bool]] = {"critical": [], "not": []}
    peeked = []
    for _ in range(400):
        study = noisy(generator, 6, 100, 0.1)
        found = stopped(study, 0.1, 0.05, population)
        truth = study.sum(axis=1) > within_effect(0.1, 100)
        called["critical"].append("critical" in found)
        called["not"].append(
            any(what == "not" and (population is None or exceeds) for what, exceeds in zip(found, truth, strict=True))
        )
        looks = np.arange(16, 101)
        score = (study.cumsum(axis=1)[:, 15:] / looks - 0.1) / (study.std() / np.sqrt(looks))
        peeked.append(bool((score > 1.645).any()))
    assert np.mean(called["critical"]) <= 0.05 + 0.033
    assert np.mean(called["not"]) <= 0.05 + 0.033
    # Looking after every item with a test for one look is wrong far more often, and this test would see it.
    assert np.mean(peeked) > 0.3


def test_a_few_cells_that_lose_much_are_found_and_the_others_are_told_apart():
    generator = np.random.default_rng(6)
    for population in (None, 400):
        study = np.concatenate([noisy(generator, 2, 400, 0.5), np.zeros((8, 400), dtype=np.int64)])
        assert stopped(study, 0.1, 0.05, population) == ["critical"] * 2 + ["not"] * 8
