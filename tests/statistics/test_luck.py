"""What luck gives: against a loop over all choices of signs."""

import itertools

import numpy as np
import pytest

from lesion.statistics.luck import best_by_luck, p_of_best


def test_the_share_of_draws_is_that_of_all_choices_of_signs():
    generator = np.random.default_rng(0)
    first, second = generator.integers(-1, 2, (3, 6)).astype(float), generator.integers(-1, 2, (3, 4)).astype(float)
    every = [
        max(
            sum(sign * gain for sign, gain in zip(signs[:6], first[each], strict=True)) / 6 / 2
            + sum(sign * gain for sign, gain in zip(signs[6:], second[each], strict=True)) / 4 / 2
            for each in range(3)
        )
        for signs in itertools.product((-1, 1), repeat=10)
    ]
    drawn = best_by_luck([first, second], seed=1, draws=40_000)
    for gain in sorted(set(np.round(every, 9))):
        assert np.mean(drawn >= gain - 1e-9) == pytest.approx(np.mean(np.array(every) >= gain - 1e-9), abs=0.01)


def test_candidates_that_are_one_and_the_same_are_one_candidate():
    gains = np.random.default_rng(2).integers(-1, 2, (1, 30)).astype(float)
    alone = best_by_luck([gains], seed=0)
    assert np.array_equal(best_by_luck([np.repeat(gains, 50, axis=0)], seed=0), alone)


def test_p_counts_the_observed_gain_in():
    assert p_of_best(0.5, np.array([0.1, 0.5, 0.7])) == 0.75
    assert p_of_best(9.0, np.zeros(99)) == 0.01
