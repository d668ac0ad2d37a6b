"""Recipes: everything that determines an associative memory and what is measured on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lesion.bounds import check
from lesion.errors import UsageError, nearest

CODES = ("orthonormal", "gaussian")
MOST_CLASSES = 256
"""Beyond this the whole lab is no matter of a minute any more."""


@dataclass(frozen=True)
class Recipe:
    """One associative memory.

    Args:
        classes: outputs that are some input's target; the common class c of the noise is one more.
        inputs: inputs to remember, input i with the target i mod `classes`; None for as many as classes.
        width: dimension of the codes.
        noise: probability α that the common class stands in the target's place.
        codes: `orthonormal`, or `gaussian` with independent entries of variance 1/width.
        steps: of full-batch gradient descent.
        draws: of every random control.
        seed: of the codes and of the controls.

    Raises:
        UsageError: such a memory cannot be built; it says what can.
    """

    classes: int = 20
    inputs: int | None = None
    width: int = 128
    noise: float = 0.6
    codes: str = "orthonormal"
    steps: int = 20_000
    draws: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        check(width=self.width, steps=self.steps, draws=self.draws, seed=self.seed)
        if self.classes < 2:
            raise UsageError(f"--classes {self.classes}: a memory needs at least 2 target classes.")
        if self.classes > MOST_CLASSES:
            raise UsageError(f"--classes {self.classes}: the lab goes up to {MOST_CLASSES} target classes.")
        if not math.isfinite(self.noise) or not 0 <= self.noise < 1:
            raise UsageError(
                f"--noise {self.noise:g}: the noise is the probability of the common class, at least 0 and below 1."
            )
        if self.inputs is not None and self.inputs < self.classes:
            raise UsageError(
                f"--inputs {self.inputs}: every one of the {self.classes} target classes needs an input of its own;"
                f" give at least --inputs {self.classes}, or fewer --classes."
            )
        if self.number > 4 * MOST_CLASSES:
            raise UsageError(f"--inputs {self.inputs}: the lab goes up to {4 * MOST_CLASSES} inputs.")
        if self.codes not in CODES:
            raise UsageError(
                f"There are no codes called '{self.codes}'{nearest(self.codes, CODES)}; there are orthonormal and"
                " gaussian."
            )
        if self.width < 1:
            raise UsageError(f"--width {self.width}: codes have at least one dimension.")
        if self.codes == "orthonormal" and self.width < self.needed:
            raise UsageError(
                f"--width {self.width} has no room for {self.needed} orthonormal codes ({self.classes} target classes"
                f" and the common class, {self.number} inputs); give at least --width {self.needed}, or"
                " --codes gaussian."
            )
        if self.steps < 1:
            raise UsageError(f"--steps {self.steps}: training needs at least one step.")
        if self.draws < 1:
            raise UsageError(f"{self.draws} draws of a random control: at least one is needed.")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: a seed is 0 or more.")

    @property
    def number(self) -> int:
        """How many inputs there are."""
        return self.classes if self.inputs is None else self.inputs

    @property
    def needed(self) -> int:
        """The least width with room for orthonormal codes."""
        return max(self.number, self.classes + 1)
