"""What the spectrum must be with orthonormal codes and as many inputs of every class: three numbers say it all.

The logits of an input are then A's column itself. Softmax moves each column on its own, and by symmetry column i holds
only a (at its target), b (at the common class) and g (at the m − 1 other targets), with a + b + (m − 1) g = 0, since
the entries of Y − P sum to 0. With m inputs, A = (a − g) I + g 11ᵀ over a last row b 1ᵀ, and

    AᵀA = (a − g)² (I − 11ᵀ/m) + (m + 1) b² 11ᵀ/m        (for a + (m − 1) g = −b)

so W has m − 1 equal singular values a − g, which tell the inputs apart (the *signal*), and one of √(m + 1) |b|, whose
left vector is e_c − (1/m) Σ e_k: the *noise*, with m/(m + 1) of the common class's code. r inputs per class repeat
every column r times, which multiplies all of them by √r.

- First step: Y − P gives a − g = 1 − α and b = α − 1/(m + 1). The noise is on top when α > 1/√(m + 1).
- Late: the others die out, a − b → δ = log((1 − α)/α), and with G = −g
      σ_noise/σ_signal → √(m + 1) ((m − 1) G − δ) / ((m + 1) G + δ),
  which goes to √(m + 1)(m − 1)/(m + 1) as G grows like log(steps): the noise is on top when m > 3.
- α = 1/2 makes a = b throughout, so the ratio has its late value from the first step on.

Hence with m > 3 the noise begins at the bottom and rises to the top when α < 1/√(m + 1); with m = 2 it falls from the
top to the bottom when α > 1/√3; with m = 3 nothing flips, and only α = 1/2 is a tie before the end of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def first_ratio(classes: int, noise: float) -> float:
    """σ_noise/σ_signal after the first step."""
    return math.sqrt(classes + 1) * abs(noise - 1 / (classes + 1)) / (1 - noise)


def late_ratio(classes: int) -> float:
    """The limit of σ_noise/σ_signal: .577, 1, 1.34, 4.15 for 2, 3, 4, 20 classes. Noise must be above 0."""
    return math.sqrt(classes + 1) * (classes - 1) / (classes + 1)


def threshold(classes: int) -> float:
    """The noise α above which the noise is on top after the first step."""
    return 1 / math.sqrt(classes + 1)


def singular_values(classes: int, repeats: int, noise: float, steps: Sequence[int]) -> list[tuple[float, float]]:
    """(σ_signal, σ_noise) with so many inputs per class after each of the steps (ascending), at rate 1 from zero.

    The first stands m − 1 times in the spectrum.
    """
    a = b = g = 0.0
    after, measured = [], set(steps)
    for step in range(1, max(steps) + 1):
        top = max(a, b, g)
        of_a, of_b, of_g = math.exp(a - top), math.exp(b - top), math.exp(g - top)
        total = of_a + of_b + (classes - 1) * of_g
        a += 1 - noise - of_a / total
        b += noise - of_b / total
        g -= of_g / total
        if step in measured:
            after.append((math.sqrt(repeats) * (a - g), math.sqrt(repeats * (classes + 1)) * abs(b)))
    return after
