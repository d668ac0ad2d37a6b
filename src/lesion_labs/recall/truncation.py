"""The truncation sweep: every matrix at every kept fraction of its rank, from both sides, beside its controls.

Truncation replaces one matrix by its best approximation of rank ⌊keep · d⌋ (Chen, Bruna and Bietti 2025, after Sharma
et al. 2023). Without controls it is misread: less of a matrix that disturbs is better, whichever part of it is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.progress import Silent, Watcher
from lesion_labs.recall.data import uniforms
from lesion_labs.recall.measurement import Examination
from lesion_labs.recall.model import Weights, matrix, names
from lesion_labs.recall.recipe import Recipe
from lesion_labs.recall.result import Cut, CutMeasures, Side


@dataclass(frozen=True)
class Decomposition:
    """W = left · diag(values) · right, in float64, values descending."""

    left: Float[Tensor, "out rank"]
    values: Float[Tensor, " rank"]
    right: Float[Tensor, "rank in"]

    @classmethod
    def of(cls, weight: Float[Tensor, "out in"]) -> Decomposition:
        """The exact decomposition of a matrix."""
        return cls(*torch.linalg.svd(weight.detach().double().cpu(), full_matrices=False))

    @property
    def rank(self) -> int:
        """The most rank that the matrix can have, min(out, in)."""
        return len(self.values)

    def kept(self, rank: int, side: Side = "top") -> Float[Tensor, "out in"]:
        """The matrix with `rank` components left, those of the largest (`top`) or the smallest singular values."""
        part = slice(0, rank) if side == "top" else slice(self.rank - rank, self.rank)
        return (self.left[:, part] * self.values[part]) @ self.right[part]

    def projected(self, rank: int, seed: int, draw: int) -> Float[Tensor, "out in"]:
        """The matrix behind a random projection of that rank, on the narrower of its two sides.

        The projection is QQᵀ with Q the orthonormal basis of a Gaussian draw, uniform over all subspaces.
        """
        whole = self.kept(self.rank)
        basis = torch.linalg.qr(_gaussian(seed, draw, self.rank)[:, :rank]).Q
        wide = whole.shape[0] < whole.shape[1]
        return basis @ (basis.T @ whole) if wide else (whole @ basis) @ basis.T


def _gaussian(seed: int, draw: int, size: int) -> Float[Tensor, "size size"]:
    """Standard normal numbers, by Box and Muller: a function of seed and draw alone."""
    numbers = uniforms(seed, "projection", torch.full((size,), draw), torch.arange(size), 2 * size)
    radius = (-2 * torch.log1p(-numbers[:, :size])).sqrt()
    return radius * torch.cos(2 * math.pi * numbers[:, size:])


def cuts(name: str, rank: int, recipe: Recipe) -> Iterator[Cut]:
    """All replacements of a matrix that can have so much rank; of fractions that keep as much, the smallest."""
    yield Cut(matrix=name, keep=0.0, rank=0, side="top", control="deletion")
    yield Cut(matrix=name, keep=None, rank=rank - 1, side="bottom", control="drop-top")
    done: set[int] = set()
    for keep in sorted(recipe.keep):
        left = math.floor(keep * rank + 1e-9)  # ⌊0.29 · 100⌋ is 29, whatever floats say
        if left in done:
            continue
        done.add(left)
        yield Cut(matrix=name, keep=keep, rank=left, side="top")
        yield Cut(matrix=name, keep=keep, rank=left, side="bottom")
        if 0 < left < rank:
            for draw in range(recipe.draws):
                yield Cut(matrix=name, keep=keep, rank=left, side=None, control="random", draw=draw)


def replaced(cut: Cut, parts: Decomposition, weight: Float[Tensor, "out in"], seed: int) -> Float[Tensor, "out in"]:
    """What stands in the place of a matrix; the very same matrix where nothing of it is taken away."""
    if cut.rank == parts.rank:
        return weight
    made = parts.projected(cut.rank, seed, cut.draw or 0) if cut.side is None else parts.kept(cut.rank, cut.side)
    return made.to(weight)


def sweep(
    weights: Weights,
    examination: Examination,
    recipe: Recipe,
    watcher: Watcher | None = None,
    name: str = "recall",
    done: Sequence[CutMeasures] = (),
) -> Iterator[list[CutMeasures]]:
    """Every cut of every matrix and of both products W_O W_V, one at a time, with what is measured then.

    Args:
        name: of the training, for the watcher.
        done: rows of an earlier sweep of the same model; matrices in them are left out.

    Yields:
        The rows of each matrix; a random projection has one for each draw.
    """
    watcher = watcher or Silent()
    matrices = {key: matrix(weights, key) for key in names(weights)}
    plan = {key: list(cuts(key, min(weight.shape), recipe)) for key, weight in matrices.items()}
    watcher.begin(name, sum(map(len, plan.values())), len(done), what="truncations")
    unchanged = examination.traces(weights)
    finished = {row.matrix for row in done}
    for key in (key for key in plan if key not in finished):
        parts = Decomposition.of(matrices[key])
        rows = []
        for cut in plan[key]:
            changed = {**weights, key: replaced(cut, parts, matrices[key], recipe.seed)}
            measures = examination.measures(examination.traces(changed, unchanged, key))
            rows.append(CutMeasures(**dict(cut), **dict(measures)))
            watcher.answered(1)
        yield rows
