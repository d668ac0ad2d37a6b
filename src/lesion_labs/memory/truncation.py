"""What is left of a memory when only part of its spectrum is kept, beside random parts of the same rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from lesion_labs.memory.model import Codes, probabilities
from lesion_labs.memory.result import MEASURES, Measures, Spread, Truncated
from lesion_labs.memory.spectrum import Spectrum

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
