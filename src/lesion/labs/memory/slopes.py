"""How the first step's signals grow with the vocabulary: slopes in log-log, with intervals over draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from lesion.labs.memory.theory import TRIGGERS, Setting, exact, levels, sampled
from lesion.progress import Watcher

VOCABULARIES = (16, 32, 64, 128, 256, 512)
SIGNALS = ("feed_forward", "value", "value_noise")
SEEDS, BATCH, WIDTH = 10, 4096, 256
RESAMPLES = 2_000
LEVEL = 0.95


def first_step(noise: float, seed: int, watcher: Watcher) -> dict[str, Any]:
    """The signals at every vocabulary, exactly and on batches with gaussian codes, and their slopes.

    Returns:
        `points`: per trigger law and vocabulary the exact `levels`, and where sampled `draws`, the levels of each seed;
        `slopes`: per trigger law and signal the `exact` slope, its `late` value between the two largest vocabularies,
        and where sampled `slope`, `low` and `high`; `noise`, `length`, `batch`, `width`, `level`.
    """
    points, slopes = [], []
    for trigger in TRIGGERS:
        settings = [Setting(size, noise, trigger=trigger) for size in VOCABULARIES]
        exactly = [levels(exact(setting)) for setting in settings]
        # Only where triggers stay as frequent do the signals stand out of a batch at every size.
        seeds = [1_000 * seed + draw for draw in range(SEEDS)] if trigger == TRIGGERS[0] else []
        draws = []
        for setting in settings:
            draws.append([levels(sampled(setting, BATCH, WIDTH, one)) for one in seeds])
            watcher.answered(len(seeds))
        for setting, of, each in zip(settings, exactly, draws, strict=True):
            points.append({"trigger": trigger, "vocabulary": setting.vocabulary, **of, "draws": each})
        for signal in SIGNALS:
            values = np.array([[one[signal] for one in each] for each in draws]) if seeds else None
            slopes.append(
                {"trigger": trigger, "signal": signal} | _slopes([of[signal] for of in exactly], values, seed)
            )
    return {
        "noise": noise,
        "length": settings[0].length,
        "batch": BATCH,
        "width": WIDTH,
        "level": LEVEL,
        "points": points,
        "slopes": slopes,
    }


def work() -> int:
    """How many batches there are, for whoever shows progress."""
    return SEEDS * len(VOCABULARIES)


def slope(sizes: Sequence[int], values: Float64[np.ndarray, " sizes"]) -> float:
    """The least-squares slope of log(values) against log(sizes); not a number where a value is not above 0."""
    if (values <= 0).any():
        return float("nan")
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(values)
    return float(x @ y / (x @ x))


def interval(sizes: Sequence[int], values: Float64[np.ndarray, "sizes draws"], seed: int) -> tuple[float, float, float]:
    """The slope of the means over draws, with a bootstrap interval: draws of every size are drawn again.

    Returns:
        Slope, low and high; all not a number where a mean of the draws is not above 0.
    """
    random = np.random.default_rng([seed, 2])
    count = values.shape[1]
    found = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, count, values.shape)
        found.append(slope(sizes, np.take_along_axis(values, chosen, axis=1).mean(axis=1)))
    middle = slope(sizes, values.mean(axis=1))
    if not np.isfinite(found).all():
        return middle, float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return middle, float(low), float(high)


def _slopes(exactly: Sequence[float], values: Float64[np.ndarray, "sizes draws"] | None, seed: int) -> dict[str, float]:
    of = np.array(exactly)
    found = {"exact": slope(VOCABULARIES, of), "late": slope(VOCABULARIES[-2:], of[-2:])}
    if values is not None:
        found |= dict(zip(("slope", "low", "high"), interval(VOCABULARIES, values, seed), strict=True))
    return found
