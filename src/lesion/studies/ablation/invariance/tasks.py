"""Between tasks: do mathematics, recall and reading hang on the same layers of one model, and equally?

The second half of the claim of Nepal et al. (2025): where mathematics breaks, recall drops far less. It is measured at
the layers that are critical for the first task, as the share of its accuracy that each task loses there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from lesion.statistics.agreement import Profile, agreement
from lesion.studies.ablation.invariance.model_summary import Told

Subject = Literal["mathematics", "recall", "reading"]
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


def between(model: str, told: Mapping[str, Told], level: float, seed: int = 0) -> list[dict[str, Any]]:
    """One entry per pair of tasks that the model has answered and can do, mathematics first.

    `word` is "holds" where b loses, beyond doubt, less than `FAR` of what a loses at the layers that are critical for
    a, "does not hold" where it loses more beyond doubt, else "cannot tell". The items of two tasks are drawn
    independently; within a task the baseline and all layers are drawn together.

    Args:
        model: its name.
        told: by task.
        level: of the intervals.
        seed: of the permutations where they are drawn.
    """
    ordered = sorted(told, key=lambda task: subject(task) != "mathematics")  # stable: else as the study names them
    entries = []
    for a, b in itertools.combinations(ordered, 2):
        first, second = told[a], told[b]
        if first.profile is None or second.profile is None or not (first.able and second.able):
            continue
        if first.profile.layers != second.profile.layers:
            continue
        found = agreement(first.profile, second.profile, level, seed)
        entries.append(
            {
                "model": model,
                "a": a,
                "b": b,
                **{name: getattr(found, name) for name in ("rho", "low", "high", "p", "ceiling", "corrected")},
                "layers": first.critical,
                "critical_shared": sorted(set(first.critical) & set(second.critical)),
                **_losses(
                    first.profile,
                    second.profile,
                    first.critical,
                    [layer for layer in first.critical if layer not in second.critical],
                    level,
                ),
            }
        )
    return entries


def _losses(first: Profile, second: Profile, layers: list[int], alone: list[int], level: float) -> dict[str, Any]:
    """How much of the accuracy of each is lost at these layers, at those of them `alone`, difference and ratio."""
    names = [f"{value}_{task}" for value in ("relative", "alone") for task in "ab"]
    names += [f"{value}{end}" for value in ("difference", "ratio") for end in ("", "_low", "_high")]
    if not layers:
        return {**dict.fromkeys(names), "word": "cannot tell"}
    a, b = (_lost(one, layers) for one in (first, second))
    tails = [(1 - level) / 2, (1 + level) / 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        difference, ratio = np.nanquantile(a[1:] - b[1:], tails), np.nanquantile(b[1:] / a[1:], tails)
    word = "holds" if ratio[1] < FAR else "does not hold" if ratio[0] > FAR else "cannot tell"
    apart = [float(_lost(one, alone)[0]) if alone else None for one in (first, second)]
    values = (a[0], b[0], *apart, a[0] - b[0], *difference, b[0] / a[0], *ratio)
    return {**{name: None if v is None else float(v) for name, v in zip(names, values, strict=True)}, "word": word}


def _lost(one: Profile, layers: list[int]) -> Float[np.ndarray, " estimate_and_draws"]:
    """The share of the accuracy that is lost, on average over layers: as measured, then under every draw."""
    places = [one.layers.index(layer) for layer in layers]
    drawn = one.drawn[:, places].mean(axis=1) / one.drawn_baseline
    return np.concatenate([[one.drops[places].mean() / one.baseline], drawn])
