"""k-means: clusters of many vectors, from several starts, with the least summed squared distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int
from torch import Tensor

from lesion.errors import UsageError


@dataclass(frozen=True, eq=False)
class Clustering:
    """Clusters of points.

    Attributes:
        labels: [tokens] the cluster of every point, from 0: the one whose centre is nearest.
        centres: [clusters, width] the mean of every cluster.
        inertia: summed squared distances of the points to the centres of their clusters; float64.
        iterations: of the start that won.
    """

    labels: Int[np.ndarray, " tokens"]
    centres: Float32[np.ndarray, "clusters width"]
    inertia: float
    iterations: int


def distinct(points: Float[Tensor, "tokens width"]) -> int:
    """How many different points there are."""
    return len(np.unique(_bytes(points)))


def _bytes(points: Float[Tensor, "tokens width"]) -> np.ndarray:
    """Every point as one value that can be sorted. Adding 0 makes −0 the 0 that it equals."""
    rows = np.ascontiguousarray((points.detach().cpu().float() + 0.0).numpy())
    return rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()


def kmeans(
    points: Float[Tensor, "tokens width"],
    clusters: int,
    *,
    starts: int = 10,
    seed: int,
    iterations: int = 300,
    tolerance: float = 1e-4,
) -> Clustering:
    """Stand-in."""
    from sklearn.cluster import KMeans

    if (count := distinct(points)) < clusters:
        raise UsageError(
            f"{clusters} clusters were asked for, and there are {count:,} distinct points among {len(points):,}; ask"
            f" for fewer clusters."
        )
    fit = KMeans(clusters, n_init=starts, random_state=seed % 2**32, max_iter=iterations, tol=tolerance).fit(
        points.float().numpy()
    )
    return Clustering(fit.labels_.astype(np.int64), fit.cluster_centers_, float(fit.inertia_), fit.n_iter_)
