"""Which side of the spectrum holds the noise: over sizes, noises and codes, early and late in training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float64

from lesion.labs.memory import orthonormal
from lesion.labs.memory.data import mixture, targets
from lesion.labs.memory.model import Codes, codes
from lesion.labs.memory.recipe import Recipe
from lesion.labs.memory.spectrum import EQUAL, Place, noise_place, spectrum
from lesion.labs.memory.training import descend, measured_steps
from lesion.labs.memory.truncation import MEASURES, Cutter
from lesion.progress import Watcher

CLASSES = (2, 3, 4, 8, 20, 32)
NOISES = (0.1, 0.3, 0.5, 0.6, 0.7)
SEEDS = 5
"""Draws of gaussian codes; orthonormal ones all have the same spectrum, and one is enough."""
REPEATS = (1, 4)
REPEATED = (4,)
"""Inputs per class, and the numbers of classes that are tried with several."""


def planned(recipe: Recipe) -> list[tuple[int, int]]:
    """(classes, inputs) that fit into the recipe's width as orthonormal codes.

    The recipe's own number of classes is among them where it fits, and is not beyond the largest of `CLASSES`: a sweep
    of more would take the time of many memories.
    """
    sizes = sorted({*CLASSES, min(recipe.classes, max(CLASSES))})
    found = [(m, r * m) for m in sizes for r in (REPEATS if m in REPEATED else (1,))]
    return [(m, n) for m, n in found if max(m + 1, n) <= recipe.width]


def left_out(recipe: Recipe) -> list[str]:
    """Which sizes the sweep does not have, and why, in sentences."""
    there = {size for size, _ in planned(recipe)}
    wanted = sorted({*CLASSES, min(recipe.classes, max(CLASSES))})
    narrow = ", ".join(str(m) for m in wanted if m not in there)
    found = []
    if narrow:
        found.append(f"Width {recipe.width} has no room for orthonormal codes of {narrow} classes: no sweep there.")
    if recipe.classes > max(CLASSES):
        found.append(
            f"The sweep over sizes goes up to {max(CLASSES)} classes: the memory of {recipe.classes} is not part of it."
        )
    return found


def sweep(recipe: Recipe, watcher: Watcher) -> list[dict[str, Any]]:
    """Train memories of every planned size, noise and kind of codes, and say where the noise lies at which step.

    Returns:
        Per size, noise and codes: `places`, one per measured step with the noise's `ratio` (σ_noise over the largest
        other σ, mean over draws of codes with `low` and `high`), `top` (share of draws with the noise on top), `side`
        where all draws agree (else None) and `alignment`; `flips`, the steps between which it changes side; and for
        orthonormal codes what the closed form says: `first`, `late`, `threshold`, `predicted`. `cuts` has the measures
        after the last step, mean over draws: `full`, `without_largest`, `without_smallest`, `largest_alone`, and
        `random`, a projection onto one direction less.
    """
    steps = measured_steps(recipe.steps)
    noises = sorted({*NOISES, recipe.noise} - {0.0})
    rows = []
    for classes, inputs in planned(recipe):
        runs = [(noise, "orthonormal", 0) for noise in noises]
        runs += [(noise, "gaussian", seed) for noise in noises for seed in range(SEEDS)]
        made = [
            codes(Recipe(classes, inputs, recipe.width, noise, kind, seed=recipe.seed + s)) for noise, kind, s in runs
        ]
        mixtures = np.stack([mixture(classes, inputs, noise) for noise, _, _ in runs])
        # Orthonormal codes apart: their steps need no products.
        places: list[list[Place]] = [[] for _ in runs]
        cuts: list[dict[str, Any]] = []
        for part in (range(len(noises)), range(len(noises), len(runs))):
            for _, coefficients in descend([made[i] for i in part], mixtures[list(part)], steps, watcher):
                for i, one in zip(part, coefficients, strict=True):
                    places[i].append(noise_place(spectrum(made[i], one)))
            cuts += [_cuts(made[i], one, classes, recipe) for i, one in zip(part, coefficients, strict=True)]
        for noise in noises:
            for kind in ("orthonormal", "gaussian"):
                of = [i for i, (a, k, _) in enumerate(runs) if a == noise and k == kind]
                row = _row(classes, inputs, noise, kind, steps, [places[i] for i in of])
                rows.append(row | {"cuts": _mean([cuts[i] for i in of])})
    return rows


def _cuts(
    of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"], classes: int, recipe: Recipe
) -> dict[str, Any]:
    """The trained memory whole, without its largest and without its smallest component, and with the largest alone."""
    wanted, random = targets(classes, coefficients.shape[1]), np.random.default_rng([recipe.seed, 3])
    cutter = Cutter(of_codes, spectrum(of_codes, coefficients), wanted, recipe.draws, random)
    found = {
        "full": cutter.side("top", cutter.rank),
        "without_largest": cutter.side("bottom", cutter.rank - 1),
        "without_smallest": cutter.side("top", cutter.rank - 1),
        "largest_alone": cutter.side("top", 1),
        "random": cutter.projected(cutter.rank - 1),
    }
    return {name: {measure: row[measure] for measure in MEASURES} for name, row in found.items()}


def _mean(of: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {measure: float(np.mean([one[name][measure] for one in of])) for measure in MEASURES} for name in of[0]
    }


def trainings(recipe: Recipe) -> int:
    """How many times the sweep goes through the steps, for whoever shows progress."""
    return 2 * len(planned(recipe))


def _row(
    classes: int, inputs: int, noise: float, kind: str, steps: Sequence[int], of: Sequence[Sequence[Place]]
) -> dict[str, Any]:
    found = []
    for step, draws in zip(steps, zip(*of, strict=True), strict=True):
        ratios, sides = [one.ratio for one in draws], {one.side for one in draws}
        found.append(
            {
                "step": step,
                "ratio": float(np.mean(ratios)),
                "low": min(ratios),
                "high": max(ratios),
                "top": float(np.mean([one.side == "top" for one in draws])),
                "side": sides.pop() if len(sides) == 1 else None,
                "alignment": float(np.mean([one.alignment for one in draws])),
            }
        )
    row: dict[str, Any] = {
        "classes": classes,
        "inputs": inputs,
        "noise": noise,
        "codes": kind,
        "draws": len(of),
        "places": found,
        "flips": flips(found),
    }
    if kind == "orthonormal":
        predicted = [
            orthonormal.singular_values(classes, inputs // classes, three)
            for three in orthonormal.numbers(classes, noise, steps)
        ]
        row |= {
            "first": orthonormal.first_ratio(classes, noise),
            "late": orthonormal.late_ratio(classes),
            "threshold": orthonormal.threshold(classes),
            "predicted": [of_noise / of_signal for of_signal, of_noise in predicted],
        }
    return row


def flips(places: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Between which steps the noise goes to the top or leaves it; steps at which draws disagree say nothing."""
    agreed = [(one["step"], one["low"] > 1) for one in places if one["low"] > 1 + EQUAL or one["high"] < 1 - EQUAL]
    return [
        {"after": step, "before": later, "to": "top" if then else "below"}
        for (step, now), (later, then) in pairwise(agreed)
        if now != then
    ]
