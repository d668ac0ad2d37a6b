"""Between tasks: do mathematics, recall and reading depend on the same layers of one model, and equally?

The second half of the claim of Nepal et al. (2025): where mathematics breaks, recall drops far less. It is measured at
the layers that are critical for the first task, as the share of its accuracy that each task loses there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from lesion.core.values import Estimate
from lesion.statistics.agreement import Agreement, Profile, agreement
from lesion.studies.ablation.invariance.model_summary import Measured
from lesion.studies.ablation.invariance.result import BetweenTasks, Subject, Word

SUBJECTS: dict[str, Subject] = {
    "arithmetic": "mathematics",
    "gsm8k": "mathematics",
    "math500": "mathematics",
    "atlas": "recall",
    "triviaqa": "recall",
    "facts": "recall",
    "reading": "reading",
    "race": "reading",
}
"""What a task asks for, by a word of its name."""
FAR = 0.5
"""The other task loses far less where it loses less than this part of what the first one loses."""


def subject(task: str) -> Subject | None:
    """What a task asks for, as far as its name tells: `primer:arithmetic`, `fewshot:4:gsm8k`."""
    words = re.split(r"[^a-z0-9]+", task.lower())
    return next((SUBJECTS[word] for word in words if word in SUBJECTS), None)


def between(model: str, by_task: Mapping[str, Measured], level: float, seed: int = 0) -> list[BetweenTasks]:
    """One entry per pair of tasks that the model has answered and can do, mathematics first.

    `word` is "holds" where b loses, beyond doubt, less than `FAR` of what a loses at the layers that are critical for
    a, "does not hold" where it loses more beyond doubt, else "cannot tell". The items of two tasks are drawn
    independently; within a task the baseline and all layers are drawn together.

    Args:
        model: its name.
        by_task: what was measured.
        level: of the intervals.
        seed: of the permutations where they are drawn.
    """
    ordered = sorted(by_task, key=lambda task: subject(task) != "mathematics")  # stable: else as the study names them
    entries = []
    for a, b in itertools.combinations(ordered, 2):
        first, second = by_task[a], by_task[b]
        if first.profile is None or second.profile is None or not (first.able and second.able):
            continue
        if first.profile.layers != second.profile.layers:
            continue
        order = agreement(first.profile, second.profile, level, seed)
        alone = [layer for layer in first.critical if layer not in second.critical]
        entries.append(
            BetweenTasks(
                model=model,
                a=a,
                b=b,
                rho=Estimate(value=order.rho, p=order.p),
                true=true(order),
                ceiling=order.ceiling,
                layers=first.critical,
                critical_shared=sorted(set(first.critical) & set(second.critical)),
                **_losses(first.profile, second.profile, first.critical, alone, level),
            )
        )
    return entries


def true(order: Agreement) -> Estimate:
    """The rank correlation of the true profiles, with its interval."""
    return Estimate(value=order.corrected, low=order.low, high=order.high)


def _losses(first: Profile, second: Profile, layers: list[int], alone: list[int], level: float) -> dict[str, Any]:
    """How much of the accuracy of each is lost at these layers, at those of them `alone`, difference and ratio."""
    if not layers:
        shares = dict.fromkeys(("relative_a", "relative_b", "alone_a", "alone_b"))
        return {**shares, "difference": Estimate(value=None), "ratio": Estimate(value=None), "word": "cannot tell"}
    a, b = (_lost(profile, layers) for profile in (first, second))
    tails = [(1 - level) / 2, (1 + level) / 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        difference, ratio = np.nanquantile(a[1:] - b[1:], tails), np.nanquantile(b[1:] / a[1:], tails)
        share = b[0] / a[0]
    word: Word = "holds" if ratio[1] < FAR else "does not hold" if ratio[0] > FAR else "cannot tell"
    alone_a, alone_b = (_lost(profile, alone)[0] if alone else None for profile in (first, second))
    return {
        "relative_a": a[0],
        "relative_b": b[0],
        "alone_a": alone_a,
        "alone_b": alone_b,
        "difference": Estimate(value=a[0] - b[0], low=difference[0], high=difference[1]),
        "ratio": Estimate(value=share, low=ratio[0], high=ratio[1]),
        "word": word,
    }


def _lost(profile: Profile, layers: list[int]) -> Float[np.ndarray, " estimate_and_draws"]:
    """The share of the accuracy that is lost, on average over layers: as measured, then under every draw."""
    places = [profile.layers.index(layer) for layer in layers]
    drawn = profile.drawn[:, places].mean(axis=1) / profile.drawn_baseline
    return np.concatenate([[profile.drops[places].mean() / profile.baseline], drawn])
