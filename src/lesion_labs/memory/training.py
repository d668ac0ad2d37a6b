"""Full-batch gradient descent on the exact expected cross-entropy, from zero; several memories of one size at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from lesion.progress import Silent, Watcher
from lesion_labs.memory.model import Codes

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
