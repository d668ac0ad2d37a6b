"""Seeding: where the searches of k-means begin: seeds, first steps and exchanges of centres in a subspace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

# Dimensions of the subspace: so many at least, and twice as many as clusters.
SUBSPACE = 128
# Steps of every start, how many starts exchange centres from there, and how many of those are given back.
FIRST_STEPS = 8
EXCHANGING, FINALISTS = 5, 2
# Exchanges that a finalist tries at most, how many in a row may fail, and how many new centres each tries.
EXCHANGES, FAILURES, TRIED = 60, 6, 30
# Numbers that an intermediate of several starts may have; more starts take turns.
_PIECE = 1 << 23


@dataclass(frozen=True, eq=False)
class Cloud:
    """Distinct points around their mean, how often each occurs, and its squared distance from the mean."""

    x: Float[Tensor, "points width"]
    weights: Float[Tensor, " points"]
    squares: Float[Tensor, " points"]
    mean: Float64[Tensor, " width"]

    @classmethod
    def around_mean(cls, x: Float[Tensor, "points width"], weights: Float[Tensor, " points"]) -> Cloud:
        """Takes `x` over and centres it: distances are differences of products, which must not be far from 0."""
        total = x.new_zeros(x.shape[1], dtype=torch.float64)
        for piece in pieces(len(x)):
            total += weights[piece].double() @ x[piece].double()
        mean = total / weights.double().sum()
        x -= mean.float()
        squares = torch.linalg.vector_norm(x, dim=1).square()  # x·x would be as large as x
        return cls(x, weights, squares, mean.float().double())

    @property
    def moment(self) -> float:
        """Σ w ‖x‖²."""
        return float(self.weights.double() @ self.squares.double())

    def sums(self, labels: Int[Tensor, " points"], clusters: int) -> Float64[Tensor, "clusters width"]:
        """Σ w x over every cluster."""
        sums = self.x.new_zeros(clusters, self.x.shape[1], dtype=torch.float64)
        for piece in pieces(len(self.x)):
            sums.index_add_(0, labels[piece], self.x[piece].double() * self.weights[piece, None])
        return sums

    def inertia(self, labels: Int[Tensor, " points"], centres: Float[Tensor, "clusters width"]) -> float:
        """Σ w ‖x − c‖², in float64."""
        total = 0.0
        for piece in pieces(len(self.x)):
            away = self.x[piece].double() - centres[labels[piece]].double()
            total += float(self.weights[piece].double() @ (away * away).sum(1))
        return total


def pieces(points: int, size: int = 1024) -> Iterator[slice]:
    """Slices of so many points, one after the other."""
    for start in range(0, points, size):
        yield slice(start, start + size)


def beginnings(cloud: Cloud, clusters: int, starts: int, generator: torch.Generator) -> list[Int[Tensor, " points"]]:
    """The labels of the most promising of several starts, found in a subspace of few dimensions.

    Every start is seeded by greedy k-means++ (Arthur & Vassilvitskii 2007) and takes some of Lloyd's steps. The best
    few then exchange centres: one is taken away and another put where it lowers the inertia most (Fränti 2018; Lattanzi
    & Sohler 2019).

    A cluster may come back empty.
    """
    x, weights = cloud.x, cloud.weights
    inside = _subspace(x, weights, max(SUBSPACE, 2 * clusters), generator)
    outside = (cloud.squares - torch.linalg.vector_norm(inside, dim=1).square()).clamp_(min=0)
    at_once = max(1, _PIECE // (clusters * len(x)))
    candidates: list[tuple[float, Tensor]] = []
    for begin in range(0, starts, at_once):
        seeds = _seeds(inside, outside, weights, clusters, min(at_once, starts - begin), generator)
        candidates += _first_steps(inside, weights, seeds)
    candidates.sort(key=lambda start: start[0])
    exchanged = [_exchanged(inside, weights, labels, clusters, generator) for _, labels in candidates[:EXCHANGING]]
    exchanged.sort(key=lambda start: start[0])
    return [labels for _, labels in exchanged[:FINALISTS]]


def _subspace(
    x: Float[Tensor, "points width"], weights: Float[Tensor, " points"], size: int, generator: torch.Generator
) -> Float[Tensor, "points size"]:
    """The points in a subspace of large variance: a power iteration from random directions (Halko et al. 2011, 4.4)."""
    width = x.shape[1]
    if 2 * size > width or len(x) <= size:
        return x
    directions = torch.randn(width, size, generator=generator).to(x.device)
    basis, _ = torch.linalg.qr(x.T @ (x @ directions * weights[:, None]))
    return x @ basis


def _seeds(
    inside: Float[Tensor, "points size"],
    outside: Float[Tensor, " points"],
    weights: Float[Tensor, " points"],
    clusters: int,
    starts: int,
    generator: torch.Generator,
) -> Int[Tensor, "starts clusters"]:
    """Greedy k-means++ of several starts: of 2 + ln k points drawn by squared distance, the one that leaves the least.

    What lies outside the subspace counts as if it were at right angles between any two points.
    """
    points, trials = len(inside), 2 + int(math.log(clusters))
    squares = (inside * inside).sum(1) + outside
    rows = torch.arange(starts, device=inside.device)

    def distances(chosen: Tensor) -> Tensor:
        flat = chosen.reshape(-1)
        squared = torch.addmm(squares.expand(len(flat), points), inside[flat], inside.T, alpha=-2)
        squared.add_(squares[flat, None]).clamp_(min=0)
        squared[torch.arange(len(flat), device=flat.device), flat] = 0
        return squared.view(*chosen.shape, points)

    first = torch.multinomial(weights.double().cpu(), starts, replacement=True, generator=generator).to(inside.device)
    seeds = [first]
    nearest = distances(first)
    for _ in range(1, clusters):
        mass = (nearest * weights).double().cumsum(1)
        drawn = _drawn((starts, trials), generator, mass) * mass[:, -1:]
        tried = torch.searchsorted(mass, drawn, right=True).clamp_(max=points - 1)
        left = torch.minimum(distances(tried), nearest[:, None])
        best = (left @ weights).argmin(1)
        nearest = left[rows, best]
        seeds.append(tried[rows, best])
    return torch.stack(seeds, 1)


def _first_steps(
    inside: Float[Tensor, "points size"], weights: Float[Tensor, " points"], seeds: Int[Tensor, "starts clusters"]
) -> list[tuple[float, Int[Tensor, " points"]]]:
    """The inertia and labels of several starts after some of Lloyd's steps."""
    (starts, clusters), (points, size) = seeds.shape, inside.shape
    weighted = inside * weights[:, None]
    moment = float((weighted * inside).double().sum())
    centres = inside[seeds.view(-1)]
    offsets = (torch.arange(starts, device=inside.device) * clusters)[:, None]
    for step in range(FIRST_STEPS):
        # The nearest centre has the largest x·c − ‖c‖²/2; twice its weighted sum is what it takes from Σ w ‖x‖².
        half = (centres * centres).sum(1).mul_(-0.5)
        closeness = torch.addmm(half[:, None].expand(-1, points), centres, inside.T).view(starts, clusters, points)
        most, labels = closeness.max(1)
        if step == FIRST_STEPS - 1:
            break
        sums, sizes = inside.new_zeros(starts * clusters, size), inside.new_zeros(starts * clusters)
        for each in labels + offsets:
            sums.index_add_(0, each, weighted)
            sizes.index_add_(0, each, weights)
        centres = _means(sums, sizes, centres)
    inertia = (moment - 2 * (most.double() @ weights.double())).tolist()
    return list(zip(inertia, labels, strict=True))


def _exchanged(
    inside: Float[Tensor, "points size"],
    weights: Float[Tensor, " points"],
    labels: Int[Tensor, " points"],
    clusters: int,
    generator: torch.Generator,
) -> tuple[float, Int[Tensor, " points"]]:
    """The inertia and labels after exchanges of centres, with a step of Lloyd's between any two.

    The effect of an exchange is known for all centres at once: a point whose centre goes has its second nearest, or the
    new one.
    """
    points, size = inside.shape
    squares = (inside * inside).sum(1)
    weighted = inside * weights[:, None]
    every = torch.arange(points, device=inside.device)

    def distances(centres: Tensor) -> Tensor:
        offset = (centres * centres).sum(1)[:, None] + squares
        return torch.addmm(offset, centres, inside.T, alpha=-2).clamp_(min=0)

    def means(labels: Tensor, instead: Tensor) -> Tensor:
        sums = inside.new_zeros(clusters, size).index_add_(0, labels, weighted)
        return _means(sums, inside.new_zeros(clusters).index_add_(0, labels, weights), instead)

    centres = means(labels, inside.new_zeros(clusters, size))
    failures = 0
    for _ in range(EXCHANGES):
        away = distances(centres)
        nearest, labels = away.min(0)
        centres = means(labels, centres)
        away[labels, every] = torch.inf
        second = away.amin(0)
        mass = (nearest * weights).double().cumsum(0)
        drawn = _drawn((TRIED,), generator, mass) * mass[-1]
        tried = inside[torch.searchsorted(mass, drawn, right=True).clamp_(max=points - 1)]
        for _ in range(2):  # a new centre, and then the mean of the points that it would take
            takes = (distances(tried) < nearest) * weights
            tried = _means(takes @ inside, takes.sum(1), tried)
        new = distances(tried)
        least = torch.minimum(new, nearest)
        more = (torch.minimum(new, second) - least) * weights
        left = inside.new_zeros(TRIED, clusters).index_add_(1, labels, more) + (least @ weights)[:, None]
        best, gone = divmod(int(left.argmin()), clusters)
        if float(left[best, gone]) < float(nearest @ weights) * (1 - 1e-6):
            centres[gone] = tried[best]
            failures = 0
        else:
            failures += 1
            if failures == FAILURES:
                break
    nearest, labels = distances(centres).min(0)
    return float(nearest.double() @ weights.double()), labels


def _drawn(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Uniform numbers below 1, drawn on the CPU: the same for any device."""
    return torch.rand(shape, generator=generator, dtype=torch.float64).to(like.device)


def _means(
    sums: Float[Tensor, "clusters size"], sizes: Float[Tensor, " clusters"], instead: Float[Tensor, "clusters size"]
) -> Float[Tensor, "clusters size"]:
    """The means of clusters; an empty one keeps its centre."""
    return torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], instead)
