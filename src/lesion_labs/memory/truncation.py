"""The spectrum of a memory's W, where the noise lies in it, and what is left when only part of it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from lesion_labs.memory.model import Codes, probabilities
from lesion_labs.memory.result import MEASURES, Measures, NoisePlace, Side, Spread, Truncated

EQUAL = 1e-7
"""Singular values nearer to each other than this share of the largest are equal: rounding alone parts them."""


@dataclass(frozen=True)
class Spectrum:
    """W = left · diag(values) · right, without what is zero.

    Attributes:
        values: singular values in descending order.
        alignment: cos² between each left singular vector and the code of the common class; their sum is the part of
            that code that W can reach at all.
        groups: runs of equal singular values: within one, the vectors are a matter of chance, the sums are not.
    """

    values: Float64[np.ndarray, " rank"]
    left: Float64[np.ndarray, "width rank"]
    right: Float64[np.ndarray, "rank width"]
    alignment: Float64[np.ndarray, " rank"]
    groups: tuple[slice, ...]


def spectrum(of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"]) -> Spectrum:
    """The singular value decomposition of W = W_Uᵀ A W_Eᵀ, worked out within the spans of the codes, where W lies."""
    basis, other = of_codes.bases
    core = (basis.T @ of_codes.outputs.T) @ coefficients @ (of_codes.inputs.T @ other)
    left, values, right = np.linalg.svd(core, full_matrices=False)
    kept = values > EQUAL * values[0] if values[0] > 0 else np.zeros(len(values), dtype=bool)
    values, left, right = values[kept], basis @ left[:, kept], right[kept] @ other.T
    return Spectrum(values, left, right, (left.T @ of_codes.common) ** 2, equals(values))


def equals(values: Float64[np.ndarray, " rank"]) -> tuple[slice, ...]:
    """Runs of equal values among descending ones."""
    if not len(values):
        return ()
    cuts = [i for i in range(1, len(values)) if values[i - 1] - values[i] > EQUAL * values[0]]
    return tuple(slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True))


def noise_place(of: Spectrum) -> NoisePlace:
    """Where the noise lies."""
    held = [float(of.alignment[group].sum()) for group in of.groups]
    if max(held, default=0.0) < EQUAL:
        return NoisePlace(side="absent", rank=0, ratio=0.0, alignment=0.0)
    index = int(np.argmax(held))
    group = of.groups[index]
    others = [of.values[other.start] for i, other in enumerate(of.groups) if i != index]
    ratio = float(of.values[group.start] / max(others)) if others else 1.0
    side: Side = "between"
    if group.stop - group.start > 1:
        side = "tied"
    elif index in (0, len(of.groups) - 1):
        side = "bottom" if index else "top"
    return NoisePlace(side=side, rank=group.start + 1, ratio=ratio, alignment=held[index])


TIED = 1e-9
"""Logits nearer to each other than this are equal."""


def measure(logits: Float64[np.ndarray, "outputs inputs"], targets: Int64[np.ndarray, " inputs"]) -> Measures:
    """Evaluate logits against the targets f*, without noise; the last output is the common class."""
    columns = np.arange(len(targets))
    highest = logits >= logits.max(axis=0) - TIED
    p = probabilities(logits)
    return Measures(
        clean_accuracy=float((highest[targets, columns] / highest.sum(axis=0)).mean()),
        p_correct=float(p[targets, columns].mean()),
        p_noise=float(p[-1].mean()),
        clean_loss=float(-np.log(np.maximum(p[targets, columns], 1e-300)).mean()),
    )


@dataclass(frozen=True)
class Cutter:
    """Evaluates what is left of one memory's W when only part of it is kept; `draws` of what is left to chance."""

    codes: Codes
    spectrum: Spectrum
    targets: Int64[np.ndarray, " inputs"]
    draws: int
    random: np.random.Generator

    @property
    def rank(self) -> int:
        """How many singular values W has."""
        return len(self.spectrum.values)

    @cached_property
    def _reading(self) -> Float64[np.ndarray, "outputs rank"]:
        return self.codes.outputs @ self.spectrum.left

    @cached_property
    def _written(self) -> Float64[np.ndarray, "rank inputs"]:
        return self.spectrum.values[:, None] * (self.spectrum.right @ self.codes.inputs)

    def side(self, side: Literal["top", "bottom"], k: int) -> Truncated:
        """Keep the k largest (side `top`) or the k smallest (side `bottom`) singular values.

        A cut through equal singular values keeps a random part of them: the row is `tied`, its measures are means.
        """
        chosen = slice(0, k) if side == "top" else slice(self.rank - k, self.rank)
        cut = k if side == "top" else self.rank - k
        tied = any(group.start < cut < group.stop for group in self.spectrum.groups)
        # Equal values commute with a turn among their vectors.
        turns = (_turn(self.spectrum, self.random) for _ in range(self.draws)) if tied else [np.eye(self.rank)]
        return self._row(k, [self._evaluated(turn[:, chosen]) for turn in turns], side=side, tied=tied)

    def projected(self, k: int) -> Truncated:
        """Project W onto k random directions of its own range: of the same rank, no part of the spectrum favoured."""
        bases = (_directions(self.spectrum.left, k, self.random) for _ in range(self.draws))
        return self._row(k, [self._evaluated(basis) for basis in bases], control="random")

    def deleted(self) -> Truncated:
        """Keep nothing."""
        return self._row(0, [self._evaluated(np.zeros((self.rank, 0)))], control="deletion")

    def _evaluated(self, onto: Float64[np.ndarray, "rank k"]) -> Measures:
        """Measure W projected onto directions of its range, given by the left singular vectors."""
        return measure((self._reading @ onto) @ (onto.T @ self._written), self.targets)

    def _row(
        self,
        k: int,
        draws: Sequence[Measures],
        side: Literal["top", "bottom"] | None = None,
        control: Literal["random", "deletion"] | None = None,
        tied: bool = False,
    ) -> Truncated:
        return Truncated(
            rank=k,
            keep=k / self.rank if self.rank else 0.0,
            side=side,
            control=control,
            tied=tied,
            draws=len(draws),
            **{name: Spread.of([draw.of(name) for draw in draws]) for name in MEASURES},
        )


def truncations(
    of_codes: Codes, of: Spectrum, targets: Int64[np.ndarray, " inputs"], draws: int, seed: int
) -> list[Truncated]:
    """W with k of its components kept, for every k, from the top and from the bottom, and with its controls."""
    cutter = Cutter(of_codes, of, targets, draws, np.random.default_rng([seed, 1]))
    rows = []
    for k in range(cutter.rank + 1):
        rows += [cutter.side("top", k), cutter.side("bottom", k)]
        if 0 < k < cutter.rank:
            rows.append(cutter.projected(k))
    return [*rows, cutter.deleted()]


def _turn(of: Spectrum, random: np.random.Generator) -> Float64[np.ndarray, "rank rank"]:
    """A random rotation within every group of equal singular values."""
    turn = np.zeros((len(of.values), len(of.values)))
    for group in of.groups:
        turn[group, group] = _directions(of.left[:, group], group.stop - group.start, random)
    return turn


def _directions(
    basis: Float64[np.ndarray, "width rank"], k: int, random: np.random.Generator
) -> Float64[np.ndarray, "rank k"]:
    """k random orthonormal directions of the span of an orthonormal basis, in its coordinates.

    They are drawn in the whole space: the directions depend on the span alone, not on its basis, which is left to the
    processor where singular values are equal.
    """
    return np.linalg.qr(basis.T @ random.standard_normal((len(basis), k)))[0]
