"""The linear associative memory: logits of input i are W_U W W_E e_i, and W is all that is trained.

Gradient descent from zero never leaves W = W_Uᵀ A W_Eᵀ, since every gradient is W_Uᵀ R W_Eᵀ with some R. So A, one
number per output and input, is what is trained and kept; W and its singular values follow exactly, at any width. Where
the noise lies in its spectrum, and what is left when only part of it is kept, stand below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from lesion.progress import SILENT, Watcher
from lesion_labs.memory.result import MEASURES, Measures, NoisePlace, Side, Spread, Truncated
from lesion_labs.memory.study import MemoryStudy


@dataclass(frozen=True)
class Codes:
    """The vectors that stand for outputs (rows of W_U) and inputs (columns of W_E); frozen in training.

    The last output is the common class c.
    """

    outputs: Float64[np.ndarray, "outputs width"]
    inputs: Float64[np.ndarray, "width inputs"]

    @cached_property
    def output_gram(self) -> Float64[np.ndarray, "outputs outputs"]:
        """W_U W_Uᵀ."""
        return self.outputs @ self.outputs.T

    @cached_property
    def input_gram(self) -> Float64[np.ndarray, "inputs inputs"]:
        """W_Eᵀ W_E."""
        return self.inputs.T @ self.inputs

    @cached_property
    def bases(self) -> tuple[Float64[np.ndarray, "width r"], Float64[np.ndarray, "width s"]]:
        """Orthonormal bases of what the output codes and the input codes span."""
        return np.linalg.qr(self.outputs.T)[0], np.linalg.qr(self.inputs)[0]


def targets(classes: int, inputs: int) -> Int64[np.ndarray, " inputs"]:
    """f*: input i has the target i mod classes, so that no class has more than one input more than another."""
    return np.arange(inputs, dtype=np.int64) % classes


def mixture(classes: int, inputs: int, noise: float) -> Float64[np.ndarray, "outputs inputs"]:
    """The distribution of outputs given each input: f*(i) with probability 1 − α, the common class c, the last, with α.

    Training on these columns is training on the expected cross-entropy: nothing is sampled.
    """
    distribution = np.zeros((classes + 1, inputs))
    distribution[targets(classes, inputs), np.arange(inputs)] = 1 - noise
    distribution[classes] = noise
    return distribution


def codes(study: MemoryStudy) -> Codes:
    """The codes of a study's memory, drawn by its seed; gaussian ones have independent entries of variance 1/width."""
    random = np.random.default_rng([study.seed, 0])
    outputs = random.standard_normal((study.width, study.classes + 1))
    inputs = random.standard_normal((study.width, study.inputs))
    if study.codes == "orthonormal":
        return Codes(np.linalg.qr(outputs)[0].T, np.linalg.qr(inputs)[0])
    return Codes(outputs.T / study.width**0.5, inputs / study.width**0.5)


def logits(
    of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"]
) -> Float64[np.ndarray, "outputs inputs"]:
    """W_U W W_E, a column per input."""
    return of_codes.output_gram @ coefficients @ of_codes.input_gram


def probabilities(of_logits: Float64[np.ndarray, "outputs inputs"]) -> Float64[np.ndarray, "outputs inputs"]:
    """The softmax of every column."""
    powers = np.exp(of_logits - of_logits.max(axis=0))
    return powers / powers.sum(axis=0)


REPORTED_EVERY = 500
"""Steps between two reports to the watcher."""


def measured_steps(steps: int, most: int = 28) -> list[int]:
    """Step numbers from 1 to `steps`, about evenly spaced in their logarithm, both ends among them."""
    return sorted({round(step) for step in np.geomspace(1, steps, most)})


def rate(of_codes: Codes) -> float:
    """The learning rate 1/(‖W_U‖² ‖W_E‖²), 1 with orthonormal codes.

    The loss is a sum over inputs. Softmax has curvature 1/2 at most, hence the loss has ‖W_U‖² ‖W_E‖² / 2, and this
    step is half of what is sure to descend.
    """
    return float(1 / (np.linalg.norm(of_codes.outputs, 2) ** 2 * np.linalg.norm(of_codes.inputs, 2) ** 2))


def descend(
    of_codes: Sequence[Codes],
    mixtures: Float64[np.ndarray, "runs outputs inputs"],
    steps: Sequence[int],
    watcher: Watcher = SILENT,
) -> Iterator[tuple[int, Float64[np.ndarray, "runs outputs inputs"]]]:
    """Train one memory per run and give the coefficients A after each of the steps, which ascend.

    The gradient with respect to W is W_Uᵀ (P − Y) W_Eᵀ, so A ← A − rate · (P − Y).

    Args:
        mixtures: Y, the distribution of outputs given each input, of each run.
        watcher: is told of steps done, `REPORTED_EVERY` at a time; the caller has called its `begin`.
    """
    outputs = np.stack([c.output_gram for c in of_codes])
    inputs = np.stack([c.input_gram for c in of_codes])
    plain = all(np.allclose(gram, np.eye(gram.shape[-1])) for gram in (outputs, inputs))
    rates = np.array([rate(c) for c in of_codes])[:, None, None]
    coefficients = np.zeros_like(mixtures)
    measured = set(steps)
    for step in range(1, steps[-1] + 1):
        # With orthonormal codes both products are by the unit matrix: most of the work of a step.
        softmax = coefficients.copy() if plain else outputs @ coefficients @ inputs
        softmax -= softmax.max(axis=1, keepdims=True)
        np.exp(softmax, out=softmax)
        softmax /= softmax.sum(axis=1, keepdims=True)
        coefficients -= rates * (softmax - mixtures)
        if step % REPORTED_EVERY == 0:
            watcher.answered(REPORTED_EVERY)
        if step in measured:
            yield step, coefficients.copy()
    watcher.answered(steps[-1] % REPORTED_EVERY)


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
    noise = of_codes.outputs[-1] / np.linalg.norm(of_codes.outputs[-1])
    return Spectrum(values, left, right, (left.T @ noise) ** 2, equals(values))


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
    ends: dict[int, Side] = {len(of.groups) - 1: "bottom", 0: "top"}
    side = "tied" if group.stop - group.start > 1 else ends.get(index, "between")
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
    def _sides(self) -> tuple[Float64[np.ndarray, "outputs rank"], Float64[np.ndarray, "rank inputs"]]:
        """What reads each component, and what each holds of every input."""
        of = self.spectrum
        return self.codes.outputs @ of.left, of.values[:, None] * (of.right @ self.codes.inputs)

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
        read, held = self._sides
        return measure((read @ onto) @ (onto.T @ held), self.targets)

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
