"""What is measured of a model of the recall laboratory, whole and with one matrix truncated, beside controls.

Truncation replaces one matrix by its best approximation of rank ⌊keep · d⌋ (Chen, Bruna and Bietti 2025, after Sharma
et al. 2023). Without controls it is misread: less of a matrix that disturbs is better, whichever part of it is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from lesion.errors import UsageError
from lesion.progress import SILENT, Watcher
from lesion_labs.recall import result
from lesion_labs.recall.data import Batch, Language, Source, uniforms
from lesion_labs.recall.model import Recipe, Trace, Weights, fed_forward, forward, matrix, names

Traces = tuple[Trace, Trace]
"""Of the clean and of the noisy set."""


def floor(noise: float, certain: float = 0.0) -> float:
    """The least loss on noisy sequences once ȳ is known, in nats: H(α), but 0 at the `certain` share where ȳ is τ."""
    return (1 - certain) * sum(-p * math.log(p) for p in (noise, 1 - noise) if p > 0)


@dataclass(frozen=True)
class Examination:
    """The two sets of sequences that every model of a recipe is measured on: without noise, and with the recipe's."""

    language: Language
    clean: Batch
    noisy: Batch

    @classmethod
    def of(cls, recipe: Recipe, language: Language, device: str | torch.device = "cpu") -> Examination:
        """The sets of a recipe."""
        noises = {"clean": 0.0, "noisy": recipe.noise}
        sets = (Source(recipe, language, device, a).sequences(which, recipe.measured) for which, a in noises.items())
        examination = cls(language, *sets)
        if not all(examination.questions.values()):
            raise UsageError(
                f"In sequences of {recipe.length} tokens no trigger comes up twice; give longer ones, or a corpus in "
                "which the most frequent character is more frequent."
            )
        return examination

    @property
    def questions(self) -> dict[str, int]:
        """How many each set has."""
        return {"clean": int(self.clean.questions.sum()), "noisy": int(self.noisy.questions.sum())}

    def own_answers(self) -> result.OwnAnswers:
        """How often ȳ is q or τ in each set."""

        tokens = {"trigger": self.language.trigger, "noise": self.language.noise_token}
        clean, noisy = (
            {name: float((_answers(batch) == token).double().mean()) for name, token in tokens.items()}
            for batch in (self.clean, self.noisy)
        )
        return result.OwnAnswers(clean=result.AnswerShares(**clean), noisy=result.AnswerShares(**noisy))

    def traces(self, weights: Weights, known: Traces | None = None, changed: str | None = None) -> Traces:
        """The traces of the clean and of the noisy set; `known` and `changed` as in `model.forward`."""
        before = known or (None, None)
        with torch.no_grad():
            clean, noisy = (
                forward(weights, batch.tokens, batch.questions, trace, changed)
                for batch, trace in zip((self.clean, self.noisy), before, strict=True)
            )
        return clean, noisy

    def measures(self, traces: Traces) -> result.Measures:
        """Loss, accuracy and probabilities on both sets."""
        clean = _measures(traces[0], self.clean, self.language)
        noisy = _measures(traces[1], self.noisy, self.language)
        return result.Measures(
            clean_loss=clean["loss"],
            clean_accuracy=clean["accuracy"],
            p_noise=clean["p_noise"],
            p_correct=clean["p_correct"],
            **{f"noisy_{name}": value for name, value in noisy.items()},
        )


def _answers(batch: Batch) -> Int[Tensor, " questions"]:
    """ȳ at every question."""
    return batch.answers[batch.questions.nonzero()[:, 0]]


def _measures(trace: Trace, batch: Batch, language: Language) -> dict[str, float]:
    logits, answers = trace.logits.double(), _answers(batch)
    probabilities = logits.softmax(dim=-1)
    return {
        "loss": float(F.cross_entropy(logits, batch.targets[batch.questions])),
        "accuracy": float((logits.argmax(dim=-1) == answers).double().mean()),
        "p_noise": float(probabilities[:, language.noise_token].mean()),
        "p_correct": float(probabilities.gather(1, answers[:, None]).mean()),
    }


def measure(weights: Weights, examination: Examination, step: int = 0) -> result.Point:
    """Everything that is measured of the weights after so many steps."""
    traces = examination.traces(weights)
    return result.Point(
        step=step,
        **dict(examination.measures(traces)),
        table=predictions(traces[1], examination),
        margins=margins(weights, examination.language),
        attention=attention(traces, examination),
        soft_ranks={name: soft_rank(matrix(weights, name)) for name in names(weights)},
        probes=probes(weights, examination.language),
    )


def predictions(noisy: Trace, examination: Examination) -> result.Predictions:
    """Whether τ is the most probable token at a question on noisy sequences, and whether τ follows."""
    batch, noise_token = examination.noisy, examination.language.noise_token
    predicted = noisy.logits.argmax(dim=-1) == noise_token
    label = batch.targets[batch.questions] == noise_token
    shares = {
        f"predicted_{token}_label_{follower}": float(
            ((predicted == (token == "noise")) & (label == (follower == "noise"))).double().mean()
        )
        for token in ("noise", "other")
        for follower in ("noise", "other")
    }
    return result.Predictions(**shares)


@torch.no_grad()
def margins(weights: Weights, language: Language) -> dict[str, float]:
    """By how much a feed-forward alone prefers τ behind q: logit_τ − max over v ≠ τ of logit_v; q has no position here.

    `F1` and `F2` are W_U F(x) with x = W_E q; `F2∘F1` is W_U F2(F1(x)), the paper's composition; `F1+F2` is what both
    add along the residual stream, W_U (F1(x) + F2(x + F1(x))). Empty without feed-forward.
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
    return {name: _margin(weights, output, language) for name, output in zip(result.MARGINS, outputs, strict=True)}


def _margin(weights: Weights, output: Float[Tensor, " width"], language: Language) -> float:
    logits = (weights["W_U"] @ output).double()
    others = logits.clone()
    others[language.noise_token] = -math.inf
    return float(logits[language.noise_token] - others.max())


def attention(traces: Traces, examination: Examination) -> result.Attention:
    """Where the heads look."""
    previous = float(traces[0].mass.diagonal(-1, 1, 2).double().mean())
    clean = _masses(traces[0], examination.clean, examination.language)
    noisy = _masses(traces[1], examination.noisy, examination.language)
    return result.Attention(previous=previous, **clean, **{f"noisy_{name}": mass for name, mass in noisy.items()})


def _masses(trace: Trace, batch: Batch, language: Language) -> dict[str, float]:
    """The second head's mass on ȳ, and on τ where that is not ȳ, after triggers (z_{s−1} = q)."""
    mass = trace.question_mass.double()
    rows = batch.questions.nonzero()[:, 0]
    behind = torch.zeros_like(batch.questions)
    behind[:, 1:] = batch.tokens[:, :-1] == language.trigger
    right = behind & (batch.tokens == batch.answers[:, None])
    wrong = behind & ~right & (batch.tokens == language.noise_token)
    places = {"answer": right, "noise": wrong}
    return {name: float((mass * where[rows]).sum(dim=1).mean()) for name, where in places.items()}


def soft_rank(weight: Float[Tensor, "out in"]) -> float:
    """‖W‖_F / ‖W‖_2: 1 of a matrix of rank one, √rank of one with equal singular values, 0 of a zero matrix."""
    values = torch.linalg.svdvals(weight.detach().double().cpu())
    return float(values.norm() / values[0]) if values[0] > 0 else 0.0


@torch.no_grad()
def probes(weights: Weights, language: Language) -> result.Probes:
    """What matrices by themselves remember."""
    embedding, positions = weights["W_E"].double(), weights["P"].double()
    moved = {layer: embedding @ matrix(weights, f"W_OV{layer}").double().T for layer in (1, 2)}
    tokens = torch.arange(len(embedding), device=embedding.device)
    copied = (moved[2] @ weights["W_U"].double().T).argmax(dim=1) == tokens
    scores = positions @ weights["W_K1"].double() @ positions.T
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    places = torch.arange(len(positions), device=positions.device)
    back = scores.masked_fill(later, -math.inf).argmax(dim=1)[1:] == places[:-1]
    followed = (embedding @ weights["W_K2"].double() @ moved[1].T).argmax(dim=1) == tokens
    return result.Probes(
        copying=float(copied.double().mean()),
        previous=float(back.double().mean()),
        following=float(followed.double().mean()),
        trigger=float(followed[language.trigger]),
    )


@torch.no_grad()
def spectra(weights: Weights, untrained: Weights, language: Language) -> dict[str, result.Spectrum]:
    """What training did to the spectrum of every matrix, and whether its largest component writes τ."""
    rows = weights["W_U"].double().cpu()
    direction = rows[language.noise_token] - rows.mean(dim=0)
    spectrum: dict[str, result.Spectrum] = {}
    for name in names(weights):
        left, values, _ = torch.linalg.svd(matrix(weights, name).double().cpu(), full_matrices=False)
        before = torch.linalg.svdvals(matrix(untrained, name).double().cpu())
        noise = None
        if not name.endswith(".in") and name[:3] not in ("W_K", "W_V"):
            noise = float((left[:, 0] @ direction).abs() / direction.norm())
        spectrum[name] = result.Spectrum(values=tuple(values[:8].tolist()), before=float(before[0]), noise=noise)
    return spectrum


def for_good(values: Sequence[tuple[int, float]], above: float) -> int | None:
    """The first step from which on a number stays above a bound, of (step, number) in order; None if there is none."""
    first = None
    for step, value in reversed(values):
        if not value > above:
            break
        first = step
    return first


def phases(training: Sequence[result.Point]) -> result.Phases:
    """When each half of the task is learned."""
    trained = [point for point in training if point.step > 0]
    before = next((point.margins for point in training if point.step == 0), {})
    margins = {
        name: for_good([(point.step, point.margins.get(name, -math.inf)) for point in trained], above=0.0)
        for name in result.MARGINS
    }
    always = [name for name, step in margins.items() if trained and step == trained[0].step]
    return result.Phases(
        margins=margins,
        attention=for_good([(point.step, point.attention.answer) for point in trained], above=0.5),
        untrained=tuple(name for name in always if before.get(name, 0.0) > 0),
    )


@dataclass(frozen=True)
class Decomposition:
    """W = left · diag(values) · right, in float64, values descending."""

    left: Float[Tensor, "out rank"]
    values: Float[Tensor, " rank"]
    right: Float[Tensor, "rank in"]

    @classmethod
    def of(cls, weight: Float[Tensor, "out in"]) -> Decomposition:
        """The exact decomposition of a matrix."""
        return cls(*torch.linalg.svd(weight.detach().double().cpu(), full_matrices=False))

    @property
    def rank(self) -> int:
        """The most rank that the matrix can have, min(out, in)."""
        return len(self.values)

    def kept(self, rank: int, side: result.Side = "top") -> Float[Tensor, "out in"]:
        """The matrix with `rank` components left, those of the largest (`top`) or the smallest singular values."""
        part = slice(0, rank) if side == "top" else slice(self.rank - rank, self.rank)
        return (self.left[:, part] * self.values[part]) @ self.right[part]

    def projected(self, rank: int, seed: int, draw: int) -> Float[Tensor, "out in"]:
        """The matrix behind a random projection of that rank, on the narrower of its two sides.

        The projection is QQᵀ with Q the orthonormal basis of a Gaussian draw, uniform over all subspaces.
        """
        whole = self.kept(self.rank)
        basis = torch.linalg.qr(_gaussian(seed, draw, self.rank)[:, :rank]).Q
        wide = whole.shape[0] < whole.shape[1]
        return basis @ (basis.T @ whole) if wide else (whole @ basis) @ basis.T


def _gaussian(seed: int, draw: int, size: int) -> Float[Tensor, "size size"]:
    """Standard normal numbers, by Box and Muller: a function of seed and draw alone."""
    numbers = uniforms(seed, "projection", torch.full((size,), draw), torch.arange(size), 2 * size)
    radius = (-2 * torch.log1p(-numbers[:, :size])).sqrt()
    return radius * torch.cos(2 * math.pi * numbers[:, size:])


def cuts(name: str, rank: int, recipe: Recipe) -> Iterator[result.Cut]:
    """All replacements of a matrix that can have so much rank; of fractions that keep as much, the smallest."""
    yield result.Cut(matrix=name, keep=0.0, rank=0, side="top", control="deletion")
    yield result.Cut(matrix=name, keep=None, rank=rank - 1, side="bottom", control="drop-top")
    done: set[int] = set()
    for keep in sorted(recipe.keep):
        left = math.floor(keep * rank + 1e-9)  # ⌊0.29 · 100⌋ is 29, whatever floats say
        if left in done:
            continue
        done.add(left)
        yield result.Cut(matrix=name, keep=keep, rank=left, side="top")
        yield result.Cut(matrix=name, keep=keep, rank=left, side="bottom")
        if 0 < left < rank:
            for draw in range(recipe.draws):
                yield result.Cut(matrix=name, keep=keep, rank=left, side=None, control="random", draw=draw)


def replaced(
    cut: result.Cut, parts: Decomposition, weight: Float[Tensor, "out in"], seed: int
) -> Float[Tensor, "out in"]:
    """What stands in the place of a matrix; the very same matrix where nothing of it is taken away."""
    if cut.rank == parts.rank:
        return weight
    made = parts.projected(cut.rank, seed, cut.draw or 0) if cut.side is None else parts.kept(cut.rank, cut.side)
    return made.to(weight)


def sweep(
    weights: Weights,
    examination: Examination,
    recipe: Recipe,
    watcher: Watcher = SILENT,
    name: str = "recall",
    done: Sequence[result.CutMeasures] = (),
) -> Iterator[list[result.CutMeasures]]:
    """Every cut of every matrix and of both products W_O W_V, one at a time, with what is measured then.

    Args:
        name: of the training, for the watcher.
        done: rows of an earlier sweep of the same model; matrices in them are left out.

    Yields:
        The rows of each matrix; a random projection has one for each draw.
    """
    matrices = {key: matrix(weights, key) for key in names(weights)}
    plan = {key: list(cuts(key, min(weight.shape), recipe)) for key, weight in matrices.items()}
    watcher.begin(name, sum(map(len, plan.values())), len(done), what="truncations")
    unchanged = examination.traces(weights)
    finished = {row.matrix for row in done}
    for key in (key for key in plan if key not in finished):
        parts = Decomposition.of(matrices[key])
        rows = []
        for cut in plan[key]:
            changed = {**weights, key: replaced(cut, parts, matrices[key], recipe.seed)}
            measures = examination.measures(examination.traces(changed, unchanged, key))
            rows.append(result.CutMeasures(**dict(cut), **dict(measures)))
            watcher.answered(1)
        yield rows
