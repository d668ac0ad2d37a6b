"""Deciding cells together: against the definition over all subsets, a plain loop of gamblers, all orders of tables."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.statistics.bets import SHARES
from lesion.statistics.paired import holm
from lesion.statistics.sequential_families import (
    EXCEEDS,
    NOT,
    OPEN,
    Standing,
    called,
    closed_e_bh,
    e_holm,
    log_e_values,
    within_effect,
)

LOG_E = st.one_of(st.floats(-5, 12), st.sampled_from([math.inf, -math.inf, math.log(20), 0.0]))


def subsets(cells: int) -> list[tuple[int, ...]]:
    return [some for size in range(1, cells + 1) for some in itertools.combinations(range(cells), size)]


def certified(rejected: tuple[int, ...], e: list[float], level: float) -> bool:
    """Whether the mean of every set of hypotheses pays for the share of it among the rejected."""
    return all(
        sum(e[one] for one in some) / len(some) >= len(set(some) & set(rejected)) / len(rejected) / level * (1 - 1e-9)
        for some in subsets(len(e))
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(LOG_E, min_size=1, max_size=6), st.sampled_from([0.05, 0.2, 0.5]))
def test_closed_e_bh_rejects_the_most_that_every_set_of_hypotheses_pays_for(log_e, level):
    e = [math.exp(min(one, 500.0)) for one in log_e]
    strong = [one for one in range(len(e)) if e[one] >= (1 - 1e-9) / level]
    allowed = [
        some
        for size in range(1, len(strong) + 1)
        for some in itertools.combinations(strong, size)
        if certified(some, e, level)
    ]
    found = tuple(np.flatnonzero(closed_e_bh(np.array(log_e), level)).tolist())
    assert len(found) == max(map(len, allowed), default=0)
    assert not found or found in allowed


@settings(deadline=None)
@given(st.lists(LOG_E, min_size=1, max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_closed_e_bh_rejects_whatever_e_bh_does(log_e, level):
    """e-BH: the largest set of which every member reaches cells / (size · level)."""
    sizes = [
        size
        for size in range(1, len(log_e) + 1)
        if sum(one >= math.log(len(log_e) / (size * level)) for one in log_e) >= size
    ]
    bar = math.log(len(log_e) / (max(sizes) * level)) if sizes else math.inf
    found = closed_e_bh(np.array(log_e), level)
    assert all(found[place] for place, one in enumerate(log_e) if sizes and one >= bar)


def test_among_true_and_false_hypotheses_the_expected_share_of_errors_is_at_most_the_level():
    """Exact, over all outcomes of independent e-values: true ones are `worth` with a chance of 1/worth, else 0."""
    level = 0.2
    for true, worths in itertools.product((1, 2, 3), itertools.product((6.0, 12.0, 30.0), repeat=3)):
        for strong in itertools.product((4.0, 9.0, 40.0), repeat=3):
            share = 0.0
            for luck in itertools.product((False, True), repeat=true):
                e = [worth if won else 0.0 for worth, won in zip(worths[:true], luck, strict=True)]
                chance = math.prod(1 / one if won else 1 - 1 / one for one, won in zip(worths, luck, strict=False))
                with np.errstate(divide="ignore"):
                    found = closed_e_bh(np.log(np.array([*e, *strong])), level)
                share += chance * found[:true].sum() / max(1, found.sum())
            assert share <= level + 1e-12


def test_it_errs_as_often_as_it_says_where_the_e_values_are_the_worst_there_are():
    """All hypotheses true, and all e-values 1/level with a chance of `level`, else 0. Then one error is all."""
    assert closed_e_bh(np.full(28, math.log(20)), 0.05).all()
    assert not closed_e_bh(np.full(28, math.log(19.9)), 0.05).any()


def test_evidence_for_both_sides_at_once_decides_nothing():
    found = called(np.array([9.0, 9.0, -9.0, 0.0]), np.array([9.0, -9.0, 9.0, 0.0]), 0.05)
    assert found.tolist() == [OPEN, EXCEEDS, NOT, OPEN]
    assert called(np.zeros(0), np.zeros(0), 0.05).tolist() == []


class Gambler:
    """The purses of one cell against one hypothesis; a bet is λ (D − mean), as in the literature."""

    def __init__(self) -> None:
        self.purses = [1.0] * len(SHARES)

    def bet(self, difference: int, mean: float) -> None:
        if mean > -1:
            self.purses = [
                purse * (1 + share / (1 + mean) * (difference - mean))
                for purse, share in zip(self.purses, SHARES, strict=True)
            ]

    @property
    def worth(self) -> float:
        return sum(self.purses) / len(self.purses)


def plain(differences: np.ndarray, effect: float, level: float) -> tuple[list[int], list[int], bool]:
    """The whole family over all its items, one after another: calls, items looked at, and whether a cell ever woke."""
    cells, population = differences.shape
    within = within_effect(effect, population)
    above, beyond, below = ([Gambler() for _ in range(cells)] for _ in range(3))
    lost, looked, calls, woke = [0] * cells, [0] * cells, [OPEN] * cells, False
    e = [(1.0, 1.0)] * cells

    def judge(cell: int, items: int) -> tuple[float, float]:
        left = population - items
        if lost[cell] - left > within:
            return beyond[cell].worth, 0.0
        if lost[cell] + left <= within:
            return 0.0, math.inf
        return min(above[cell].worth, beyond[cell].worth), below[cell].worth

    def decide() -> list[int]:
        with np.errstate(divide="ignore"):
            logs = np.log(np.array(e))
        return called(logs[:, 0], logs[:, 1], level).tolist()

    for items in range(1, population + 1):
        left = population - items + 1
        for cell in range(cells):
            if calls[cell] == OPEN:
                difference = int(differences[cell, items - 1])
                above[cell].bet(difference, max(-1.0, min(1.0, (within - lost[cell]) / left)))
                below[cell].bet(-difference, max(-1.0, min(1.0, (lost[cell] - within - 1) / left)))
                beyond[cell].bet(difference, effect)
                lost[cell] += difference
                looked[cell], e[cell] = items, judge(cell, items)
        while True:
            now = decide()
            woken = [cell for cell in range(cells) if calls[cell] != OPEN and now[cell] == OPEN]
            calls, woke = now, woke or bool(woken)
            if not woken:
                break
            for cell in woken:
                lost[cell] = int(differences[cell, :items].sum())
                looked[cell], e[cell] = items, judge(cell, items)
        if OPEN not in calls:
            break
    return calls, looked, woke


def drawn(seed: int, cells: int = 6, items: int = 40) -> np.ndarray:
    """[cells, items] differences of a family in which some lose nothing, some much, and some are near the effect."""
    generator = np.random.default_rng(seed)
    lost = generator.choice([0.0, 0.05, 0.3, 0.9], size=(cells, 1))
    won = generator.choice([0.0, 0.1], size=(cells, 1))
    chance = generator.random((cells, items))
    return np.where(chance < lost, 1, np.where(chance > 1 - won * (1 - lost), -1, 0))


def through(differences: np.ndarray, effect: float, level: float, population: int | None) -> Standing:
    """The family when all its answers are known."""
    cells, items = differences.shape
    return Standing.first(cells, effect, level, population).follow(differences, np.full(cells, items))


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_a_family_is_decided_as_by_gamblers_who_go_through_the_items_one_by_one(level):
    waking = 0
    for seed in range(60):
        differences = drawn(seed)
        calls, looked, woke = plain(differences, 0.2, level)
        found = through(differences, 0.2, level, 40)
        assert found.called.tolist() == calls
        assert found.looked.tolist() == looked
        waking += woke
    if level == 0.3:
        assert waking >= 3, "cells that wake are rare, but some must have been seen"


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 40]), st.sampled_from([0.05, 0.3]), st.data())
def test_how_many_items_are_asked_at_a_time_changes_nothing_and_neither_do_answers_not_looked_at_yet(
    seed, population, level, data
):
    differences = drawn(seed)
    whole = through(differences, 0.2, level, population)
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    standing, known = Standing.first(6, 0.2, level, population), np.zeros(6, dtype=np.int64)
    while (standing.called == OPEN).any() and (known[standing.called == OPEN] < 40).any():
        more = np.where(standing.called == OPEN, generator.integers(1, 12, size=6), 0)
        known = np.minimum(known + more, 40)
        there = np.arange(40) < known[:, None]
        guess = generator.integers(-1, 2, size=(6, 40))
        standing = standing.follow(np.where(there, differences, guess)[:, : known.max()], known)
        assert (standing.looked <= known).all()
    assert standing.called.tolist() == whole.called.tolist()
    assert standing.looked.tolist() == whole.looked.tolist()
    np.testing.assert_allclose(standing.log_above, whole.log_above)
    np.testing.assert_allclose(standing.log_below, whole.log_below)


def test_a_cell_that_leant_on_another_wakes_when_that_one_turns_and_does_not_bet_on_what_it_missed():
    differences = next(differences for differences in map(drawn, range(200)) if plain(differences, 0.2, 0.3)[2])
    standing = through(differences, 0.2, 0.3, 40)
    missed = [cell for cell in range(6) if not standing.bets[cell, : standing.looked[cell]].all()]
    assert missed
    for cell in missed:
        # Known only up to where it rested first, it has to be asked before the family can go on.
        rested = int(standing.bets[cell].argmin())
        known = np.where(np.arange(6) == cell, rested, 40)
        stuck = Standing.first(6, 0.2, 0.3, 40).follow(differences, known)
        assert stuck.called[cell] == OPEN
        assert stuck.looked[cell] == rested < stuck.items
        assert stuck.until_decided(differences, known)[cell] >= stuck.items


def test_in_every_order_of_a_table_what_is_called_is_wrong_no_more_often_than_the_level():
    """Exact: all orders of the items of small tables of two to three cells that share them."""
    generator = np.random.default_rng(0)
    level, effect, items = 0.5, 0.3, 5
    orders = np.array(list(itertools.permutations(range(items))))
    rested = 0
    for _ in range(8):
        table = generator.choice([-1, 0, 0, 1, 1], size=(generator.integers(2, 4), items))
        exceeds = table.sum(axis=1) > within_effect(effect, items)
        worth_above, worth_below = np.zeros(len(table)), np.zeros(len(table))
        shares = np.zeros(2)
        for order in orders:
            end = through(table[:, order], effect, level, items)
            rested += int((end.looked < items).sum())
            worth_above += np.exp(end.log_above) / len(orders)
            worth_below += np.exp(end.log_below) / len(orders)
            for side, (call, wrong) in enumerate(((EXCEEDS, ~exceeds), (NOT, exceeds))):
                made = end.called == call
                shares[side] += (made & wrong).sum() / max(1, made.sum()) / len(orders)
        assert (worth_above[~exceeds] <= 1 + 1e-9).all()
        assert (worth_below[exceeds] <= 1 + 1e-9).all()
        assert (shares <= level + 1e-12).all()
    assert rested > 60, "cells rest in many of these orders, else nothing was tried"


def test_what_is_needed_without_a_difference_is_what_is_asked():
    """Alone, against 0.1 without replacement from 1,000: the first item after which a plain gambler has 20 times."""
    one = np.zeros((1, 1000), dtype=np.int64)
    enough = plain(one, 0.1, 0.05)[1][0]
    assert 29 <= enough <= 40
    start = Standing.first(1, 0.1, 0.05, 1000).follow(one[:, :12], np.array([12]))
    assert start.until_decided(one, np.array([12])).tolist() == [enough]
    nearly = start.follow(one[:, : enough - 1], np.array([enough - 1]))
    assert nearly.called.tolist() == [OPEN]
    there = nearly.follow(one[:, :enough], np.array([enough]))
    assert there.called.tolist() == [NOT]
    assert there.until_decided(one, np.array([enough])).tolist() == [0]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 39))
def test_every_open_cell_is_asked_at_least_one_item_more_and_a_resting_one_nothing(seed, items):
    differences = drawn(seed)
    known = np.full(6, items)
    standing = Standing.first(6, 0.2, 0.05, 40).follow(differences[:, :items], known)
    stops = standing.until_decided(differences, known)
    assert ((stops > items) == (standing.called == OPEN)).all()
    assert ((stops == 0) | (standing.called == OPEN)).all()


def noisy(generator: np.random.Generator, cells: int, items: int, drop: float) -> np.ndarray:
    """[cells, items] differences of cells that lose `drop` of 0.6, every answer drawn anew by how hard the item is."""
    difficulty = generator.beta(0.6, 0.4, size=items)
    baseline = generator.random(items) < difficulty
    edited = generator.random((cells, items)) < difficulty * (1 - drop / 0.6)
    return baseline.astype(np.int64) - edited.astype(np.int64)


@pytest.mark.parametrize("population", [None, 80])
def test_studies_without_any_edit_rarely_raise_an_alarm_even_where_answers_are_noisy(population):
    """250 studies: three standard errors of a share of 0.05 are 4.1 points."""
    generator = np.random.default_rng(4)
    studies = [noisy(generator, 6, 80, 0.0) for _ in range(250)]
    alarms = np.mean([(through(study, 0.1, 0.05, population).called == EXCEEDS).any() for study in studies])
    assert alarms <= 0.05 + 0.041
    # The table itself exceeds the effect by luck in many of these, so it is not enough to know the table.
    assert np.mean([(study.mean(axis=1) > 0.1).any() for study in studies]) > 0.1


@pytest.mark.parametrize("population", [None, 100])
def test_studies_whose_drops_are_exactly_the_effect_are_rarely_decided_wrongly(population):
    """All six cells at the border: "exceeds" is wrong, and without a population "not" is wrong too."""
    generator = np.random.default_rng(5)
    wrong: dict[int, list[bool]] = {EXCEEDS: [], NOT: []}
    peeked = []
    for _ in range(250):
        study = noisy(generator, 6, 100, 0.1)
        found = through(study, 0.1, 0.05, population).called
        exceeds = study.sum(axis=1) > within_effect(0.1, 100)
        wrong[EXCEEDS].append(bool((found == EXCEEDS).any()))
        wrong[NOT].append(bool(((found == NOT) & (exceeds | (population is None))).any()))
        looks = np.arange(16, 101)
        score = (study.cumsum(axis=1)[:, 15:] / looks - 0.1) / (study.std() / np.sqrt(looks))
        peeked.append(bool((score > 1.645).any()))
    assert np.mean(wrong[EXCEEDS]) <= 0.05 + 0.041
    assert np.mean(wrong[NOT]) <= 0.05 + 0.041
    # Looking after every item with a test for one look is wrong far more often, and this test would see it.
    assert np.mean(peeked) > 0.3


def test_a_few_cells_that_lose_much_are_found_and_the_others_are_told_apart():
    generator = np.random.default_rng(6)
    for population in (None, 400):
        study = np.concatenate([noisy(generator, 2, 400, 0.5), np.zeros((8, 400), dtype=np.int64)])
        assert through(study, 0.1, 0.05, population).called.tolist() == [EXCEEDS] * 2 + [NOT] * 8


@settings(deadline=None)
@given(st.lists(LOG_E, min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_e_holm_is_holm_of_the_inverse_e_values_and_rejects_no_more_than_closed_e_bh(log_e, level):
    e = [math.exp(min(one, 500.0)) for one in log_e]
    expected = [p <= level * (1 + 1e-9) for p in holm([min(1.0, 1 / one) if one else 1.0 for one in e])]
    found = e_holm(np.array(log_e), level)
    assert found.tolist() == expected
    assert not (found & ~closed_e_bh(np.array(log_e), level)).any()


def test_by_e_holm_the_chance_of_any_wrong_call_is_at_most_the_level_where_by_the_other_rule_it_is_not():
    """10 cells lose no item, 6 one item more than the effect over the table: calling one of these *not* is wrong."""
    generator, studies, level = np.random.default_rng(5), 200, 0.2
    totals = [0] * 10 + [5] * 6
    wrong = {"closed e-BH": 0, "e-Holm": 0}
    for _ in range(studies):
        filled = np.array([np.repeat([1, 0], [total, 40 - total]) for total in totals])
        differences = generator.permuted(filled, axis=1)
        for rule in wrong:
            standing = Standing.first(16, 0.1, level, 40, rule).follow(differences, np.full(16, 40))
            wrong[rule] += bool((standing.called[10:] == NOT).any())
    assert wrong["e-Holm"] / studies <= level
    assert wrong["closed e-BH"] / studies > 1.5 * level


def test_by_e_holm_a_call_is_never_taken_back():
    generator = np.random.default_rng(6)
    differences = (generator.random((8, 60)) < np.linspace(0, 0.6, 8)[:, None]).astype(np.int64)
    before = np.zeros(8, dtype=np.int64)
    for items in range(4, 61, 4):
        now = Standing.first(8, 0.2, 0.2, 60, "e-Holm").follow(differences[:, :items], np.full(8, items)).called
        assert (now[before != OPEN] == before[before != OPEN]).all()
        before = now
    assert (before != OPEN).sum() > 4


# -- e-values


DIFFERENCES = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=40)


def worth(differences: list[int], effect: float) -> float:
    """The capital of gamblers against "the mean is at most the effect", with λ (D − effect) as in the literature."""
    purses = [
        math.prod(1 + share / (1 + effect) * (difference - effect) for difference in differences) for share in SHARES
    ]
    return sum(purses) / len(purses)


@settings(deadline=None, max_examples=30)
@given(DIFFERENCES, st.sampled_from([0.05, 0.1, 0.5]))
def test_e_values_are_what_gamblers_have_who_bet_against_either_side_of_the_effect(differences, effect):
    above, below = log_e_values(np.array(differences), effect)
    assert above[-1] == pytest.approx(math.log(worth(differences, effect)), abs=1e-9)
    assert below[-1] == pytest.approx(math.log(worth([-one for one in differences], -effect)), abs=1e-9)
    mirrored = log_e_values(-np.array(differences), -effect)
    np.testing.assert_array_equal((below, above), mirrored)


@settings(deadline=None, max_examples=30)
@given(DIFFERENCES.filter(lambda found: len(found) > 4), st.sampled_from([0.07, 0.1, 0.29, 0.5]))
def test_when_all_items_of_the_table_are_seen_only_a_drop_over_the_effect_is_not_decided_yet(differences, effect):
    above, below = (float(of[-1]) for of in log_e_values(np.array(differences), effect, len(differences)))
    if Fraction(sum(differences), len(differences)) <= Fraction(str(effect)):
        assert (above, below) == (-math.inf, math.inf)
    else:
        assert below == -math.inf


@pytest.mark.parametrize("population", [10, 29, 100, 200, 1000, 1319])
def test_how_many_items_an_effect_is_does_not_depend_on_rounding(population):
    for percent in range(1, 100):
        assert within_effect(percent / 100, population) == math.floor(Fraction(percent, 100) * population)


def test_a_cell_that_exceeds_the_effect_in_the_table_by_luck_is_not_called_so():
    """3 of 20 items are lost: more than 0.1 of the table, but no evidence on what the items were drawn from."""
    differences = (np.arange(20) < 3).astype(np.int64)
    above, below = (of[-1] for of in log_e_values(differences, 0.1, 20))
    assert above == log_e_values(differences, 0.1)[0][-1] < math.log(20)
    assert max(above, below) < math.log(20)


def test_without_a_single_difference_some_35_items_are_enough_and_fewer_of_a_small_table():
    def enough(population: int | None) -> int:
        _, below = log_e_values(np.zeros(200, dtype=np.int64), 0.1, population)
        return 1 + int((below >= math.log(20)).argmax())

    # No way of betting against 0.1 makes more than 1/0.9 of a pair without a difference: log 20 / log (1/0.9) is 28.4.
    assert 29 <= enough(1000) <= enough(None) <= 40
    assert enough(200) < enough(1000)


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
