"""Clusters: how far items that share a template, a relation or a passage say less than as many items of their own.

The mean of differences over items has the cluster-robust variance with Bell and McCaffrey's (2002) correction: unbiased
where items are independent, whatever the sizes of the clusters. For a mean it has a closed form: with e the residuals,
n items and n_g of them in cluster g,

    V = Σ_g (Σ_{i in g} e_i)² / (1 − n_g/n) / n²

Its quantile is Student's with Satterthwaite's degrees of freedom (Imbens and Kolesár 2016, section 3.2), clusters − 1
where all are equally large and fewer where they are not. A bootstrap over clusters has the same limit with many of
them; with fewer than ten it is too narrow (Cameron, Gelbach and Miller 2008), which is the common case here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from lesion.statistics.distributions import normal_isf, student_isf
from lesion.statistics.paired import Contrast


@dataclass(frozen=True)
class Clustered:
    """An interval over clusters beside one over items.

    Attributes:
        design: the design effect (Kish 1965): the variance over clusters ÷ that over items; 2: half as many items of
            their own would say as much.
        widening: how many times as wide the interval is as that over items.
    """

    clusters: int
    freedom: float
    low: float
    high: float
    design: float
    widening: float


def clustered(
    differences: Float[np.ndarray, " items"], clusters: Sequence[str], over_items: Contrast, level: float = 0.95
) -> Clustered | None:
    """The interval of a mean of paired differences, such as baseline − edited, over clusters of items.

    The interval over items (`paired.paired_drop`) is widened about its estimate by √(design effect) and by Student's
    quantile over the normal one. So it keeps its form and its bounds of −1…1 near an end of the scale, where an
    interval of ± t standard errors does not.

    An item without a cluster ("") is one of its own. None where it cannot be computed: fewer than two clusters, or
    differences that are all equal.
    """
    members = numbered(clusters)
    n, count = differences.size, int(members.max(initial=-1)) + 1
    if count < 2 or float(np.ptp(differences)) == 0.0:
        return None
    residuals = differences.astype(np.float64) - differences.mean()
    shares = np.bincount(members) / n
    variance = float((np.bincount(members, residuals) ** 2 / (1.0 - shares)).sum()) / n**2
    design = variance / (float(residuals @ residuals) / (n - 1) / n)
    # The variance is a quadratic form in independent errors: Σλ, Σλ² of its eigenvalues λ, up to a common factor.
    form = (np.diag(shares) - np.outer(shares, shares)) / np.sqrt(np.outer(1.0 - shares, 1.0 - shares))
    freedom = float(np.trace(form) ** 2 / (form**2).sum())
    tail = (1.0 - level) / 2.0
    widening = math.sqrt(design) * float(student_isf(tail, freedom)) / float(normal_isf(tail))
    low = over_items.value - widening * (over_items.value - over_items.low)
    high = over_items.value + widening * (over_items.high - over_items.value)
    return Clustered(count, freedom, max(-1.0, low), min(1.0, high), design, widening)


def numbered(clusters: Sequence[str]) -> Int[np.ndarray, " items"]:
    """The clusters as numbers 0, 1, … in the order of their first items; an item without a name is one of its own."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(name or (place,), len(numbers)) for place, name in enumerate(clusters)], int)
