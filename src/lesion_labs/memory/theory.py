"""The first gradient step in noisy in-context recall: what the second block's two ways to an answer learn first.

A sequence z_1 … z_T over V tokens ends with the trigger q and is labelled y. Its own ȳ is uniform over the V − 2 tokens
that are neither q nor τ; wherever q stands, ȳ follows with probability 1 − α and the noise token τ with α, anything
else is drawn from π; y is drawn as what follows q. At zero weights attention is uniform, and the second block adds

    logits = W_U (W_F x_T + W_V x̄),    x_T = W_E(q),    x̄ = (1/T) Σ_t W_E(z_t)

with W_F the linear feed-forward and W_V the attention-value matrix. Both are 0, the logits are equal, p = 1/V, and one
step of gradient descent moves the weights by −∂L/∂W_F = E[W_Uᵀ (y − p) x_Tᵀ] and −∂L/∂W_V = E[W_Uᵀ (y − p) x̄ᵀ]. With
orthonormal codes the part of a gradient that says "from token j to token k" is a number:

    feed-forward      F[k, q] = E[y_k] − 1/V
    attention-value   A[k, j] = E[(y_k − 1/V) c_j] / T         with c_j the number of times j stands in the sequence

Only differences of logits count, so a signal is what it adds over the mean of the tokens that are neither q nor τ:

- Feed-forward towards q → τ: F[τ, q] − F[k, q] = α − (1 − α)/(V − 2). Θ(1): every sequence pushes the same way.
- Attention-value towards recall, v → v. v is the sequence's ȳ with probability 1/(V − 2), the label is not noise with
  1 − α, and v then stands at S (1 − α) more of the positions, S being the share of positions behind a trigger. What v
  has of π cancels, and A[v, v] − A[k, v] = (1 − α)² S / (V − 2): smaller than the feed-forward's by a factor of V as
  long as triggers stay as frequent. Where they become rarer with V, S falls too: for π uniform S ≈ 1/V; for π ∝ 1/rank
  with q on top S ≈ 1/log V.
- Attention-value towards τ from a token v, A[τ, v] − A[k, v] ≈ α π_v: uniform attention learns the noise as well, from
  every token, at the size of that token's share.

What one association gains is compared here. All V recall associations together are a gradient whose norm is smaller
than the feed-forward's by √V only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Float64, Int64

from lesion.progress import Watcher
from lesion.report.values import Estimate
from lesion.statistics.paired import Contrast
from lesion_labs.memory.result import FirstStep, Levels, Power, Signal, Trigger, Vocabulary

TRIGGER, NOISE = 0, 1
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
CONSTANT_SHARE = 0.2


@dataclass(frozen=True)
class Setting:
    """One size of the recall task: V, at least 4, α and T.

    Args:
        trigger: how frequent the trigger is where no trigger stood before: `constant` (0.2 at any V, the others alike),
            `zipf` (π ∝ 1/rank, the trigger first and τ second) or `uniform` (1/V).
    """

    vocabulary: int
    noise: float = 0.5
    length: int = 64
    trigger: Trigger = "constant"

    @property
    def unigram(self) -> Float64[np.ndarray, " vocabulary"]:
        """π; the trigger is token 0, τ token 1."""
        ranks = np.arange(1.0, self.vocabulary + 1)
        weights = 1 / ranks if self.trigger == "zipf" else np.ones(self.vocabulary)
        if self.trigger == "constant":
            weights[TRIGGER] = CONSTANT_SHARE * (self.vocabulary - 1) / (1 - CONSTANT_SHARE)
        return weights / weights.sum()


@dataclass(frozen=True)
class Gradients:
    """The negative gradients at zero weights: column q of F by the token pushed up, and A [pushed up, in context]."""

    feed_forward: Float64[np.ndarray, " vocabulary"]
    value: Float64[np.ndarray, "vocabulary vocabulary"]


def exact(setting: Setting) -> Gradients:
    """The gradients of the expected loss, with orthonormal codes: sums over ȳ of exact expectations."""
    size, noise = setting.vocabulary, setting.noise
    unigram = setting.unigram
    # s: probability that position t holds the trigger; never twice in a row, since ȳ and τ are no triggers.
    trigger, of_positions = float(unigram[TRIGGER]), []
    for _ in range(setting.length - 1):
        of_positions.append(trigger)
        trigger = (1 - trigger) * float(unigram[TRIGGER])
    after = sum(of_positions[:-1]) / setting.length  # S: positions 2 … T − 1 behind a trigger; T is q by force
    free = (setting.length - 1) / setting.length - after
    recalled = np.arange(2, size)
    labels = np.zeros((size, len(recalled)))
    labels[recalled, np.arange(len(recalled))] = 1 - noise
    labels[NOISE] = noise
    shares = free * unigram[:, None] + after * labels  # behind a trigger stands what the label is drawn from
    shares[TRIGGER] += 1 / setting.length
    errors = labels - 1 / size
    return Gradients(errors.mean(axis=1), errors @ shares.T / len(recalled))


def sequences(
    setting: Setting, batch: int, random: np.random.Generator
) -> tuple[Int64[np.ndarray, "batch length"], Int64[np.ndarray, " batch"]]:
    """Sequences of the task and their labels."""
    recalled = random.integers(2, setting.vocabulary, batch)
    follow = np.where(random.random((batch, setting.length)) < setting.noise, NOISE, recalled[:, None])
    free = np.searchsorted(np.cumsum(setting.unigram)[:-1], random.random((batch, setting.length)), side="right")
    tokens = free.astype(np.int64)
    for t in range(1, setting.length):
        tokens[:, t] = np.where(tokens[:, t - 1] == TRIGGER, follow[:, t], free[:, t])
    tokens[:, -1] = TRIGGER
    return tokens, follow[:, 0]


def sampled(setting: Setting, batch: int, width: int, seed: int) -> Gradients:
    """The gradients on a batch of sequences with gaussian codes, where codes overlap by about 1/√width.

    The residual stream carries x_T to the logits, so p is the softmax of W_U W_E(q) and not quite 1/V. Entry [k, j] is
    W_U(k)ᵀ (−∂L/∂W) W_E(j).
    """
    random = np.random.default_rng([seed, setting.vocabulary, TRIGGERS.index(setting.trigger)])
    outputs = random.standard_normal((setting.vocabulary, width)) / width**0.5
    inputs = random.standard_normal((setting.vocabulary, width)) / width**0.5
    tokens, labels = sequences(setting, batch, random)
    counts = np.zeros((batch, setting.vocabulary))
    np.add.at(counts, (np.arange(batch)[:, None], tokens), 1.0)
    logits = outputs @ inputs[TRIGGER]
    powers = np.exp(logits - logits.max())
    errors = np.zeros((batch, setting.vocabulary)) - powers / powers.sum()
    errors[np.arange(batch), labels] += 1
    over, across = outputs @ outputs.T, inputs @ inputs.T
    feed_forward = over @ errors.mean(axis=0) * across[TRIGGER, TRIGGER]
    value = over @ (errors.T @ counts / (batch * setting.length)) @ across
    return Gradients(feed_forward, value)


def levels(gradients: Gradients) -> Levels:
    """The signals in the gradients, and what stands around them."""
    rest = slice(2, None)
    square = gradients.value[rest, rest]
    apart = ~np.eye(len(square), dtype=bool)
    others = square.sum(axis=0, where=apart) / (len(square) - 1)
    recall = np.diag(square) - others
    return Levels(
        feed_forward=float(gradients.feed_forward[NOISE] - gradients.feed_forward[rest].mean()),
        feed_forward_other=float(gradients.feed_forward[rest].mean()),
        feed_forward_width=float(gradients.feed_forward[rest].std()),
        value=float(recall.mean()),
        value_spread=float(recall.std()),
        value_noise=float((gradients.value[NOISE, rest] - others).mean()),
        value_other=float(others.mean()),
        value_width=float(square[apart].std()),
    )


VOCABULARIES = (16, 32, 64, 128, 256, 512)
SIGNALS: tuple[Signal, ...] = get_args(Signal)
SEEDS, BATCH, WIDTH = 10, 4096, 256
RESAMPLES = 2_000
LEVEL = 0.95


def first_step(noise: float, seed: int, watcher: Watcher) -> FirstStep:
    """The signals at every vocabulary, exactly and on batches with gaussian codes, and how they scale with it."""
    points: list[Vocabulary] = []
    powers: list[Power] = []
    for trigger in TRIGGERS:
        settings = [Setting(size, noise, trigger=trigger) for size in VOCABULARIES]
        exact_levels = [levels(exact(setting)) for setting in settings]
        # Only where triggers stay as frequent do the signals stand out of a batch at every size.
        seeds = [1_000 * seed + draw for draw in range(SEEDS)] if trigger == TRIGGERS[0] else []
        draws: list[list[Levels]] = []
        for setting in settings:
            draws.append([levels(sampled(setting, BATCH, WIDTH, each)) for each in seeds])
            watcher.answered(len(seeds))
        points += [
            Vocabulary(trigger=trigger, vocabulary=setting.vocabulary, draws=batches, **dict(of_setting))
            for setting, of_setting, batches in zip(settings, exact_levels, draws, strict=True)
        ]
        for signal in SIGNALS:
            exactly = np.array([level.of(signal) for level in exact_levels])
            power = {"exact": slope(VOCABULARIES, exactly), "late": slope(VOCABULARIES[-2:], exactly[-2:])}
            batches = None
            if seeds:
                values = np.array([[batch.of(signal) for batch in of_size] for of_size in draws])
                batches = Estimate.of(interval(VOCABULARIES, values, seed))
            powers.append(Power(trigger=trigger, signal=signal, batches=batches, **power))
    return FirstStep(
        noise=noise, length=settings[0].length, batch=BATCH, width=WIDTH, level=LEVEL, points=points, powers=powers
    )


def slope(sizes: Sequence[int], values: Float64[np.ndarray, " sizes"]) -> float:
    """The least-squares slope of log(values) against log(sizes); NaN where a value is not above 0."""
    if (values <= 0).any():
        return float("nan")
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(values)
    return float(x @ y / (x @ x))


def interval(sizes: Sequence[int], values: Float64[np.ndarray, "sizes draws"], seed: int) -> Contrast:
    """The slope of the means over draws, and its bootstrap interval over draws; NaN where a mean is not above 0."""
    random = np.random.default_rng([seed, 2])
    resampled = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, values.shape[1], values.shape)
        resampled.append(slope(sizes, np.take_along_axis(values, chosen, axis=1).mean(axis=1)))
    middle = slope(sizes, values.mean(axis=1))
    if not np.isfinite(resampled).all():
        return Contrast(middle, np.nan, np.nan)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Contrast(middle, float(low), float(high))
