"""What the memory is to remember: every input's target, and the exact distribution of what it is trained on."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64


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
