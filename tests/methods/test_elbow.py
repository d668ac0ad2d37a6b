"""Elbow: the exact best bend, an interval that covers, and no bend where a line does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.methods.elbow import elbow


def bent(layers, at, before=-0.1, after=-0.01, start=1.0):
    x = np.asarray(layers, dtype=float)
    return start + before * x + (after - before) * np.maximum(0, x - at)


def brute_force(layers, values, step=0.005):
    """The t of a grid with the least sum of squares, and that sum."""
    x, y = np.asarray(layers, dtype=float), values.mean(axis=0)
    best = (np.inf, 0.0)
    for t in np.arange(x[1], x[-2] + step / 2, step):
        design = np.stack([np.ones_like(x), x, np.maximum(0, x - t)], axis=1)
        rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        best = min(best, (float(rest @ rest), float(t)))
    return best


@settings(max_examples=10, deadline=None)
@given(st.integers(5, 14), st.integers(0, 10**6), st.floats(0, 0.3))
def test_the_bend_is_the_best_of_a_fine_grid(count, seed, noise):
    rng = np.random.default_rng(seed)
    layers = np.cumsum(rng.integers(1, 3, size=count))
    values = bent(layers, rng.uniform(layers[1], layers[-2])) + noise * rng.normal(size=(2, count))
    found = elbow(layers.tolist(), values, draws=2)
    squares, _ = brute_force(layers, values)
    x, y = layers.astype(float), values.mean(axis=0)
    design = np.stack([np.ones_like(x), x, np.maximum(0, x - found.layer)], axis=1)
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    rest = y - design @ coefficients
    assert layers[1] <= found.layer <= layers[-2]
    assert rest @ rest <= squares * (1 + 1e-9) + 1e-15
    np.testing.assert_allclose(found.slopes, [coefficients[1], coefficients[1] + coefficients[2]], atol=1e-6)
    line = y - np.polyval(np.polyfit(x, y, 1), x)
    assert found.gain == pytest.approx(1 - (rest @ rest) / (line @ line), abs=1e-6)


@pytest.mark.parametrize("at", [1.0, 3.4, 5.0, 7.0])
def test_a_curve_of_two_pieces_is_found_exactly(at):
    layers = list(range(9))
    found = elbow(layers, bent(layers, at)[None])
    assert found.layer == pytest.approx(at, abs=1e-9)
    assert found.low == pytest.approx(at, abs=1e-6)
    assert found.high == pytest.approx(at, abs=1e-6)
    assert found.slopes == pytest.approx((-0.1, -0.01))
    assert found.gain == pytest.approx(1.0)
    assert found.bend
    assert found.p < 0.01


def test_a_straight_line_and_a_constant_do_not_bend():
    for curve in (1 - 0.1 * np.arange(9.0), np.full(9, 0.3)):
        found = elbow(list(range(9)), curve[None])
        assert not found.bend
        assert found.p == 1.0
        assert found.gain == 0.0


def test_the_interval_holds_the_bend_and_narrows_with_less_noise():
    rng = np.random.default_rng(0)
    layers = list(range(15))
    widths = []
    for noise in (0.02, 0.002):
        found = elbow(layers, bent(layers, 6.3) + noise * rng.normal(size=(5, 15)))
        assert found.low <= found.layer <= found.high
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 3


def test_the_same_seed_gives_the_same_interval():
    values = bent(range(9), 4.5) + 0.05 * np.random.default_rng(0).normal(size=(5, 9))
    assert elbow(range(9), values, seed=1) == elbow(range(9), values, seed=1)
    assert elbow(range(9), values, seed=1) != elbow(range(9), values, seed=2)


@pytest.mark.parametrize("runs", [1, 5])
def test_of_straight_curves_with_noise_hardly_more_than_a_twentieth_bend(runs):
    rng = np.random.default_rng(runs)
    bends = [
        elbow(range(9), 1 - 0.05 * np.arange(9) + 0.02 * rng.normal(size=(runs, 9)), draws=99).bend for _ in range(100)
    ]
    assert np.mean(bends) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


@pytest.mark.parametrize(("runs", "least"), [(3, 0.9), (5, 0.9), (10, 0.9), (1, 0.87)])
def test_intervals_cover_the_bend_nearly_as_often_as_they_say(runs, least):
    rng = np.random.default_rng(runs)
    covered = 0
    for _ in range(200):
        at = rng.uniform(3, 9)
        values = bent(range(13), at) + 0.02 * rng.normal(size=(runs, 13))
        found = elbow(range(13), values, draws=300)
        covered += found.low <= at <= found.high
    assert covered / 200 >= least


@pytest.mark.parametrize(
    ("layers", "values", "match"),
    [
        ([0, 1, 2, 3], np.zeros((1, 4)), "at least 5"),
        ([0, 1, 1, 3, 4], np.zeros((1, 5)), "rise"),
        (range(5), np.zeros((0, 5)), "at least one"),
        (range(5), np.zeros((2, 6)), r"\[runs, 5\]"),
        (range(5), np.full((1, 5), np.nan), "not finite"),
    ],
)
def test_what_cannot_be_fitted_is_an_error(layers, values, match):
    with pytest.raises(UsageError, match=match):
        elbow(layers, values)


def test_a_level_or_draws_outside_their_range_are_errors():
    with pytest.raises(UsageError, match="level"):
        elbow(range(5), np.zeros((1, 5)), level=1.0)
    with pytest.raises(UsageError, match="0 draws"):
        elbow(range(5), np.zeros((1, 5)), draws=0)
