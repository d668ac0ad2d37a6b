"""Tails and quantiles of the distributions behind the tests, from scipy.special.

`scipy.stats` has them too, under the same names, but takes half a second to load: a third of a comparison of two logs.
All take and give numbers or arrays, which broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betainc, betaincc, betainccinv, betaincinv, ndtri, stdtr, stdtrit


def normal_isf(tail: Any) -> Any:
    """The standard normal quantile with a chance of `tail` above it."""
    return -ndtri(tail)


def student_sf(t: Any, freedom: Any) -> Any:
    """The chance of Student's t above `t`."""
    return stdtr(freedom, -np.asarray(t))


def student_isf(tail: Any, freedom: Any) -> Any:
    """Student's quantile with a chance of `tail` above it."""
    return -stdtrit(freedom, tail)


def binomial_cdf(most: Any, of: Any, chance: Any) -> Any:
    """The chance of at most `most` of `of`, each with `chance`: 1 − I(chance; most + 1, of − most)."""
    return _binomial(most, of, chance, betaincc, 1.0)


def binomial_sf(count: Any, of: Any, chance: Any) -> Any:
    """The chance of more than `count` of `of`, each with `chance`."""
    return _binomial(count, of, chance, betainc, 0.0)


def _binomial(count: Any, of: Any, chance: Any, tail: Any, beyond: float) -> Any:
    """A tail of the binomial as an incomplete beta function, which has no value below 0 and from `of` on."""
    count, of = np.asarray(count), np.asarray(of)
    within = np.clip(count, 0, np.maximum(of - 1, 0))
    known = tail(within + 1, np.maximum(of - within, 1), chance)
    return np.where(count < 0, 1.0 - beyond, np.where(count >= of, beyond, known))


def beta_ppf(share: Any, a: Any, b: Any) -> Any:
    """The quantile of the beta distribution with a chance of `share` below it."""
    return betaincinv(a, b, share)


def beta_isf(tail: Any, a: Any, b: Any) -> Any:
    """The quantile of the beta distribution with a chance of `tail` above it."""
    return betainccinv(a, b, tail)
