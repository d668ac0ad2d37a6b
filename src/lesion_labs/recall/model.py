"""The two-layer transformer of the recall laboratory: plain functions of a dictionary of weights.

One head, no norms, no biases; W_Q is the identity (Chen, Bruna and Bietti 2025, released code):

    x_0 = W_E z + P            frozen, as is W_U
    h_l = x_{l-1} + W_Ol W_Vl Σ_s a_s x_{l-1,s}    with a = softmax_s(x_tᵀ W_Kl x_s / √d) over s ≤ t
    x_l = h_l + F_l(h_l)       for l = 1, 2
    logits = W_U x_2

Weights are [out, in]. A matrix is replaced by giving a dictionary with another tensor under its name; `W_OV1` and
`W_OV2` stand for the product W_O W_V where they are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lesion.errors import UsageError, nearest
from lesion.report import wording
from lesion.report.rows import Row, column
from lesion_labs.recall.study_file import SMALLEST, FeedForward, Optimiser, Preset

Weights = Mapping[str, Tensor]
FROZEN = ("W_E", "P", "W_U")
INNER = 4  # the MLP's inner width in widths of the model


def shapes(feed_forward: FeedForward, width: int) -> dict[str, tuple[int, int]]:
    """Names and [out, in] shapes of the matrices that are trained."""
    matrices: dict[str, tuple[int, int]] = {}
    for layer in (1, 2):
        matrices |= {f"W_{kind}{layer}": (width, width) for kind in "KVO"}
        if feed_forward == "mlp":
            matrices |= {f"F{layer}.in": (INNER * width, width), f"F{layer}.out": (width, INNER * width)}
        elif feed_forward == "linear":
            matrices[f"F{layer}"] = (width, width)
    return matrices


def initial(feed_forward: FeedForward, vocabulary: int, length: int, width: int, seed: int) -> dict[str, Tensor]:
    """Untrained weights, float32 on the CPU, as PyTorch's layers begin, on which the released code relies.

    Embeddings and positions are from N(0, 1), every matrix, W_U too, uniform within ± 1/√(its inputs).
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(rows, width, generator=generator) for name, rows in (("W_E", vocabulary), ("P", length))
    }
    for name, (outputs, inputs) in {"W_U": (vocabulary, width), **shapes(feed_forward, width)}.items():
        weights[name] = (2 * torch.rand(outputs, inputs, generator=generator) - 1) / math.sqrt(inputs)
    return weights


def matrix(weights: Weights, name: str) -> Float[Tensor, "out in"]:
    """A trained matrix by its name, or the product `W_OV1` or `W_OV2`."""
    if name in weights and name not in FROZEN:
        return weights[name]
    if name in ("W_OV1", "W_OV2"):
        return weights[f"W_O{name[-1]}"] @ weights[f"W_V{name[-1]}"]
    known = names(weights)
    raise UsageError(f"There is no matrix '{name}'{nearest(name, known)}. There are {', '.join(known)}.")


def names(weights: Weights) -> tuple[str, ...]:
    """Every trained matrix and the two products, layer by layer."""
    trained = [name for name in weights if name not in FROZEN and not name.startswith("W_OV")]
    return (*trained, "W_OV1", "W_OV2")


@dataclass(frozen=True)
class Trace:
    """Everything on the way from tokens to logits that a change further on leaves as it is.

    Questions are in the order of `questions.nonzero()`; no other position needs the second block.

    Attributes:
        states: x_0.
        mass, pooled: attention of the first head, and Σ_s a_s x_{0,s}.
        between: x_1.
        question_mass, question_pooled: the same of the second head at the questions.
    """

    states: Float[Tensor, "rows length width"]
    mass: Float[Tensor, "rows length length"]
    pooled: Float[Tensor, "rows length width"]
    between: Float[Tensor, "rows length width"]
    question_mass: Float[Tensor, "questions length"]
    question_pooled: Float[Tensor, "questions width"]
    logits: Float[Tensor, "questions vocabulary"]


def forward(
    weights: Weights,
    tokens: Int[Tensor, "rows length"],
    questions: Bool[Tensor, "rows length"],
    known: Trace | None = None,
    changed: str | None = None,
) -> Trace:
    """The whole model, or only what a change of one matrix reaches.

    Args:
        known: a trace of the same tokens under weights that differ from these in the matrix `changed` alone.
    """
    first_block = changed is None or layer_of(changed) == 1
    states = weights["W_E"][tokens] + weights["P"][: tokens.shape[1]] if known is None else known.states
    if known is None or changed == "W_K1":
        mass = _mass(weights, 1, states)
        pooled = mass @ states
    else:
        mass, pooled = known.mass, known.pooled
    if known is None or first_block:
        hidden = states + _moved(weights, 1, pooled)
        between = hidden + fed_forward(weights, 1, hidden)
    else:
        between = known.between
    if known is None or first_block or changed == "W_K2":
        everywhere = _mass(weights, 2, between)
        question_mass, question_pooled = everywhere[questions], (everywhere @ between)[questions]
    else:
        question_mass, question_pooled = known.question_mass, known.question_pooled
    hidden = between[questions] + _moved(weights, 2, question_pooled)
    logits = (hidden + fed_forward(weights, 2, hidden)) @ weights["W_U"].T
    return Trace(states, mass, pooled, between, question_mass, question_pooled, logits)


def layer_of(name: str) -> int:
    """The block that a matrix belongs to: 1 of `F1.in`, 2 of `W_OV2`."""
    return int("".join(filter(str.isdigit, name)))


def fed_forward(weights: Weights, layer: int, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """F_l of states: W_out relu(W_in x), one matrix, or zero where the model has none."""
    if f"F{layer}.in" in weights:
        return torch.relu(states @ weights[f"F{layer}.in"].T) @ weights[f"F{layer}.out"].T
    return states @ weights[f"F{layer}"].T if f"F{layer}" in weights else torch.zeros_like(states)


def _mass(
    weights: Weights, layer: int, states: Float[Tensor, "rows length width"]
) -> Float[Tensor, "rows length length"]:
    """How much each position looks at itself and at those before it."""
    length, width = states.shape[1:]
    keys = states @ weights[f"W_K{layer}"].T
    scores = states @ keys.transpose(1, 2) / math.sqrt(width)
    later = torch.ones(length, length, dtype=torch.bool, device=states.device).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(dim=-1)


def _moved(weights: Weights, layer: int, pooled: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """W_O W_V of what the head gathered."""
    product = weights.get(f"W_OV{layer}")
    if product is not None:
        return pooled @ product.T
    return pooled @ weights[f"W_V{layer}"].T @ weights[f"W_O{layer}"].T


Variant = Literal["released", "paper"]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
RATES: dict[Optimiser, float] = {"sgd": 0.03, "adam": 0.001}


class Recipe(Row):
    """Everything that determines a training and what is measured of it.

    Args:
        variant: `released`: the 2nd and every later trigger is a question; `paper`: z_T = q is forced and the only one.
        noise, vocabulary, length, width: α, V, T and d.
        optimiser: `sgd` with momentum and weight decay, or `adam` without either.
        falls: the learning rate falls linearly to 0 over the second half. (Without it p(τ) swings by some .07.)
        own_answers: whether ȳ may be q or τ, as in the released code but not in the paper's text. Where ȳ is q a clean
            sequence becomes one run of q with a question at each of its positions.
        corpus: SHA-256 of the text that the tables come from; None for the generator.
        measured: sequences in each of the two sets, clean and noisy, that everything is measured on.
        keep, draws: fractions of the rank in the truncation sweep; random projections beside each.
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


def untrained(recipe: Recipe) -> dict[str, Tensor]:
    """The weights with which a recipe's training begins."""
    return initial(recipe.feed_forward, recipe.vocabulary, recipe.length, recipe.width, recipe.seed)
