"""The half dose: against a curve whose half is known, a plain loop over drawn items, and what is never reached."""

import numpy as np
import pytest

from lesion.statistics.half_dose import half_dose, half_dose_interval

FACTORS = [-1.0, 0.0, 0.25, 0.5]


def plain(baseline: float, left: list[float]) -> float:
    """The first crossing, coming from 1, by one line after another."""
    before, above = 1.0, baseline
    for factor, now in zip(reversed(FACTORS), reversed(left), strict=True):
        if now <= baseline / 2:
            return before if now == above else float(np.interp(baseline / 2, [now, above], [factor, before]))
        before, above = factor, now
    return -np.inf


@pytest.mark.parametrize("chance", [0.0, 0.25])
def test_it_is_the_first_crossing_of_a_plain_loop_over_what_is_above_chance(chance):
    rng = np.random.default_rng(0)
    baseline, left = chance + (1 - chance) * rng.random(300), rng.random((300, 4)) * 0.9
    expected = [plain(float(b), list(each)) for b, each in zip(baseline - chance, left - chance, strict=True)]
    assert half_dose(baseline, left, FACTORS, chance) == pytest.approx(expected)
    assert np.isneginf(expected).any()


def test_the_interval_is_that_of_a_naive_bootstrap_over_the_same_items():
    rng = np.random.default_rng(1)
    baseline = rng.random(80) < 0.9
    edited = np.stack([rng.random(80) < share for share in (0.1, 0.2, 0.3, 0.5)])
    found = half_dose_interval(baseline, edited, FACTORS, 0.9, seed=3, draws=3000)
    drawn = []
    for _ in range(3000):
        items = rng.integers(0, 80, 80)
        drawn.append(plain(float(baseline[items].mean()), [float(each[items].mean()) for each in edited]))
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.05, 0.95]), abs=0.02)
    assert found.value == pytest.approx(plain(float(baseline.mean()), [float(each.mean()) for each in edited]))
    assert found == half_dose_interval(baseline, edited, FACTORS, 0.9, seed=3, draws=3000)


def test_it_covers_the_half_dose_of_a_known_straight_curve():
    """Accuracy 0.8 · factor: half of it is left at 0.5, between the factors 0.25 and 0.75."""
    rng, factors, hits = np.random.default_rng(2), [0.0, 0.25, 0.75], 0
    for _ in range(200):
        luck = rng.random(120)
        right = [luck < 0.8 * factor for factor in (1.0, *factors)]
        of = half_dose_interval(right[0], np.stack(right[1:]), factors, 0.95, seed=0, draws=400)
        hits += of.low <= 0.5 <= of.high
    assert hits / 200 > 0.9


def test_what_is_not_reached_has_no_end_there():
    baseline, none = np.ones(40, dtype=bool), np.ones((2, 40), dtype=bool)
    never = half_dose_interval(baseline, none, [0.0, 0.5], 0.95, seed=0)
    assert (never.value, never.low, never.high, never.reached, never.lowest) == (None, None, None, 0.0, 0.0)
    half = np.arange(40) < 21
    near = half_dose_interval(baseline, np.stack([half, baseline]), [0.0, 0.5], 0.95, seed=0)
    assert near.value is None
    assert near.low is None
    assert 0.0 <= near.high < 0.5
    assert 0.2 < near.reached < 0.8
