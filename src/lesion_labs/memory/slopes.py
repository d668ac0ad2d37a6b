"""How the first step's signals grow with the vocabulary: slopes in log-log, with intervals over draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
from jaxtyping import Float64

from lesion.progress import Watcher
from lesion.report.values import Estimate
from lesion_labs.memory.result import FirstStep, Levels, Power, Signal, Trigger, Vocabulary
from lesion_labs.memory.theory import TRIGGERS, Setting, exact, levels, sampled

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
        exactly = [levels(exact(setting)) for setting in settings]
        # Only where triggers stay as frequent do the signals stand out of a batch at every size.
        seeds = [1_000 * seed + draw for draw in range(SEEDS)] if trigger == TRIGGERS[0] else []
        draws: list[list[Levels]] = []
        for setting in settings:
            draws.append([levels(sampled(setting, BATCH, WIDTH, each)) for each in seeds])
            watcher.answered(len(seeds))
        points += [
            Vocabulary(trigger=trigger, vocabulary=setting.vocabulary, draws=batches, **dict(exact_levels))
            for setting, exact_levels, batches in zip(settings, exactly, draws, strict=True)
        ]
        for signal in SIGNALS:
            values = np.array([[batch.of(signal) for batch in batches] for batches in draws]) if seeds else None
            powers.append(_power(trigger, signal, [level.of(signal) for level in exactly], values, seed))
    return FirstStep(
        noise=noise, length=settings[0].length, batch=BATCH, width=WIDTH, level=LEVEL, points=points, powers=powers
    )


def work() -> int:
    """How many batches there are, for a progress bar."""
    return SEEDS * len(VOCABULARIES)


def slope(sizes: Sequence[int], values: Float64[np.ndarray, " sizes"]) -> float:
    """The least-squares slope of log(values) against log(sizes); NaN where a value is not above 0."""
    if (values <= 0).any():
        return float("nan")
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(values)
    return float(x @ y / (x @ x))


def interval(sizes: Sequence[int], values: Float64[np.ndarray, "sizes draws"], seed: int) -> tuple[float, float, float]:
    """The slope of the means over draws, and its bootstrap interval over draws; NaN where a mean is not above 0."""
    random = np.random.default_rng([seed, 2])
    count = values.shape[1]
    resampled = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, count, values.shape)
        resampled.append(slope(sizes, np.take_along_axis(values, chosen, axis=1).mean(axis=1)))
    middle = slope(sizes, values.mean(axis=1))
    if not np.isfinite(resampled).all():
        return middle, float("nan"), float("nan")
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return middle, float(low), float(high)


def _power(
    trigger: Trigger,
    signal: Signal,
    exactly: Sequence[float],
    values: Float64[np.ndarray, "sizes draws"] | None,
    seed: int,
) -> Power:
    levels_of_signal, batches = np.array(exactly), None
    if values is not None:
        middle, low, high = interval(VOCABULARIES, values, seed)
        batches = Estimate(value=middle, low=low, high=high)
    return Power(
        trigger=trigger,
        signal=signal,
        exact=slope(VOCABULARIES, levels_of_signal),
        late=slope(VOCABULARIES[-2:], levels_of_signal[-2:]),
        batches=batches,
    )
