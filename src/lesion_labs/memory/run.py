"""The memory laboratory at work: train one memory, watch its spectrum, truncate it, check the theory over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float64

from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.core.store import refuse_another
from lesion.core.values import read_summary
from lesion.progress import SILENT, Watcher
from lesion_labs.memory import model, orthonormal, result, theory
from lesion_labs.memory.report import MemoryResult
from lesion_labs.memory.study import MemoryStudy

KIND = "memory"
_AGAIN = "delete it and run the same command again"


def run_memory(study: MemoryStudy, run: Run) -> MemoryResult:
    """Measure a study's memory and write `summary.json`; a finished study of the same memory is only read."""
    with locked(run.folder, KIND):
        summary = read_summary(result.MemorySummary, run.folder, _AGAIN)
        if summary is None:
            summary = measured(study, run.watcher)
            summary.write(run.folder)
        else:
            refuse_another(run.folder, "memory", summary.study, study)
    return MemoryResult(run.folder, summary)


def measured(study: MemoryStudy, watcher: Watcher = SILENT) -> result.MemorySummary:
    """Everything that is measured for a study; the same study gives the same numbers on one machine."""
    watcher.begin("memory", study.steps * (1 + len(KINDS) * len(planned(study))), 0, "steps")
    training, truncated = _memory(study, watcher)
    of_sizes = sweep(study, watcher)
    watcher.begin("first step", theory.SEEDS * len(theory.VOCABULARIES), 0, "batches")
    first_step = theory.first_step(study.noise, study.seed, watcher)
    notes = left_out(study)
    for note in notes:
        watcher.note(note)
    return result.MemorySummary(
        study=study, training=training, truncated=truncated, sizes=of_sizes, first_step=first_step, notes=notes
    )


def _memory(study: MemoryStudy, watcher: Watcher) -> tuple[list[result.Moment], list[result.Truncated]]:
    of_codes = model.codes(study)
    to_learn = model.mixture(study.classes, study.inputs, study.noise)
    wanted = model.targets(study.classes, study.inputs)
    steps = model.measured_steps(study.steps)
    repeats, remainder = divmod(study.inputs, study.classes)
    predicted: dict[int, result.SingularValues] = {}
    if study.codes == "orthonormal" and not remainder:
        values = orthonormal.singular_values(study.classes, repeats, study.noise, steps)
        predicted = {step: result.SingularValues(signal=s, noise=n) for step, (s, n) in zip(steps, values, strict=True)}
    training: list[result.Moment] = []
    for step, coefficients in model.descend([of_codes], to_learn[None], steps, watcher):
        of_step = model.spectrum(of_codes, coefficients[0])
        training.append(
            result.Moment(
                step=step,
                singular_values=of_step.values.tolist(),
                alignment=of_step.alignment.tolist(),
                noise=model.noise_place(of_step),
                predicted=predicted.get(step),
                **dict(model.measure(model.logits(of_codes, coefficients[0]), wanted)),
            )
        )
    return training, model.truncations(of_codes, of_step, wanted, study.draws, study.seed)


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


def sweep(study: MemoryStudy, watcher: Watcher) -> list[result.Size]:
    """Train memories of every planned size, noise and kind of codes, and say where the noise lies at which step."""
    noises = sorted({*NOISES, study.noise} - {0.0})
    rows = []
    for classes, inputs in planned(study):
        sized = study.model_copy(update={"classes": classes, "inputs": inputs})
        # The kinds apart: the steps of orthonormal codes need no products.
        kinds = [_trained(sized.model_copy(update={"codes": kind}), noises, watcher) for kind in KINDS]
        rows += [size for pair in zip(*kinds, strict=True) for size in pair]
    return rows


def _trained(study: MemoryStudy, noises: Sequence[float], watcher: Watcher) -> list[result.Size]:
    """The memories of the study's size and kind of codes under each noise, trained together."""
    steps, draws = model.measured_steps(study.steps), 1 if study.codes == "orthonormal" else SEEDS
    seeds = [study.seed + seed for _ in noises for seed in range(draws)]
    run_codes = [model.codes(study.model_copy(update={"seed": seed})) for seed in seeds]
    mixtures = [model.mixture(study.classes, study.inputs, noise) for noise in noises for _ in range(draws)]
    places: list[list[result.NoisePlace]] = [[] for _ in seeds]
    for _, coefficients in model.descend(run_codes, np.stack(mixtures), steps, watcher):
        for run_places, of_codes, weights in zip(places, run_codes, coefficients, strict=True):
            run_places.append(model.noise_place(model.spectrum(of_codes, weights)))
    cuts = [_cuts(of_codes, weights, study) for of_codes, weights in zip(run_codes, coefficients, strict=True)]
    rows = []
    for number, noise in enumerate(noises):
        own = slice(number * draws, (number + 1) * draws)
        of_steps = [
            _over_draws(step, step_places)
            for step, step_places in zip(steps, zip(*places[own], strict=True), strict=True)
        ]
        rows.append(
            result.Size(
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


def _over_draws(step: int, places: Sequence[result.NoisePlace]) -> result.SizePlace:
    sides = {place.side for place in places}
    return result.SizePlace(
        step=step,
        ratio=result.Spread.of([place.ratio for place in places]),
        top=float(np.mean([place.side == "top" for place in places])),
        side=sides.pop() if len(sides) == 1 else None,
        alignment=float(np.mean([place.alignment for place in places])),
    )


def _cuts(
    of_codes: model.Codes, coefficients: Float64[np.ndarray, "outputs inputs"], study: MemoryStudy
) -> result.Cuts:
    wanted, random = model.targets(study.classes, study.inputs), np.random.default_rng([study.seed, 3])
    cutter = model.Cutter(of_codes, model.spectrum(of_codes, coefficients), wanted, study.draws, random)
    return result.Cuts(
        full=cutter.side("top", cutter.rank).means,
        without_largest=cutter.side("bottom", cutter.rank - 1).means,
        without_smallest=cutter.side("top", cutter.rank - 1).means,
        largest_alone=cutter.side("top", 1).means,
        random=cutter.projected(cutter.rank - 1).means,
    )


def _mean(draws: Sequence[result.Cuts]) -> result.Cuts:
    def mean(cut: str, measure: str) -> float:
        return float(np.mean([draw.of(cut).of(measure) for draw in draws]))

    return result.Cuts(
        **{
            cut: result.Measures(**{name: mean(cut, name) for name in result.MEASURES})
            for cut in result.Cuts.model_fields
        }
    )


def _closed_form(study: MemoryStudy, noise: float, steps: Sequence[int]) -> result.ClosedForm:
    repeats = study.inputs // study.classes
    values = orthonormal.singular_values(study.classes, repeats, noise, steps)
    return result.ClosedForm(
        first=orthonormal.first_ratio(study.classes, noise),
        late=orthonormal.late_ratio(study.classes),
        threshold=orthonormal.threshold(study.classes),
        ratios=[of_noise / of_signal for of_signal, of_noise in values],
    )


def flips(places: Sequence[result.SizePlace]) -> list[result.Flip]:
    """Between which steps the noise goes to the top or leaves it; steps at which draws disagree say nothing."""
    apart = [place for place in places if max(place.ratio.low - 1, 1 - place.ratio.high) > model.EQUAL]
    agreed = [(place.step, place.ratio.low > 1) for place in apart]
    return [
        result.Flip(after=step, before=later, to="top" if on_top_later else "below")
        for (step, on_top), (later, on_top_later) in pairwise(agreed)
        if on_top != on_top_later
    ]
