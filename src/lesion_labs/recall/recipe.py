"""Recipes: everything that determines a training of the recall laboratory and its truncations, and three presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from lesion.core.differences import differences
from lesion.report import wording
from lesion.report.rows import Row, column
from lesion_labs.recall.model import initial
from lesion_labs.recall.study_file import SMALLEST, FeedForward, Optimiser, Preset

Variant = Literal["released", "paper"]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
RATES: dict[Optimiser, float] = {"sgd": 0.03, "adam": 0.001}


class Recipe(Row):
    """Everything that determines a training and what is measured of it.

    Args:
        preset: the preset it began from.
        variant: `released`: the 2nd and every later trigger is a question; `paper`: z_T = q is forced and the only one.
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
        own_answers: whether ȳ may be q or τ, as in the released code but not in the paper's text. Where ȳ is q a clean
            sequence becomes one run of q with a question at each of its positions.
        corpus: SHA-256 of the text that the tables come from; None for the generator.
        seed: of the weights, of a generated language, and of all sequences.
        measured: sequences in each of the two sets, clean and noisy, that everything is measured on.
        keep: kept fractions of the rank in the truncation sweep.
        draws: random projections beside each truncation.
    """

    preset: Preset = "quick"
    variant: Variant = "released"
    noise: Annotated[float, Field(ge=0, lt=1)] = column("Noise", lambda noise: f"α {noise:g}", default=0.6, label=True)
    vocabulary: Annotated[int, Field(ge=SMALLEST)] = column(
        "Vocabulary", lambda size: f"V {size}", default=32, label=True
    )
    length: Annotated[int, Field(ge=3)] = 48
    width: Annotated[int, Field(ge=2)] = column("Width", lambda width: f"d {width}", default=128, label=True)
    feed_forward: FeedForward = column("Feed-forward", default="mlp", label=True)
    optimiser: Optimiser = column("Optimiser", default="sgd", label=True)
    learning_rate: float = RATES["sgd"]
    momentum: float = 0.9
    weight_decay: float = 1e-4
    falls: bool = True
    batch: Count = 32
    steps: Annotated[int, Field(ge=0)] = column(
        "Training", lambda steps: wording.counted(steps, "step"), default=600, label=True
    )
    own_answers: bool = False
    corpus: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    measured: Count = 256
    keep: tuple[Share, ...] = (0.01, 0.05, 0.1, 0.2, 0.5)
    draws: Annotated[int, Field(ge=0)] = 3

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        return self.learning_rate * (min(1.0, 2 * (1 - step / self.steps)) if self.falls else 1.0)


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
    if "optimiser" in values:
        values.setdefault("learning_rate", RATES[values["optimiser"]])
    return Recipe(**{**PRESETS[name], **values})


def deviation(stored: Mapping[str, object], wanted: Recipe) -> str:
    """In what a stored recipe, as JSON has it, differs from another: as `differences`."""
    here = wanted.model_dump(mode="json")
    return differences(stored, here, here)


def untrained(recipe: Recipe) -> dict[str, Tensor]:
    """The weights with which a recipe's training begins."""
    return initial(recipe.feed_forward, recipe.vocabulary, recipe.length, recipe.width, recipe.seed)
