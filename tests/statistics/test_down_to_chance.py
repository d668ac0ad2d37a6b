"""The tests of what is critical and spared where answers are chosen, against enumeration of the multinomial."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, multinomial

from lesion.statistics.critical import (
    Pairs,
    critical_cells,
    fewest_right,
    left_to_guessing,
    out_of_reach,
    p_critical,
    smallest_loss,
)
from lesion.statistics.down_to_chance import BEYOND, Edge, above_chance
from lesion.statistics.spared import p_spared


def outcomes(items: int) -> np.ndarray:
    """All counts of lost, retained, won and neither."""
    every = [(r, w, e) for r in range(items + 1) for w in range(items + 1 - r) for e in range(items + 1 - r - w)]
    return np.array([(items - sum(each), *each) for each in every])


def cell(baseline: float, edited: float, winning: float) -> list[float]:
    """Chances of lost, retained, won and neither, with so much won of what the unedited model has wrong."""
    won = (1 - baseline) * winning
    both = edited - won
    return [baseline - both, both, won, 1 - baseline - won]


@pytest.mark.parametrize("choices", [2, 5])
@pytest.mark.parametrize("side", ["critical", "spared"])
def test_no_hypothesis_is_rejected_too_often_at_its_edge_inside_it_or_by_a_model_that_guesses(choices, side):
    items, c = 8, 1 / choices
    every = outcomes(items)
    test, kept = (p_critical, 0.5) if side == "critical" else (p_spared, 0.75)
    p = np.array([test(Pairs(*map(int, each)), chance=c) for each in every])
    for baseline in np.linspace(c, 1, 7):
        edge = kept * (baseline - c) + c
        for edited in (edge, edge + 0.1) if side == "critical" else (edge, edge - 0.1):
            most = min(1.0, edited / (1 - baseline)) if baseline < 1 else 0.0
            for winning in np.linspace(0, most, 5):
                chances = np.array(cell(baseline, edited, winning))
                if (chances < -1e-12).any():
                    continue
                mass = multinomial.pmf(every, items, np.clip(chances, 0, 1) / np.clip(chances, 0, 1).sum())
                for level in (0.05, 0.05 / 8, 0.05 / 28):
                    assert mass[p <= level].sum() <= level * (1 + 1e-6)
    for retained, winning in ((0.0, 0.0), (0.5, 0.3), (1.0, 0.0)):  # it guesses, whatever the edit does
        chances = [c * (1 - retained), c * retained, (1 - c) * winning, (1 - c) * (1 - winning)]
        assert multinomial.pmf(every, items, chances)[p <= 0.05].sum() <= 0.05


def test_the_statistic_is_the_likelihood_ratio_of_the_multinomial_under_the_constraint():
    edge = Edge(40, 0.5, 0.25, 1)
    counts = np.array([20, 8, 3, 9])
    scores = np.array(edge.scores)
    free = float(counts @ np.log(counts / 40))

    def chances(angles: np.ndarray) -> np.ndarray:
        weights = np.exp(np.concatenate([[0.0], angles]))
        return weights / weights.sum()

    bound = {"type": "eq", "fun": lambda angles: float(chances(angles) @ scores)}
    start = np.log(counts[1:] / counts[0])
    fitted = minimize(lambda angles: -float(counts @ np.log(chances(angles))), start, constraints=bound, tol=1e-12)
    assert edge.root(*counts.tolist()) == pytest.approx(math.sqrt(2 * (free + fitted.fun)), abs=1e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_tail_is_every_outcome_with_at_least_the_ratio_observed(sign):
    items, c, kept = 20, 0.25, 0.5 if sign > 0 else 0.75
    edge = Edge(items, kept, c, sign)
    root = edge.root(10, 4, 1, 5) if sign > 0 else edge.root(0, 14, 2, 4)
    rights, wins = np.arange(6.0, items + 1), np.arange(0.0, items - 6 + 1)
    most = edge.most(rights, wins, root)
    for right, won, retained in np.ndindex(items + 1, items + 1, items + 1):
        if right < 6 or right + won > items or retained > right:
            continue
        distance = sign * (kept * right - retained - won + items * (1 - kept) * c)
        inside = distance > 0 and edge.root(right - retained, retained, won, items - right - won) >= root - 1e-9
        bound = most[right - 6, won]
        assert inside == (retained <= bound if sign > 0 else retained > bound)


def test_without_a_chance_the_tests_are_those_of_today_number_for_number():
    counts = Pairs(20, 6, 2, 12)
    assert p_critical(counts, chance=0.0) == p_critical(Pairs(20, 6, 2))
    assert p_spared(Pairs(2, 24, 1, 13), chance=0.0) == p_spared(Pairs(2, 24, 1))


def test_a_skill_that_is_gone_down_to_chance_is_critical_though_half_of_its_accuracy_is_left():
    # Agreement at block 0: 86.7 % to 44 %, chance 50 %.
    lost = Pairs(75, 55, 11, 9)
    assert p_critical(lost) > 0.3
    assert critical_cells([lost], missing=29, chance=0.5) == [True]


def test_a_baseline_that_only_guesses_loses_and_keeps_nothing():
    for right in (0, 3, 12):
        assert p_critical(Pairs(right, 0, 0, 50 - right), chance=0.25) == 1.0
        assert p_spared(Pairs(0, right, 0, 50 - right), chance=0.25) == 1.0
    assert above_chance(0, 10, 0.0)
    assert above_chance(20, 50, 0.25) == (binom.sf(19, 50, 0.25) <= 0.05)


def test_the_smallest_p_is_that_beyond_the_confidence_region():
    assert p_critical(Pairs(200, 60, 20, 20), chance=0.25) == pytest.approx(BEYOND, rel=1e-2)


def test_the_fewest_right_answers_are_those_with_which_an_edit_that_leaves_guesses_is_critical():
    fewest = fewest_right(8, items=100, chance=0.25)
    assert p_critical(left_to_guessing(fewest, 100, 0.25), chance=0.25) * 8 <= 0.05
    assert p_critical(left_to_guessing(fewest - 1, 100, 0.25), chance=0.25) * 8 > 0.05
    # An edit that leaves fewer than guessing would may be critical below that, and somewhere none is.
    reached = [p_critical(Pairs(right, 0, 0, 100 - right), chance=0.25) * 8 <= 0.05 for right in range(101)]
    assert [out_of_reach("m", "t", right, 100, 8, 0.25) is None for right in range(26, fewest)] == reached[26:fewest]
    assert not all(reached[26:fewest])
    assert out_of_reach("m", "t", fewest, 100, 8, 0.25) is None
    assert "even an edit that leaves only that could not be called" in (out_of_reach("m", "t", 9, 12, 30, 0.5) or "")


def test_the_smallest_loss_is_called_with_about_the_power_that_is_said():
    items, right, c = 100, 90, 0.25
    loss = smallest_loss(right, 8, items, c)
    assert loss is not None
    generator = np.random.default_rng(0)
    retained = generator.binomial(right, 1 - loss + loss * c, size=60)
    won = generator.binomial(items - right, loss * c, size=60)
    called = [
        p_critical(Pairs(right - r, r, w, items - right - w), chance=c) * 8 <= 0.05
        for r, w in zip(retained.tolist(), won.tolist(), strict=True)
    ]
    assert 0.65 <= np.mean(called) <= 0.95
