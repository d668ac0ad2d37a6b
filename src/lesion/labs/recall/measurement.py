"""What is measured of a model of the recall laboratory: answers, margins, attention masses, soft ranks and memories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lesion.errors import UsageError
from lesion.labs.recall.data import Batch, Source
from lesion.labs.recall.language import Language
from lesion.labs.recall.model import Trace, Weights, fed_forward, forward, matrix, names
from lesion.labs.recall.recipe import Recipe

Traces = tuple[Trace, Trace]
"""Of the clean and of the noisy set."""
FOUR = ("clean_loss", "clean_accuracy", "p_noise", "p_correct")
"""The numbers of the contract: on clean sequences, where every trigger is followed by ȳ."""
MARGINS = ("F1", "F2", "F2∘F1", "F1+F2")


def floor(noise: float, certain: float = 0.0) -> float:
    """The least loss on noisy sequences once ȳ is known, in nats: H(α), but where ȳ is τ, whatever the noise does.

    Args:
        noise: α.
        certain: the share of questions whose ȳ is τ.
    """
    return (1 - certain) * sum(-p * math.log(p) for p in (noise, 1 - noise) if p > 0)


@dataclass(frozen=True)
class Examination:
    """The two sets of sequences that every model of a recipe is measured on: without noise, and with the recipe's."""

    language: Language
    clean: Batch
    noisy: Batch

    @classmethod
    def of(cls, recipe: Recipe, language: Language, device: str | torch.device = "cpu") -> Examination:
        """The sets of a recipe.

        Raises:
            UsageError: in all of their sequences no trigger asks.
        """
        sets = {
            "clean": Source(recipe.task(language, 0.0), recipe.seed, device).sequences("clean", recipe.measured),
            "noisy": Source(recipe.task(language), recipe.seed, device).sequences("noisy", recipe.measured),
        }
        if not all(found.asked.any() for found in sets.values()):
            raise UsageError(
                f"In sequences of {recipe.length} tokens no trigger comes up twice; give longer ones, or a corpus in "
                "which the most frequent character is more frequent."
            )
        return cls(language, sets["clean"], sets["noisy"])

    def own_answers(self) -> dict[str, dict[str, float]]:
        """Of the questions on each set, `clean` and `noisy`: the share whose ȳ is q (`trigger`), and is τ (`noise`)."""
        found = {}
        for name, batch in (("clean", self.clean), ("noisy", self.noisy)):
            right = batch.answers[batch.asked.nonzero()[:, 0]]
            which = {"trigger": self.language.trigger, "noise": self.language.noise_token}
            found[name] = {key: float((right == token).double().mean()) for key, token in which.items()}
        return found

    def traces(self, weights: Weights, known: Traces | None = None, changed: str | None = None) -> Traces:
        """What happens in the clean and in the noisy set; `known` and `changed` as in `model.forward`."""
        before = known or (None, None)
        with torch.no_grad():
            return (
                forward(weights, self.clean.tokens, self.clean.asked, before[0], changed),
                forward(weights, self.noisy.tokens, self.noisy.asked, before[1], changed),
            )

    def numbers(self, traces: Traces) -> dict[str, float]:
        """Loss, accuracy and probabilities on both sets.

        Returns:
            `clean_loss` (nats), `clean_accuracy` (the most probable token is ȳ), `p_noise` and `p_correct` (mean
            probabilities of τ and of ȳ), and the same on noisy sequences as `noisy_…`; there the loss is of what really
            follows, τ included, and has a `floor`, while `noisy_accuracy` still asks for ȳ.
        """
        found = _numbers(traces[0], self.clean, self.language)
        of_noisy = _numbers(traces[1], self.noisy, self.language)
        of_clean = dict(zip(("loss", "accuracy", "p_noise", "p_correct"), FOUR, strict=True))
        return {of_clean[key]: value for key, value in found.items()} | {f"noisy_{k}": v for k, v in of_noisy.items()}


def _numbers(said: Trace, batch: Batch, language: Language) -> dict[str, float]:
    logits = said.logits.double()
    probabilities = logits.softmax(dim=-1)
    right = batch.answers[batch.asked.nonzero()[:, 0]]
    return {
        "loss": float(F.cross_entropy(logits, batch.targets[batch.asked])),
        "accuracy": float((logits.argmax(dim=-1) == right).double().mean()),
        "p_noise": float(probabilities[:, language.noise_token].mean()),
        "p_correct": float(probabilities.gather(1, right[:, None]).mean()),
    }


def measure(weights: Weights, examination: Examination) -> dict[str, Any]:
    """Everything: `Examination.numbers`, the table, margins, attention masses, soft ranks and memory probes."""
    traces = examination.traces(weights)
    return {
        **examination.numbers(traces),
        "table": table(traces[1], examination),
        "margins": margins(weights, examination.language),
        "attention": attention(traces, examination),
        "soft_ranks": {name: soft_rank(matrix(weights, name)) for name in names(weights)},
        "probes": probes(weights, examination.language),
    }


def table(noisy: Trace, examination: Examination) -> dict[str, float]:
    """Shares of the questions on noisy sequences: is τ the most probable token, and does τ really follow?"""
    batch, noise_token = examination.noisy, examination.language.noise_token
    predicted = noisy.logits.argmax(dim=-1) == noise_token
    label = batch.targets[batch.asked] == noise_token
    return {
        f"predicted_{'noise' if p else 'other'}_label_{'noise' if t else 'other'}": float(
            ((predicted == p) & (label == t)).double().mean()
        )
        for p in (True, False)
        for t in (True, False)
    }


@torch.no_grad()
def margins(weights: Weights, language: Language) -> dict[str, float]:
    """By how much a feed-forward alone prefers τ behind q: logit_τ − max over v ≠ τ of logit_v; q has no position here.

    `F1` and `F2` are W_U F(W_E q); `F2∘F1` is W_U F2(F1(W_E q)), the paper's composition; `F1+F2` is what both together
    add along the residual stream, W_U (F1(x) + F2(x + F1(x))) with x = W_E q. Empty without feed-forward.
    """
    if not any(name.startswith("F") for name in weights):
        return {}
    trigger = weights["W_E"][language.trigger]
    first = fed_forward(weights, 1, trigger)
    outputs = (
        first,
        fed_forward(weights, 2, trigger),
        fed_forward(weights, 2, first),
        first + fed_forward(weights, 2, trigger + first),
    )
    found = {}
    for name, output in zip(MARGINS, outputs, strict=True):
        logits = (weights["W_U"] @ output).double()
        others = logits.clone()
        others[language.noise_token] = -math.inf
        found[name] = float(logits[language.noise_token] - others.max())
    return found


def attention(traces: Traces, examination: Examination) -> dict[str, float]:
    """Where the heads look.

    `previous`: the first head's mass on the token before, mean over all positions but the first, on clean sequences.
    `answer` and `noise`: the second head's mass, where it is asked, on positions right behind a trigger (z_{s−1} = q)
    that hold ȳ, or else τ; on clean sequences, where only ȳ follows a trigger. `noisy_answer` and `noisy_noise`: the
    same on noisy ones.
    """
    found = {"previous": float(traces[0].mass.diagonal(-1, 1, 2).double().mean())}
    sets = (("", examination.clean, traces[0]), ("noisy_", examination.noisy, traces[1]))
    for prefix, batch, trace in sets:
        mass = trace.asked_mass.double()
        rows = batch.asked.nonzero()[:, 0]
        behind = torch.zeros_like(batch.asked)
        behind[:, 1:] = batch.tokens[:, :-1] == examination.language.trigger
        right = behind & (batch.tokens == batch.answers[:, None])
        wrong = behind & ~right & (batch.tokens == examination.language.noise_token)
        found[f"{prefix}answer"] = float((mass * right[rows]).sum(dim=1).mean())
        found[f"{prefix}noise"] = float((mass * wrong[rows]).sum(dim=1).mean())
    return found


def soft_rank(weight: Float[Tensor, "out in"]) -> float:
    """‖W‖_F / ‖W‖_2: 1 of a matrix of rank one, √rank of one with equal singular values, 0 of a zero matrix."""
    values = torch.linalg.svdvals(weight.detach().double().cpu())
    return float(values.norm() / values[0]) if values[0] > 0 else 0.0


@torch.no_grad()
def probes(weights: Weights, language: Language) -> dict[str, float]:
    """Whether the matrices remember what a recall circuit needs, as shares from 0 to 1 (after Bietti et al. 2023).

    `W_OV2`: of tokens v for which argmax_u of W_U W_O2 W_V2 W_E v is v: what is looked at is said.
    `W_K1`: of positions t ≥ 1 for which argmax over s ≤ t of P_tᵀ W_K1 P_s is t − 1: the first head looks one back.
    `W_K2`: of tokens v for which argmax_u of (W_E v)ᵀ W_K2 W_O1 W_V1 W_E u is v: the second head finds what followed v.
    `trigger`: the same for v = q alone, 0 or 1: only there is it trained.
    """
    embedding, positions = weights["W_E"].double(), weights["P"].double()
    moved = {layer: embedding @ matrix(weights, f"W_OV{layer}").double().T for layer in (1, 2)}
    tokens = torch.arange(len(embedding), device=embedding.device)
    copied = (moved[2] @ weights["W_U"].double().T).argmax(dim=1) == tokens
    scores = positions @ weights["W_K1"].double() @ positions.T
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    places = torch.arange(len(positions), device=positions.device)
    back = scores.masked_fill(later, -math.inf).argmax(dim=1)[1:] == places[:-1]
    found = (embedding @ weights["W_K2"].double() @ moved[1].T).argmax(dim=1) == tokens
    return {
        "W_OV2": float(copied.double().mean()),
        "W_K1": float(back.double().mean()),
        "W_K2": float(found.double().mean()),
        "trigger": float(found[language.trigger]),
    }


@torch.no_grad()
def spectra(weights: Weights, untrained: Weights, language: Language) -> dict[str, dict[str, Any]]:
    """What training did to the spectrum of every matrix, and whether its largest component writes τ.

    Returns:
        For each matrix: `values`, its eight largest singular values; `before`, the largest of the untrained matrix; and
        for those that write into the residual stream `noise`, |cos| between the first left singular vector and the
        logit direction of τ, W_U[τ] less the mean row of W_U. (Of random vectors it would be about 1/√d.)
    """
    rows = weights["W_U"].double().cpu()
    direction = rows[language.noise_token] - rows.mean(dim=0)
    found: dict[str, dict[str, Any]] = {}
    for name in names(weights):
        left, values, _ = torch.linalg.svd(matrix(weights, name).double().cpu(), full_matrices=False)
        before = torch.linalg.svdvals(matrix(untrained, name).double().cpu())
        found[name] = {"values": values[:8].tolist(), "before": float(before[0])}
        if not name.endswith(".in") and name[:3] not in ("W_K", "W_V"):
            found[name]["noise"] = float((left[:, 0] @ direction).abs() / direction.norm())
    return found


def for_good(training: Sequence[Mapping[str, Any]], *path: str, above: float) -> int | None:
    """The first measured step from which on a number stays above a bound; None if at the last it is not."""
    found = None
    for point in reversed(training):
        value: Any = point
        for key in path:
            value = value.get(key, -math.inf)
        if not value > above:
            break
        found = int(point["step"])
    return found


def phases(training: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """When each half of the task is learned, in steps of the optimiser, from 1; None where it is not.

    `margins`: from which measured step on each feed-forward's trigger margin is positive. `attention`: from which on
    the second head has more than half of its mass on ȳ, on clean sequences. `untrained`: feed-forwards whose margin was
    positive before the first step already, by the chance of their draw, and ever since: theirs is no step at which
    anything was learned.
    """
    trained = [point for point in training if point["step"] > 0]
    before: Mapping[str, float] = next((point["margins"] for point in training if point["step"] == 0), {})
    margins = {name: for_good(trained, "margins", name, above=0.0) for name in MARGINS}
    first = trained[0]["step"] if trained else None
    return {
        "margins": margins,
        "attention": for_good(trained, "attention", "answer", above=0.5),
        "untrained": [
            name for name, step in margins.items() if step is not None and step == first and before.get(name, 0.0) > 0
        ],
    }
