"""Tails and quantiles against scipy.stats, which has them too."""

from __future__ import annotations

import numpy as np
from scipy import stats

from lesion.statistics import distributions

TAILS = np.array([1e-12, 1e-4, 0.025, 0.5, 0.8, 1 - 1e-9])


def test_tails_and_quantiles_are_those_of_scipy_stats_in_the_tails_too():
    t, freedom = np.array([[-40.0], [-1.0], [0.0], [2.5], [30.0]]), np.array([1, 2, 5, 99, 5000])
    shapes = np.array([[1, 1], [3, 998], [75, 76]]).T[:, :, None]
    for found, known in (
        (distributions.normal_isf(TAILS), stats.norm.isf(TAILS)),
        (distributions.student_sf(t, freedom), stats.t.sf(t, freedom)),
        (distributions.student_isf(TAILS[:, None], freedom), stats.t.isf(TAILS[:, None], freedom)),
        (distributions.beta_ppf(TAILS, *shapes), stats.beta.ppf(TAILS, *shapes)),
        (distributions.beta_isf(TAILS, *shapes), stats.beta.isf(TAILS, *shapes)),
    ):
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-12)


def test_binomial_tails_are_exact_at_both_ends_and_beyond():
    for of in (1, 7, 100_000):
        counts = np.unique(np.linspace(-1, of + 1, 40).astype(int))[:, None]
        chances = np.array([0.0, 1e-6, 0.3, 0.5, 1.0])
        for found, known in (
            (distributions.binomial_cdf(counts, of, chances), stats.binom.cdf(counts, of, chances)),
            (distributions.binomial_sf(counts, of, chances), stats.binom.sf(counts, of, chances)),
        ):
            np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-300)
