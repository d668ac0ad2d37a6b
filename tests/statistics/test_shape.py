"""Shape of a curve: places by brute force, p values by hand, levels and power by simulation."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f as fisher
from scipy.stats import ttest_1samp

from lesion.statistics.shape import detectable, lack_of_fit, shape

LAYERS = range(1, 9)


def hinged(layers, at, before=-0.05, after=0.0):
    x = np.asarray(layers, dtype=float)
    return 1 + before * x + (after - before) * np.maximum(0, x - at)


def stepped(layers, at, size=-0.12, slope=-0.03):
    x = np.asarray(layers, dtype=float)
    return 1 + slope * x + size * (x > at)


def autocorrelated(rng, runs, layers, rho=0.8):
    """Noise of which each layer hands a part on to the next, and a line of its own for every run."""
    noise = rng.normal(size=(runs, layers))
    for layer in range(1, layers):
        noise[:, layer] = rho * noise[:, layer - 1] + math.sqrt(1 - rho**2) * noise[:, layer]
    return noise + rng.normal(size=(runs, 1)) + 0.3 * rng.normal(size=(runs, 1)) * np.arange(layers)


def left_over(x, curves, term):
    """Sum over runs of what lines with a term leave over, each run with coefficients of its own."""
    design = np.stack([np.ones_like(x), x, term], axis=1)
    rest = curves.T - design @ np.linalg.lstsq(design, curves.T, rcond=None)[0]
    return float(np.sum(rest**2))


@settings(max_examples=15, deadline=None)
@given(st.integers(5, 14), st.integers(1, 6), st.integers(0, 10**6))
def test_places_are_those_that_leave_least_over_when_every_run_has_its_own_line_and_size(count, runs, seed):
    rng = np.random.default_rng(seed)
    layers = np.cumsum(rng.integers(1, 3, size=count)).tolist()
    x = np.array(layers, dtype=float)
    curves = rng.normal(size=(runs, count))
    found = shape(layers, curves, draws=2)
    steps = {(a + b) / 2: left_over(x, curves, (x > a).astype(float)) for a, b in pairwise(layers)}
    assert steps[found.step.layer] == pytest.approx(min(steps.values()))
    hinges = np.concatenate([np.linspace(a, b, 21) for a, b in pairwise(layers[1:-1])])
    least = min(left_over(x, curves, np.maximum(0, x - t)) for t in hinges)
    assert left_over(x, curves, np.maximum(0, x - found.hinge.layer)) == pytest.approx(least)
    assert x[1] <= found.hinge.layer <= x[-2]


def test_sizes_slopes_and_gains_are_those_of_least_squares_on_the_mean_curve():
    rng = np.random.default_rng(1)
    x = np.array(LAYERS, dtype=float)
    curves = hinged(x, 4.3) + 0.01 * rng.normal(size=(5, 8))
    found = shape(LAYERS, curves, draws=2)
    mean = curves.mean(axis=0)
    line = np.sum((mean - np.polyval(np.polyfit(x, mean, 1), x)) ** 2)
    for one, term in (
        (found.hinge, np.maximum(0, x - found.hinge.layer)),
        (found.step, (x > found.step.layer).astype(float)),
    ):
        design = np.stack([np.ones_like(x), x, term], axis=1)
        coefficients = np.linalg.lstsq(design, mean, rcond=None)[0]
        assert one.size == pytest.approx(coefficients[2])
        assert one.slopes[0] == pytest.approx(coefficients[1])
        assert one.slopes[1] == pytest.approx(coefficients[1] + (coefficients[2] if one.kind == "hinge" else 0))
        assert one.gain == pytest.approx(1 - np.sum((mean - design @ coefficients) ** 2) / line)


def test_p_is_that_of_a_t_test_of_the_runs_own_sizes():
    rng = np.random.default_rng(2)
    x = np.array(LAYERS, dtype=float)
    curves = stepped(x, 3.5, -0.02) + 0.02 * rng.normal(size=(5, 8))
    found = shape(LAYERS, curves, draws=2)
    for one, term in (
        (found.hinge, np.maximum(0, x - found.hinge.layer)),
        (found.step, (x > found.step.layer).astype(float)),
    ):
        design = np.stack([np.ones_like(x), x, term], axis=1)
        sizes = [np.linalg.lstsq(design, curve, rcond=None)[0][2] for curve in curves]
        assert one.p == pytest.approx(ttest_1samp(sizes, 0).pvalue)


def test_the_line_is_tested_along_the_principal_component_and_f_is_the_textbook_s():
    rng = np.random.default_rng(3)
    x, runs = np.array(LAYERS, dtype=float), 5
    curves = hinged(x, 4, -0.02) + 0.02 * rng.normal(size=(runs, 8)) + rng.normal(size=(runs, 1))
    found = lack_of_fit(LAYERS, curves)
    rest = np.stack([curve - np.polyval(np.polyfit(x, curve, 1), x) for curve in curves])
    direction = np.linalg.svd(rest)[2][0]
    assert found.p == pytest.approx(ttest_1samp(rest @ direction, 0).pvalue)
    # Two nested models by explicit design matrices: run offsets with a line, and run offsets with a mean per layer.
    offsets, layers = np.kron(np.eye(runs), np.ones((8, 1))), np.tile(np.eye(8), (runs, 1))
    designs = (np.hstack([offsets, np.tile(x, runs)[:, None]]), np.hstack([offsets, layers]))
    y = curves.ravel()
    squares = [np.sum((y - one @ np.linalg.lstsq(one, y, rcond=None)[0]) ** 2) for one in designs]
    ranks = [np.linalg.matrix_rank(one) for one in designs]
    degrees = (ranks[1] - ranks[0], len(y) - ranks[1])
    f = (squares[0] - squares[1]) / degrees[0] / (squares[1] / degrees[1])
    assert found.degrees == degrees == (6, 28)
    assert found.f == pytest.approx(f)
    assert found.f_p == pytest.approx(fisher.sf(f, *degrees))


@pytest.mark.parametrize("noise", ["independent", "autocorrelated"])
def test_straight_lines_are_rejected_as_often_as_the_level_says_however_layers_vary_together(noise):
    rng = np.random.default_rng(4)
    rejected = {"line": 0, "hinge or step": 0}
    studies = 400
    for _ in range(studies):
        curves = rng.normal(size=(5, 8)) if noise == "independent" else autocorrelated(rng, 5, 8)
        rejected["line"] += lack_of_fit(LAYERS, curves - 0.3 * np.arange(8)).p <= 0.05
    assert abs(rejected["line"] / studies - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / studies)
    for _ in range(60):
        curves = rng.normal(size=(5, 8)) if noise == "independent" else autocorrelated(rng, 5, 8)
        rejected["hinge or step"] += shape(LAYERS, curves, draws=2).departure is not None
    assert rejected["hinge or step"] / 60 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


@pytest.mark.parametrize(("kind", "at"), [("hinge", 4.35), ("step", 2.5)])
def test_a_hinge_and_a_step_are_told_apart_and_found_where_they_are(kind, at):
    rng = np.random.default_rng(5)
    right = covered = 0
    for _ in range(40):
        curve = hinged(LAYERS, at) if kind == "hinge" else stepped(LAYERS, at)
        found = shape(LAYERS, curve + 0.01 * autocorrelated(rng, 5, 8), draws=200)
        right += found.chosen == kind
        one = getattr(found, kind)
        assert one.low <= one.layer <= one.high
        covered += one.low <= at <= one.high
    assert right >= 36
    assert covered >= 36


def test_a_step_that_a_permutation_of_layers_cannot_see_is_found_with_its_place():
    rng = np.random.default_rng(6)
    falls = [-0.018, -0.122, -0.024, -0.016, -0.048, -0.017, -0.053]
    found = shape(LAYERS, np.cumsum([0.85, *falls]) + 0.009 * rng.normal(size=(5, 8)))
    assert (found.chosen, found.step.layer, found.step.low, found.step.high) == ("step", 2.5, 2.5, 2.5)
    assert found.line.p < 0.001


def test_a_curve_that_is_no_line_and_has_neither_is_said_to_have_neither():
    rng = np.random.default_rng(7)
    layers = range(16)
    wave = np.hanning(16) * np.cos(np.pi * np.arange(16))
    # All runs share a wave that no hinge or step describes; steps and hinges differ in sign from run to run.
    signs = np.array([1, -1, 1, -1, 1, -1])[:, None]
    steps = 0.45 * signs * np.sign(np.arange(16) - 7.5)
    curves = wave + steps + 0.05 * rng.normal(size=(6, 16))
    found = shape(layers, curves)
    assert (found.chosen, found.departure) == ("neither", None)
    assert found.line.p <= 0.05 < min(found.hinge.p, found.step.p)


@pytest.mark.parametrize("kind", ["hinge", "step"])
def test_the_detectable_size_is_found_in_about_80_percent_of_fresh_studies(kind):
    rng = np.random.default_rng(8)
    noise = 0.05
    # Of one study of five runs the estimate is rough, so the middle one of several is tried.
    size = float(np.median([detectable(LAYERS, noise * rng.normal(size=(5, 8)))[kind] for _ in range(5)]))
    x, found, studies = np.asarray(LAYERS, dtype=float), 0, 300
    for _ in range(studies):
        at = rng.uniform(2, 7) if kind == "hinge" else rng.integers(1, 8) + 0.5
        term = np.maximum(0, x - at) if kind == "hinge" else (x > at)
        one = shape(LAYERS, size * term + noise * rng.normal(size=(5, 8)), draws=2)
        found += one.line.p <= 0.05 and getattr(one, kind).p <= 0.05
    assert 0.7 <= found / studies <= 0.9


def test_offsets_and_slopes_of_single_runs_change_nothing():
    rng = np.random.default_rng(9)
    curves = stepped(LAYERS, 4.5) + 0.02 * rng.normal(size=(5, 8))
    moved = curves + rng.normal(size=(5, 1)) + rng.normal(size=(5, 1)) * np.arange(8)
    first, second = shape(LAYERS, curves), shape(LAYERS, moved)
    assert second.line.p == pytest.approx(first.line.p)
    for one, other in ((first.hinge, second.hinge), (first.step, second.step)):
        assert (one.layer, one.low, one.high) == (other.layer, other.low, other.high)
        assert (one.p, one.size) == pytest.approx((other.p, other.size))
    assert detectable(LAYERS, curves) == pytest.approx(detectable(LAYERS, moved), rel=0.02)


def test_the_sign_of_eigenvectors_which_differs_between_processors_changes_no_detectable_size(monkeypatch):
    curves = stepped(LAYERS, 4.5) + 0.02 * np.random.default_rng(9).normal(size=(5, 8))
    sizes, eigh = detectable(LAYERS, curves), np.linalg.eigh

    def with_other_signs(matrix):
        values, vectors = eigh(matrix)
        return values, vectors * np.where(np.arange(vectors.shape[-1]) % 2, -1, 1)

    monkeypatch.setattr(np.linalg, "eigh", with_other_signs)
    assert detectable(LAYERS, curves) == pytest.approx(sizes, rel=1e-6)


def test_exact_lines_are_lines_and_one_run_tests_nothing():
    for curve in (1 - 0.1 * np.arange(9.0), np.full(9, 0.3)):
        found = shape(range(9), np.stack([curve, curve]))
        assert (found.chosen, found.line.p, found.step.p, found.hinge.gain) == ("line", 1.0, 1.0, 0.0)
        assert all(math.isnan(size) for size in detectable(range(9), np.stack([curve, curve])).values())
    one = shape(range(9), stepped(range(9), 3.5)[None])
    assert one.chosen == "untested"
    assert one.departure is None
    assert one.step.layer == 3.5
    assert all(math.isnan(value) for value in (one.line.p, one.step.p, one.step.low, one.share))
