"""k-means: clusters of many vectors with the least summed squared distance, from several starts at once.

The starts begin in a subspace (`kmeans_seeding.py`). The best few go on with all dimensions, by Hartigan's rule (1975)
before Lloyd's: a point moves where that lowers the sum although its going and coming moves both centres. Lloyd's rule
stops earlier: in many dimensions a point pulls the centre of its cluster towards itself (Telgarsky & Vattani 2010).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from lesion.errors import UsageError
from lesion.statistics.kmeans_seeding import Cloud, beginnings, pieces

# What a move must gain, as a share of the point's squared distance from the middle: float32 makes less of nothing.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Clustering:
    """Clusters of points.

    Attributes:
        labels: the cluster of every point, from 0: that of the nearest centre in float32.
        centres: the mean of every cluster.
        inertia: summed squared distances of the points to their centres; float64.
        iterations: steps of the winning start, with all dimensions.
    """

    labels: Int[np.ndarray, " tokens"]
    centres: Float32[np.ndarray, "clusters width"]
    inertia: float
    iterations: int


def kmeans(
    points: Float[Tensor, "tokens width"],
    clusters: int,
    *,
    starts: int = 10,
    seed: int,
    iterations: int = 300,
    tolerance: float = 1e-4,
    overwrite: bool = False,
) -> Clustering:
    """Cluster points where they lie: distances in float32, sums and inertia in float64.

    Points that occur several times are clustered once, weighted by their number. No cluster is empty. A seed gives the
    same clusters again on the same machine, on a CPU with as many threads.

    All `starts` are compared after a few steps, the best five again after exchanges of centres, and the best two of
    those to the end, with at most so many `iterations` with all dimensions. These are compared once a step lowers their
    inertia by less than the share `tolerance`; the best goes on to a tenth of it, and then by Lloyd's rule until no
    point moves. With `overwrite` the points are not needed afterwards, so that a copy can be spared.
    """
    if not all(bool(points[piece].isfinite().all()) for piece in pieces(len(points))):
        raise UsageError("A point is not finite; it has no distance from any centre.")
    _, first, inverse, counts = np.unique(_digests(points), return_index=True, return_inverse=True, return_counts=True)
    if len(first) < clusters:
        raise UsageError(
            f"{clusters} clusters were asked for, and there are {len(first):,} distinct points among {len(points):,};"
            f" ask for fewer clusters."
        )
    order = np.argsort(first, kind="stable")  # distinct points in the order of the tokens
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    kept = points.detach()
    if len(first) < len(points):
        kept = kept[torch.from_numpy(first[order]).to(kept.device)]
    working_copy = kept.float()
    if not overwrite and working_copy.data_ptr() == points.data_ptr():
        working_copy = working_copy.clone()
    cloud = Cloud.around_mean(working_copy, torch.from_numpy(counts[order]).to(working_copy))
    with _in_one_order(points.device):
        best = _best(cloud, clusters, starts, iterations, tolerance, torch.Generator().manual_seed(seed % 2**63))
    centres = (best.sums / best.sizes[:, None]).float()
    return Clustering(
        best.labels.cpu().numpy()[place[inverse]],
        (centres.double() + cloud.mean).float().cpu().numpy(),
        cloud.inertia(best.labels, centres),
        best.steps,
    )


@contextmanager
def _in_one_order(device: torch.device) -> Iterator[None]:
    """Inside, an accelerator adds up in the same order every time."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        if device.type != "cpu":
            warnings.simplefilter("ignore")  # products are warned of, although they too are the same every time
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _digests(points: Float[Tensor, "tokens width"]) -> np.ndarray:
    """128 bits of every point, equal where points are equal: sums of its bits times odd numbers, modulo 2^64, twice.

    Two different points of a million share them with a chance of about 10⁻²⁰. No copy of the points is made.
    """
    odd = np.random.default_rng(0).integers(2**63, size=(2, points.shape[1]), dtype=np.uint64) * 2 + 1
    digests = np.empty((len(points), 2), dtype=np.uint64)
    for piece in pieces(len(points), 256):
        rows = points[piece].detach().to("cpu", torch.float32) + 0.0  # −0 becomes the 0 that it equals
        # The high half of a product depends on all bits, the low half of it only on the low ones.
        bits = np.ascontiguousarray(rows.numpy()).view(np.uint32).astype(np.uint64)
        for column, factors in enumerate(odd):
            mixed = (bits + factors) * (factors ^ (factors >> np.uint64(17)) | np.uint64(1))
            digests[piece, column] = ((mixed ^ (mixed >> np.uint64(32))) * factors).sum(axis=1, dtype=np.uint64)
    return digests.view(np.dtype((np.void, 16))).ravel()


def _best(
    cloud: Cloud, clusters: int, starts: int, iterations: int, tolerance: float, generator: torch.Generator
) -> _Search:
    """The best search of all starts, at its end."""
    finalists = []
    for labels in beginnings(cloud, clusters, starts, generator):
        search = _Search(cloud, labels, clusters)
        search.go(iterations, tolerance)
        finalists.append(search)
    best = min(finalists, key=lambda search: search.inertia)
    best.go(iterations, tolerance / 10)
    best.go(iterations, 0.0, lloyd=True)
    return best


class _Search:
    """One start with all dimensions: its clusters, and the steps that improve them."""

    def __init__(self, cloud: Cloud, labels: Int[Tensor, " points"], clusters: int) -> None:
        self.cloud, self.labels, self.steps = cloud, labels.clone(), 0
        self.sums = cloud.sums(self.labels, clusters)
        self.sizes = cloud.x.new_zeros(clusters).index_add_(0, self.labels, cloud.weights)
        self.moment = cloud.moment
        self._fill()
        self.inertia = self._inertia(self.sums, self.sizes)
        self._distances = cloud.x.new_empty(clusters, len(cloud.x))
        self._moved = torch.arange(clusters, device=cloud.x.device)  # clusters whose distances are out of date

    def go(self, iterations: int, tolerance: float, lloyd: bool = False) -> None:
        """Steps until one lowers the inertia by less than a share of it, or none is left."""
        while self.steps < iterations:
            self.steps += 1
            before = self.inertia
            if not self._step(lloyd) or before - self.inertia < tolerance * before:
                return

    def _step(self, lloyd: bool) -> bool:
        """Move every point that gains by moving; where together they lose, those that gain most. Whether any moved."""
        distances, labels, weights = self._measured(), self.labels, self.cloud.weights
        points = torch.arange(len(labels), device=labels.device)
        costs = distances
        if not lloyd:
            # What a point adds to a cluster when it comes, and what it takes from its own when it goes.
            costs = torch.empty_like(distances)
            for cluster, size in enumerate(self.sizes):
                torch.mul(distances[cluster], size / (size + weights), out=costs[cluster])
            size = self.sizes[labels]
            rest = size - weights
            stays = torch.where(rest > 0, distances[labels, points] * size / rest.clamp(min=1), 0.0)
            costs[labels, points] = stays
        least, nearest = costs.min(0)
        gain = (costs[labels, points] - least) * weights
        going = ((nearest != labels) & (gain > _ROUNDING * self.cloud.squares * weights)).nonzero()[:, 0]
        if len(going) == 0:
            return False
        ordered = False
        while True:
            sums, sizes = self._after(going, nearest[going])
            inertia = self._inertia(sums, sizes) if bool((sizes > 0).all()) else math.inf
            if inertia < self.inertia:
                break
            if len(going) == 1:
                return False
            if not ordered:
                going, ordered = going[gain[going].argsort(descending=True, stable=True)], True
            going = going[: len(going) // 2]
        self._moved = torch.unique(torch.cat([labels[going], nearest[going]]))
        self.sums, self.sizes, self.inertia = sums, sizes, inertia
        self.labels[going] = nearest[going]
        return True

    def _measured(self) -> Float[Tensor, "clusters points"]:
        """Squared distances of all points from all centres; only those of centres that moved are computed anew."""
        if len(moved := self._moved):
            centres = (self.sums[moved] / self.sizes[moved, None]).float()
            offset = (centres * centres).sum(1)[:, None] + self.cloud.squares
            self._distances[moved] = torch.addmm(offset, centres, self.cloud.x.T, alpha=-2).clamp_(min=0)
            self._moved = moved[:0]
        return self._distances

    def _after(self, going: Int[Tensor, " going"], to: Int[Tensor, " going"]) -> tuple[Tensor, Tensor]:
        sums, sizes = self.sums.clone(), self.sizes.clone()
        for piece in pieces(len(going)):
            place, target = going[piece], to[piece]
            weights = self.cloud.weights[place]
            moving = self.cloud.x[place].double() * weights[:, None]
            sums.index_add_(0, target, moving).index_add_(0, self.labels[place], moving, alpha=-1)
            sizes.index_add_(0, target, weights).index_add_(0, self.labels[place], weights, alpha=-1)
        return sums, sizes

    def _inertia(self, sums: Float64[Tensor, "clusters width"], sizes: Float[Tensor, " clusters"]) -> float:
        """Σ w ‖x‖² − Σ ‖sum‖² / size, which is Σ w ‖x − c‖²."""
        return self.moment - float(((sums * sums).sum(1) / sizes).sum())

    def _fill(self) -> None:
        """Give every empty cluster the point farthest from its centre, of those that are not alone."""
        for cluster in (self.sizes == 0).nonzero()[:, 0].tolist():
            centres = (self.sums / self.sizes.clamp(min=1)[:, None]).float()
            far = torch.cat(
                [
                    (self.cloud.x[piece] - centres[self.labels[piece]]).square().sum(1)
                    for piece in pieces(len(self.labels))
                ]
            )
            far[torch.bincount(self.labels, minlength=len(self.sizes))[self.labels] < 2] = -1
            point = far.argmax()[None]
            self.sums, self.sizes = self._after(point, torch.full_like(point, cluster))
            self.labels[point] = cluster
