"""Which side of the spectrum holds the noise: over sizes, noises and codes, early and late in training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float64

from lesion.labs.memory import orthonormal
from lesion.labs.memory.data import mixture, targets
from lesion.labs.memory.model import Codes, codes
from lesion.labs.memory.result import (
    MEASURES,
    ClosedForm,
    Cuts,
    Flip,
    Measures,
    Place,
    Size,
    SizePlace,
    Spread,
)
from lesion.labs.memory.spectrum import EQUAL, noise_place, spectrum
from lesion.labs.memory.study import MemoryStudy
from lesion.labs.memory.training import descend, measured_steps
from lesion.labs.memory.truncation import Cutter
from lesion.progress import Watcher

CLASSES = (2, 3, 4, 8, 20, 32)
NOISES = (0.1, 0.3, 0.5, 0.6, 0.7)
SEEDS = 5
"""Draws of gaussian codes; orthonormal ones all have the same spectrum, and one is enough."""
Codings = Literal["orthonormal", "gaussian"]
KINDS: tuple[Codings, ...] = ("orthonormal", "gaussian")
REPEATS = (1, 4)
REPEATED = (4,)
"""Inputs per class, and the numbers of classes that are tried with several."""


def planned(study: MemoryStudy) -> list[tuple[int, int]]:
    """(classes, inputs) that fit into the study's width as orthonormal codes.

    The study's own number of classes is among them where it fits, and is not beyond the largest of `CLASSES`: a sweep
    of more would take the time of many memories.
    """
    sizes = [(classes, repeats * classes) for classes in _tried(study) for repeats in _repeats(classes)]
    return [(classes, inputs) for classes, inputs in sizes if max(classes + 1, inputs) <= study.width]


def _tried(study: MemoryStudy) -> list[int]:
    return sorted({*CLASSES, min(study.classes, max(CLASSES))})


def _repeats(classes: int) -> tuple[int, ...]:
    return REPEATS if classes in REPEATED else (1,)


def left_out(study: MemoryStudy) -> list[str]:
    """Which sizes the sweep does not have, and why, in sentences."""
    fitting = {classes for classes, _ in planned(study)}
    narrow = ", ".join(str(classes) for classes in _tried(study) if classes not in fitting)
    sentences = []
    if narrow:
        sentences.append(f"Width {study.width} has no room for orthonormal codes of {narrow} classes: no sweep there.")
    if study.classes > max(CLASSES):
        sentences.append(
            f"The sweep over sizes goes up to {max(CLASSES)} classes: the memory of {study.classes} is not part of it."
        )
    return sentences


def sweep(study: MemoryStudy, watcher: Watcher) -> list[Size]:
    """Train memories of every planned size, noise and kind of codes, and say where the noise lies at which step."""
    steps = measured_steps(study.steps)
    noises = sorted({*NOISES, study.noise} - {0.0})
    sizes = []
    for classes, inputs in planned(study):
        runs: list[tuple[float, Codings, int]] = [(noise, "orthonormal", 0) for noise in noises]
        runs += [(noise, "gaussian", seed) for noise in noises for seed in range(SEEDS)]
        run_codes = [
            codes(
                MemoryStudy(
                    classes=classes, inputs=inputs, width=study.width, noise=noise, codes=kind, seed=study.seed + seed
                )
            )
            for noise, kind, seed in runs
        ]
        mixtures = np.stack([mixture(classes, inputs, noise) for noise, _, _ in runs])
        # Orthonormal codes apart: their steps need no products.
        places: list[list[Place]] = [[] for _ in runs]
        cuts: list[Cuts] = []
        for part in (range(len(noises)), range(len(noises), len(runs))):
            for _, coefficients in descend([run_codes[i] for i in part], mixtures[list(part)], steps, watcher):
                for i, of_run in zip(part, coefficients, strict=True):
                    places[i].append(noise_place(spectrum(run_codes[i], of_run)))
            cuts += [_cuts(run_codes[i], of_run, classes, study) for i, of_run in zip(part, coefficients, strict=True)]
        for noise in noises:
            for kind in KINDS:
                own = [i for i, (run_noise, run_kind, _) in enumerate(runs) if (run_noise, run_kind) == (noise, kind)]
                sizes.append(
                    _size(classes, inputs, noise, kind, steps, [places[i] for i in own], _mean([cuts[i] for i in own]))
                )
    return sizes


def _cuts(
    of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"], classes: int, study: MemoryStudy
) -> Cuts:
    """The trained memory whole, without its largest and without its smallest component, and with the largest alone."""
    wanted, random = targets(classes, coefficients.shape[1]), np.random.default_rng([study.seed, 3])
    cutter = Cutter(of_codes, spectrum(of_codes, coefficients), wanted, study.draws, random)
    return Cuts(
        full=cutter.side("top", cutter.rank).means,
        without_largest=cutter.side("bottom", cutter.rank - 1).means,
        without_smallest=cutter.side("top", cutter.rank - 1).means,
        largest_alone=cutter.side("top", 1).means,
        random=cutter.projected(cutter.rank - 1).means,
    )


def _mean(draws: Sequence[Cuts]) -> Cuts:
    def mean(cut: str, measure: str) -> float:
        return float(np.mean([getattr(draw.of(cut), measure) for draw in draws]))

    return Cuts(**{cut: Measures(**{name: mean(cut, name) for name in MEASURES}) for cut in Cuts.model_fields})


def trainings(study: MemoryStudy) -> int:
    """How many times the sweep goes through the steps, for a progress bar."""
    return 2 * len(planned(study))


def _size(
    classes: int,
    inputs: int,
    noise: float,
    kind: Codings,
    steps: Sequence[int],
    draws: Sequence[Sequence[Place]],
    cuts: Cuts,
) -> Size:
    places = []
    for step, at_step in zip(steps, zip(*draws, strict=True), strict=True):
        ratios, sides = [place.ratio for place in at_step], {place.side for place in at_step}
        places.append(
            SizePlace(
                step=step,
                ratio=Spread.of(float(np.mean(ratios)), ratios),
                top=float(np.mean([place.side == "top" for place in at_step])),
                side=sides.pop() if len(sides) == 1 else None,
                alignment=float(np.mean([place.alignment for place in at_step])),
            )
        )
    return Size(
        classes=classes,
        inputs=inputs,
        noise=noise,
        codes=kind,
        draws=len(draws),
        places=places,
        flips=flips(places),
        cuts=cuts,
        closed_form=_closed_form(classes, inputs, noise, steps) if kind == "orthonormal" else None,
    )


def _closed_form(classes: int, inputs: int, noise: float, steps: Sequence[int]) -> ClosedForm:
    values = [
        orthonormal.singular_values(classes, inputs // classes, three)
        for three in orthonormal.numbers(classes, noise, steps)
    ]
    return ClosedForm(
        first=orthonormal.first_ratio(classes, noise),
        late=orthonormal.late_ratio(classes),
        threshold=orthonormal.threshold(classes),
        ratios=[of_noise / of_signal for of_signal, of_noise in values],
    )


def flips(places: Sequence[SizePlace]) -> list[Flip]:
    """Between which steps the noise goes to the top or leaves it; steps at which draws disagree say nothing."""
    agreed = [
        (place.step, place.ratio.low > 1)
        for place in places
        if place.ratio.low > 1 + EQUAL or place.ratio.high < 1 - EQUAL
    ]
    return [
        Flip(after=step, before=later, to="top" if on_top_later else "below")
        for (step, on_top), (later, on_top_later) in pairwise(agreed)
        if on_top != on_top_later
    ]
