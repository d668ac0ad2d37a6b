"""Which side of the spectrum holds the noise: over sizes, noises and codes, early and late in training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float64

from lesion.progress import Watcher
from lesion_labs.memory import orthonormal
from lesion_labs.memory.model import (
    EQUAL,
    Codes,
    Cutter,
    codes,
    descend,
    measured_steps,
    mixture,
    noise_place,
    spectrum,
    targets,
)
from lesion_labs.memory.result import MEASURES, ClosedForm, Cuts, Flip, Measures, NoisePlace, Size, SizePlace, Spread
from lesion_labs.memory.study import MemoryStudy

CLASSES = (2, 3, 4, 8, 20, 32)
NOISES = (0.1, 0.3, 0.5, 0.6, 0.7)
SEEDS = 5
"""Draws of gaussian codes; orthonormal ones all have the same spectrum, and one is enough."""
Codings = Literal["orthonormal", "gaussian"]
KINDS: tuple[Codings, ...] = ("orthonormal", "gaussian")
REPEATED = {4: 4}
"""Numbers of classes that are also tried with several inputs per class, and how many."""


def planned(study: MemoryStudy) -> list[tuple[int, int]]:
    """(classes, inputs) that fit into the study's width as orthonormal codes.

    The study's own number of classes is among them where it fits and is not beyond the largest of `CLASSES`.
    """
    repeats = {classes: sorted({1, REPEATED.get(classes, 1)}) for classes in _tried(study)}
    sizes = [(classes, number * classes) for classes, numbers in repeats.items() for number in numbers]
    return [(classes, inputs) for classes, inputs in sizes if max(classes + 1, inputs) <= study.width]


def _tried(study: MemoryStudy) -> list[int]:
    return sorted({*CLASSES, min(study.classes, max(CLASSES))})


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
    noises = sorted({*NOISES, study.noise} - {0.0})
    rows = []
    for classes, inputs in planned(study):
        sized = study.model_copy(update={"classes": classes, "inputs": inputs})
        # The kinds apart: the steps of orthonormal codes need no products.
        kinds = [_trained(sized.model_copy(update={"codes": kind}), noises, watcher) for kind in KINDS]
        rows += [size for pair in zip(*kinds, strict=True) for size in pair]
    return rows


def _trained(study: MemoryStudy, noises: Sequence[float], watcher: Watcher) -> list[Size]:
    """The memories of the study's size and kind of codes under each noise, trained together."""
    steps, draws = measured_steps(study.steps), 1 if study.codes == "orthonormal" else SEEDS
    seeds = [study.seed + seed for _ in noises for seed in range(draws)]
    run_codes = [codes(study.model_copy(update={"seed": seed})) for seed in seeds]
    mixtures = [mixture(study.classes, study.inputs, noise) for noise in noises for _ in range(draws)]
    places: list[list[NoisePlace]] = [[] for _ in seeds]
    for _, coefficients in descend(run_codes, np.stack(mixtures), steps, watcher):
        for run_places, of_codes, weights in zip(places, run_codes, coefficients, strict=True):
            run_places.append(noise_place(spectrum(of_codes, weights)))
    cuts = [_cuts(of_codes, weights, study) for of_codes, weights in zip(run_codes, coefficients, strict=True)]
    rows = []
    for number, noise in enumerate(noises):
        own = slice(number * draws, (number + 1) * draws)
        of_steps = [
            _over_draws(step, step_places)
            for step, step_places in zip(steps, zip(*places[own], strict=True), strict=True)
        ]
        rows.append(
            Size(
                classes=study.classes,
                inputs=study.inputs,
                noise=noise,
                codes=study.codes,
                draws=draws,
                places=of_steps,
                flips=flips(of_steps),
                cuts=_mean(cuts[own]),
                closed_form=_closed_form(study, noise, steps) if study.codes == "orthonormal" else None,
            )
        )
    return rows


def _over_draws(step: int, places: Sequence[NoisePlace]) -> SizePlace:
    sides = {place.side for place in places}
    return SizePlace(
        step=step,
        ratio=Spread.of([place.ratio for place in places]),
        top=float(np.mean([place.side == "top" for place in places])),
        side=sides.pop() if len(sides) == 1 else None,
        alignment=float(np.mean([place.alignment for place in places])),
    )


def _cuts(of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"], study: MemoryStudy) -> Cuts:
    """The trained memory whole, without its largest and without its smallest component, and with the largest alone."""
    wanted, random = targets(study.classes, study.inputs), np.random.default_rng([study.seed, 3])
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
        return float(np.mean([draw.of(cut).of(measure) for draw in draws]))

    return Cuts(**{cut: Measures(**{name: mean(cut, name) for name in MEASURES}) for cut in Cuts.model_fields})


def trainings(study: MemoryStudy) -> int:
    """How many times the sweep goes through the steps, for a progress bar."""
    return 2 * len(planned(study))


def _closed_form(study: MemoryStudy, noise: float, steps: Sequence[int]) -> ClosedForm:
    repeats = study.inputs // study.classes
    ratios = []
    for numbers in orthonormal.numbers(study.classes, noise, steps):
        of_signal, of_noise = orthonormal.singular_values(study.classes, repeats, numbers)
        ratios.append(of_noise / of_signal)
    return ClosedForm(
        first=orthonormal.first_ratio(study.classes, noise),
        late=orthonormal.late_ratio(study.classes),
        threshold=orthonormal.threshold(study.classes),
        ratios=ratios,
    )


def flips(places: Sequence[SizePlace]) -> list[Flip]:
    """Between which steps the noise goes to the top or leaves it; steps at which draws disagree say nothing."""
    apart = [place for place in places if place.ratio.low > 1 + EQUAL or place.ratio.high < 1 - EQUAL]
    agreed = [(place.step, place.ratio.low > 1) for place in apart]
    return [
        Flip(after=step, before=later, to="top" if on_top_later else "below")
        for (step, on_top), (later, on_top_later) in pairwise(agreed)
        if on_top != on_top_later
    ]
