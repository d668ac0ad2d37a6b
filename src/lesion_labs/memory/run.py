"""The memory laboratory at work: train one memory, watch its spectrum, truncate it, check the theory over sizes."""

from __future__ import annotations

from importlib.metadata import version

from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.core.store import refuse_another
from lesion.core.values import read_summary
from lesion.progress import Silent, Watcher
from lesion_labs.memory import orthonormal, sizes, theory
from lesion_labs.memory.model import (
    codes,
    descend,
    logits,
    measure,
    measured_steps,
    mixture,
    noise_place,
    spectrum,
    targets,
    truncations,
)
from lesion_labs.memory.report import MemoryResult
from lesion_labs.memory.result import MemorySummary, Moment, SingularValues, Truncated
from lesion_labs.memory.study import MemoryStudy

KIND = "memory"
_AGAIN = "delete it and run the same command again"


def run_memory(study: MemoryStudy, run: Run) -> MemoryResult:
    """Measure a study's memory and write `summary.json`; a finished study of the same memory is only read."""
    with locked(run.folder, KIND):
        summary = read_summary(MemorySummary, run.folder, _AGAIN)
        if summary is None:
            summary = measured(study, run.watcher)
            summary.write(run.folder)
        else:
            refuse_another(run.folder, "memory", summary.study, study)
    return MemoryResult(run.folder, summary)


def measured(study: MemoryStudy, watcher: Watcher | None = None) -> MemorySummary:
    """Everything that is measured for a study; the same study gives the same numbers on one machine."""
    watcher = watcher or Silent()
    watcher.begin("memory", study.steps * (1 + sizes.trainings(study)), 0, "steps")
    training, truncated = _memory(study, watcher)
    of_sizes = sizes.sweep(study, watcher)
    watcher.begin("first step", theory.work(), 0, "batches")
    first_step = theory.first_step(study.noise, study.seed, watcher)
    notes = sizes.left_out(study)
    for note in notes:
        watcher.note(note)
    return MemorySummary(
        version=version("lesion"),
        study=study,
        training=training,
        truncated=truncated,
        sizes=of_sizes,
        first_step=first_step,
        notes=notes,
    )


def _memory(study: MemoryStudy, watcher: Watcher) -> tuple[list[Moment], list[Truncated]]:
    """Training and truncations of the study's own memory."""
    of_codes = codes(study)
    to_learn = mixture(study.classes, study.inputs, study.noise)
    wanted = targets(study.classes, study.inputs)
    steps = measured_steps(study.steps)
    predicted = _predicted(study, steps)
    training: list[Moment] = []
    for index, (step, coefficients) in enumerate(descend([of_codes], to_learn[None], steps, watcher)):
        of_step = spectrum(of_codes, coefficients[0])
        training.append(
            Moment(
                step=step,
                singular_values=of_step.values.tolist(),
                alignment=of_step.alignment.tolist(),
                noise=noise_place(of_step),
                predicted=predicted[index] if predicted else None,
                **dict(measure(logits(of_codes, coefficients[0]), wanted)),
            )
        )
    return training, truncations(of_codes, of_step, wanted, study.draws, study.seed)


def _predicted(study: MemoryStudy, steps: list[int]) -> list[SingularValues]:
    """The closed form after each of the steps; empty where there is none."""
    repeats, remainder = divmod(study.inputs, study.classes)
    if study.codes != "orthonormal" or remainder:
        return []
    values = [
        orthonormal.singular_values(study.classes, repeats, three)
        for three in orthonormal.numbers(study.classes, study.noise, steps)
    ]
    return [SingularValues(signal=of_signal, noise=of_noise) for of_signal, of_noise in values]
