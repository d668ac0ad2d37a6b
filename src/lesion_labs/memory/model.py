"""The linear associative memory: logits of input i are W_U W W_E e_i, and W is all that is trained.

Gradient descent from zero never leaves W = W_Uᵀ A W_Eᵀ, since every gradient is W_Uᵀ R W_Eᵀ with some R. So A, one
number per output and input, is what is trained and kept; W and its singular values follow exactly, at any width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from lesion.progress import Silent, Watcher
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

    @property
    def common(self) -> Float64[np.ndarray, " width"]:
        """The code of the common class, at length 1: the noise direction."""
        return self.outputs[-1] / np.linalg.norm(self.outputs[-1])

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


def weight(of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"]) -> Float64[np.ndarray, "width width"]:
    """W = W_Uᵀ A W_Eᵀ."""
    return of_codes.outputs.T @ coefficients @ of_codes.inputs.T


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
    watcher: Watcher | None = None,
) -> Iterator[tuple[int, Float64[np.ndarray, "runs outputs inputs"]]]:
    """Train one memory per run and give the coefficients A after each of the steps, which ascend.

    The gradient with respect to W is W_Uᵀ (P − Y) W_Eᵀ, so A ← A − rate · (P − Y).

    Args:
        mixtures: Y, the distribution of outputs given each input, of each run.
        watcher: is told of steps done, `REPORTED_EVERY` at a time; the caller has called its `begin`.
    """
    watcher = watcher or Silent()
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
