"""Recipes: everything that determines a training of the recall laboratory and its truncations, and three presets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict
from torch import Tensor

from lesion.bounds import check
from lesion.core.differences import differences
from lesion.errors import UsageError, nearest
from lesion_labs.recall.data import VARIANTS, Task, Variant
from lesion_labs.recall.language import Language
from lesion_labs.recall.model import FEED_FORWARDS, initial
from lesion_labs.recall.study_file import SMALLEST, FeedForward, Optimiser

MOST_SEED = 2**64 - 1
RATES: dict[Optimiser, float] = {"sgd": 0.03, "adam": 0.001}
LEAST = {
    "vocabulary": SMALLEST, "length": 3, "width": 2, "batch": 1, "measured": 1, "steps": 0, "seed": 0, "draws": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a training and what is measured of it.

    Args:
        preset: the preset it began from.
        variant: where the questions are (`data.Task`).
        noise: α, in [0, 1).
        vocabulary: V, tokens.
        length: T, tokens that a model reads.
        width: d.
        feed_forward: F in both blocks.
        optimiser: `sgd` with momentum and weight decay, or `adam` without either.
        learning_rate: at the start.
        falls: the learning rate falls linearly to 0 over the second half. (Without it p(τ) swings by some .07.)
        batch: sequences in one step.
        steps: of the optimiser.
        own_answers: whether ȳ may be q or τ.
        corpus: SHA-256 of the text that the tables come from; None for the generator.
        seed: of the weights, of a generated language, and of all sequences.
        measured: sequences in each of the two sets, clean and noisy, that everything is measured on.
        keep: kept fractions of the rank in the truncation sweep.
        draws: random projections beside each truncation.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    preset: str = "quick"
    variant: Variant = "released"
    noise: float = 0.6
    vocabulary: int = 32
    length: int = 48
    width: int = 128
    feed_forward: FeedForward = "mlp"
    optimiser: Optimiser = "sgd"
    learning_rate: float = RATES["sgd"]
    momentum: float = 0.9
    weight_decay: float = 1e-4
    falls: bool = True
    batch: int = 32
    steps: int = 600
    own_answers: bool = False
    corpus: str | None = None
    seed: int = 0
    measured: int = 256
    keep: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5)
    draws: int = 3

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in LEAST}
        check(**{name: count for name, count in counts.items() if name != "seed"})
        for name, count in counts.items():
            if count < LEAST[name]:
                raise UsageError(f"The {name} must be at least {LEAST[name]}, not {count}.")
        if self.seed > MOST_SEED:
            raise UsageError(f"The seed {self.seed} is too large; PyTorch takes whole numbers up to {MOST_SEED}.")
        if not (math.isfinite(self.noise) and 0 <= self.noise < 1):
            raise UsageError(f"The noise must be a probability from 0 to below 1, not {self.noise:g}.")
        if wrong := [keep for keep in self.keep if not 0 <= keep <= 1]:
            raise UsageError(f"A kept fraction of the rank must be from 0 to 1, not {wrong[0]:g}.")

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        return self.learning_rate * (min(1.0, 2 * (1 - step / self.steps)) if self.falls else 1.0)

    def task(self, language: Language, noise: float | None = None) -> Task:
        """What is drawn under this recipe, with its own noise or another."""
        noise = self.noise if noise is None else noise
        return Task(language, noise, self.length, self.variant, own_answers=self.own_answers)


_RELEASED: dict[str, object] = {
    "noise": 0.5,
    "vocabulary": 65,
    "length": 256,
    "width": 256,
    "falls": False,
    "batch": 512,
    "steps": 5_000,
    "own_answers": True,
    "measured": 512,
}
PRESETS: dict[str, dict[str, object]] = {
    # A minute on a CPU. ȳ is never q or τ: with T = 48, a sixth of all questions would come from runs of a trigger that
    # answers itself. At α = .6 the full model's best guess is τ; at .5 it is a tie.
    "quick": {},
    "released": _RELEASED,
    "paper": {**_RELEASED, "variant": "paper", "own_answers": False},
}


def preset(name: str, **changes: Any) -> Recipe:
    """The recipe of a preset with some values changed; None changes nothing.

    Another optimiser brings its own learning rate, unless one is given.
    """
    values: dict[str, Any] = {"preset": name} | {key: value for key, value in changes.items() if value is not None}
    for key, known in (
        ("preset", tuple(PRESETS)),
        ("variant", VARIANTS),
        ("feed_forward", FEED_FORWARDS),
        ("optimiser", tuple(RATES)),
    ):
        if (value := values.get(key, known[0])) not in known:
            what = key.replace("_", "-")
            raise UsageError(f"There is no {what} '{value}'{nearest(value, known)}; there is {', '.join(known)}.")
    if "optimiser" in values:
        values.setdefault("learning_rate", RATES[values["optimiser"]])
    return Recipe(**{**PRESETS[name], **values})


def deviation(stored: Mapping[str, object], wanted: Recipe) -> str:
    """In what a stored recipe, as JSON has it, differs from another: as `differences`."""
    here = json.loads(json.dumps(asdict(wanted)))
    return differences(stored, here, here)


def untrained(recipe: Recipe) -> dict[str, Tensor]:
    """The weights with which a recipe's training begins."""
    return initial(recipe.feed_forward, recipe.vocabulary, recipe.length, recipe.width, recipe.seed)
