"""Intervals over clusters: against a plain loop, the algebra of equal clusters, a bootstrap, and known coverage."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from lesion.statistics.clusters import clustered
from lesion.statistics.paired import Contrast, paired_drop


def names(sizes) -> list[str]:
    return [f"c{number}" for number, size in enumerate(sizes) for _ in range(size)]


def loop(differences: np.ndarray, clusters: list[str]) -> tuple[float, float]:
    """Bell and McCaffrey's variance of a mean and its degrees of freedom, by whole matrices."""
    n = differences.size
    annihilator = np.eye(n) - np.full((n, n), 1 / n)
    residuals = annihilator @ differences
    variance, vectors = 0.0, []
    for cluster in dict.fromkeys(clusters):
        inside = np.flatnonzero(np.array(clusters) == cluster)
        values, basis = np.linalg.eigh(annihilator[np.ix_(inside, inside)])
        adjusted = basis @ np.diag(values**-0.5) @ basis.T
        variance += float(np.ones(inside.size) @ adjusted @ residuals[inside]) ** 2 / n**2
        vectors.append(annihilator[:, inside] @ adjusted @ np.ones(inside.size) / n)
    form = np.array([[a @ b for a in vectors] for b in vectors])
    return variance, float(np.trace(form) ** 2 / (form**2).sum())


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (1, 2, 5, 9, 4), (12, 2)])
def test_variance_and_degrees_of_freedom_are_those_of_the_matrices(sizes):
    rng = np.random.default_rng(1)
    differences, clusters = rng.integers(-1, 2, sum(sizes)).astype(float), names(sizes)
    item = Contrast(float(differences.mean()), float(differences.mean()) - 0.1, float(differences.mean()) + 0.2)
    found = clustered(differences, clusters, item, 0.9)
    variance, freedom = loop(differences, clusters)
    assert found.design == pytest.approx(variance / (differences.var(ddof=1) / differences.size))
    assert found.freedom == pytest.approx(freedom)
    widening = math.sqrt(found.design) * student.isf(0.05, freedom) / norm.isf(0.05)
    ends = max(-1.0, item.value - 0.1 * widening), min(1.0, item.value + 0.2 * widening)
    assert (found.low, found.high) == pytest.approx(ends)


def test_items_of_their_own_have_no_design_effect():
    differences = np.array([1.0, 0, 0, 1, 0, -1, 1, 0])
    found = clustered(differences, [""] * 8, Contrast(0.25, 0.0, 0.5))
    assert (found.clusters, found.design, found.freedom) == (8, pytest.approx(1.0), pytest.approx(7.0))


def test_with_many_clusters_it_is_the_bootstrap_over_clusters():
    rng = np.random.default_rng(2)
    sizes = rng.integers(3, 9, 80)
    clusters = names(sizes)
    chance = np.repeat(rng.beta(1, 1, 80), sizes)
    right = np.ones(chance.size, dtype=bool)
    edited = rng.random(chance.size) < chance
    differences = right.astype(float) - edited
    found = clustered(differences, clusters, paired_drop(right, edited))
    sums = np.bincount(np.repeat(np.arange(80), sizes), differences)
    draws = rng.integers(0, 80, (4000, 80))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.012)


@pytest.mark.parametrize("sizes", [(10,) * 8, (4, 6, 8, 10, 12, 14, 16, 30)])
def test_it_covers_where_clusters_agree_and_the_interval_over_items_does_not(sizes):
    """Intra-class correlation 1/4: chances of a loss drawn per cluster from Beta(1.2, 1.8), mean 0.4."""
    rng = np.random.default_rng(3)
    clusters = names(sizes)
    studies, covered, naive = 400, 0, 0
    for _ in range(studies):
        lost = rng.random(len(clusters)) < np.repeat(rng.beta(1.2, 1.8, len(sizes)), sizes)
        item = paired_drop(np.ones(lost.size, dtype=bool), ~lost)
        found = clustered(lost.astype(float), clusters, item)
        covered += found.low <= 0.4 <= found.high
        naive += item.low <= 0.4 <= item.high
    assert covered / studies > 0.92
    assert naive / studies < 0.8


def test_one_cluster_or_equal_differences_have_no_such_interval():
    item = Contrast(0.5, 0.3, 0.7)
    assert clustered(np.array([1.0, 0.0]), ["a", "a"], item) is None
    assert clustered(np.array([1.0, 1.0]), ["a", "b"], item) is None
