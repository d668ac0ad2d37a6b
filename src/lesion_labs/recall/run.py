"""Runs of the recall laboratory: one resumable training with its truncations, and a study of every combination."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from lesion.atomic import keep
from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.core.store import differences
from lesion.core.values import read_summary, read_value
from lesion.errors import LesionError, UsageError
from lesion.models.names import device_of
from lesion.outputs import refuse_another_kind
from lesion.plain import visible
from lesion.progress import SILENT, Watcher
from lesion.report.values import Value
from lesion.training.resume import Progress, stored
from lesion_labs.recall import data as languages
from lesion_labs.recall import result
from lesion_labs.recall.data import Batch, Language, Source
from lesion_labs.recall.measurement import Examination, floor, measure, phases, spectra, sweep
from lesion_labs.recall.model import Recipe, Weights, forward, names, preset, shapes, untrained
from lesion_labs.recall.report import RecallResult
from lesion_labs.recall.study_file import RecallStudy

STATE = "training.safetensors"
SAVED_EVERY = 20.0  # seconds; what was done since is done again after an interruption


def loss(weights: Weights, batch: Batch) -> Tensor:
    """Mean cross-entropy over all questions of a batch, in nats; 0 where there is none."""
    logits = forward(weights, batch.tokens, batch.questions).logits
    return F.cross_entropy(logits, batch.targets[batch.questions], reduction="sum") / max(1, len(logits))


def measured_steps(steps: int) -> list[int]:
    """At how many steps done everything is measured: 0, about eight to a decade, every twentieth part, and the last."""
    spaced = {round(10 ** (power / 8)) for power in range(8 * 10) if round(10 ** (power / 8)) <= steps}
    return sorted({0, steps} | spaced | {round(part * steps / 20) for part in range(20)})


def train(
    recipe: Recipe,
    language: Language,
    folder: Path,
    *,
    device: str = "cpu",
    watcher: Watcher = SILENT,
    name: str = "recall",
) -> tuple[dict[str, Tensor], list[result.Point], Examination]:
    """Train, or go on where a training of the same recipe in `folder`, which exists, stopped.

    An interrupted training ends with the same bits as an uninterrupted one: a batch is a function of its step, and the
    state holds all that the optimiser remembers.
    """
    examination = Examination.of(recipe, language, device)
    weights = {name: tensor.to(device) for name, tensor in untrained(recipe).items()}
    trained = {name: weights[name].requires_grad_() for name in shapes(recipe.feed_forward, recipe.width)}
    optimiser = _optimiser(recipe, list(trained.values()))
    progress = Progress(folder, recipe.model_dump(), trained, optimiser, file=STATE)
    curve = [result.Point.model_validate(point) for point in progress.points]
    due = set(measured_steps(recipe.steps))
    batches = Source(recipe, language, device).batches("training", progress.step, recipe.steps, recipe.batch)
    watcher.begin(name, recipe.steps, progress.step, what="steps")
    saved = time.monotonic()
    while True:
        step = progress.step
        if step in due and (not curve or curve[-1].step < step):
            if not examination.traces(weights)[1].logits.isfinite().all():
                raise LesionError(
                    f"At step {step} the loss is not a number any more; train again with a smaller learning rate, "
                    f"or with less width than {recipe.width}."
                )
            curve.append(measure(weights, examination, step))
            progress.points.append(curve[-1].model_dump(mode="json"))
        if step == recipe.steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step)
        optimiser.zero_grad(set_to_none=True)
        loss(weights, next(batches)).backward()
        optimiser.step()
        progress.step += 1
        watcher.answered(1)
        if time.monotonic() - saved > SAVED_EVERY:
            progress.save()
            saved = time.monotonic()
    progress.save()
    return {name: tensor.detach() for name, tensor in weights.items()}, curve, examination


def _optimiser(recipe: Recipe, trained: list[Tensor]) -> torch.optim.Optimizer:
    if recipe.optimiser == "adam":
        return torch.optim.Adam(trained, lr=recipe.learning_rate)
    return torch.optim.SGD(trained, lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def _refuse_another(folder: Path, there: Mapping[str, object], recipe: Recipe) -> None:
    """Refuse a folder of another recipe, which is `there` as JSON has it."""
    here = recipe.model_dump(mode="json")
    if difference := differences(there, here, here):
        raise UsageError(
            f"{folder} holds a training of another recipe ({difference}); give another folder with --out, or delete"
            " that one."
        )


STUDY, CELLS = "study.toml", "cells"
PARTIAL = "truncated.json"
"""Rows of a sweep that is not finished; gone when it is."""


class Partial(Value):
    """The rows of a truncation sweep that is not finished."""

    recipe: Recipe
    truncated: tuple[result.CutMeasures, ...]


def run(
    recipe: Recipe,
    folder: Path,
    *,
    corpus: str | None = None,
    device: str = "auto",
    watcher: Watcher = SILENT,
    name: str = "recall",
) -> result.RecallSummary:
    """Train the recipe's model in `folder` and truncate every matrix of it; go on where an interrupted run stopped.

    Args:
        folder: made if it is not there; a finished run of the same recipe in it is only read.
        corpus: the text, where the recipe's tables come from one (`language_of`).
        name: of the training, for the watcher.
    """
    device = str(device_of(device))
    language = language_of(recipe, corpus)
    with locked(folder, result.KIND):
        earlier = finished(folder, recipe)
        if earlier is not None:
            return earlier
        began = time.monotonic()
        weights, training, examination = train(recipe, language, folder, device=device, watcher=watcher, name=name)
        own_answers = examination.own_answers()
        rows = _partial(folder, recipe)
        for of_matrix in sweep(weights, examination, recipe, watcher, name, rows):
            rows += of_matrix
            keep(folder / PARTIAL, Partial(recipe=recipe, truncated=rows).model_dump_json() + "\n")
        summary = result.RecallSummary(
            recipe=recipe,
            floor=floor(recipe.noise, own_answers.noisy.noise),
            own_answers=own_answers if recipe.own_answers else None,
            language=_language_facts(language),
            questions=result.Questions(**examination.questions),
            matrices=names(weights),
            full=examination.measures(examination.traces(weights)),
            truncated=rows,
            training=training,
            phases=phases(training),
            spectra=spectra(weights, untrained(recipe), language),
            machine=result.Machine(
                device=device,
                name=torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine(),
                seconds=round(time.monotonic() - began, 1),
                torch=torch.__version__,
            ),
        )
        summary.write(folder)
        (folder / PARTIAL).unlink(missing_ok=True)
        return summary


def finished(folder: Path, recipe: Recipe) -> result.RecallSummary | None:
    """The summary of a recipe's finished run in a folder; None where the run is not finished, or not begun."""
    refuse_another_kind(folder, result.KIND)
    summary = read_summary(result.RecallSummary, folder, result.AGAIN)
    if summary is not None:
        _refuse_another(folder, summary.recipe.model_dump(mode="json"), recipe)
    elif (folder / STATE).exists():
        _refuse_another(folder, stored(folder / STATE)["identity"], recipe)
    return summary


def _partial(folder: Path, recipe: Recipe) -> list[result.CutMeasures]:
    """The rows of a truncation sweep that was interrupted; those of another recipe do not count."""
    with suppress(LesionError):  # of a damaged file
        partial = read_value(Partial, folder / PARTIAL, result.AGAIN)
        if partial is not None and partial.recipe == recipe:
            return list(partial.truncated)
    return []


def language_of(recipe: Recipe, corpus: str | None = None) -> Language:
    """The recipe's tables: generated, or of the text whose digest the recipe names."""
    if recipe.corpus is None:
        return languages.generated(recipe.vocabulary, recipe.seed)
    if corpus is None:
        raise UsageError("The tables of this recipe come from a text; give it with --corpus.")
    text, digest = languages.read(corpus)
    if digest != recipe.corpus:
        raise UsageError(f"{corpus} is not the text of this recipe: it has changed since.")
    return languages.of_text(text, recipe.vocabulary, corpus)


def _language_facts(language: Language) -> result.LanguageFacts:
    symbols = language.symbols or range(language.vocabulary)
    return result.LanguageFacts(
        source="corpus" if language.symbols else "generator",
        trigger=symbols[language.trigger],
        noise_token=symbols[language.noise_token],
        trigger_share=float(language.unigram[language.trigger]),
    )


LISTS = ("noise", "vocabulary", "width", "feed_forward", "optimiser", "steps", "seed")


def recipes(study: RecallStudy) -> list[Recipe]:
    """One recipe for each training of a study, seeds innermost."""
    digest = languages.read(study.corpus)[1] if study.corpus is not None else None
    lists = [getattr(study, name) or (None,) for name in LISTS]
    return [
        preset(
            study.preset,
            **dict(zip(LISTS, values, strict=True)),
            keep=study.keep or None,
            length=study.length,
            batch=study.batch,
            measured=study.measured,
            corpus=digest,
        )
        for values in itertools.product(*lists)
    ]


def cell_name(recipe: Recipe) -> str:
    """The folder of a training within its study's."""
    return (
        f"{recipe.feed_forward}-{recipe.optimiser}-{recipe.steps}-noise{recipe.noise!r}-vocabulary{recipe.vocabulary}"
        f"-width{recipe.width}-seed{recipe.seed}"
    )


def run_recall(study: RecallStudy, run: Run) -> RecallResult:
    """Run every training of a study and gather them in `summary.json`; go on where an interrupted run stopped.

    Each training has a folder of its own in `cells`, as `run` leaves it. A study that has the trainings of a folder's
    summary too can add more. Whatever is refused is refused before anything is written.
    """
    planned = recipes(study)
    device_of(study.device)
    language_of(max(planned, key=lambda recipe: recipe.vocabulary), study.corpus)
    _refuse(run.folder, planned)
    with locked(run.folder, result.STUDY_KIND):
        return RecallResult(run.folder, _run(study, planned, run.folder, run.watcher))


def _refuse(folder: Path, planned: Sequence[Recipe]) -> None:
    refuse_another_kind(folder, result.STUDY_KIND)
    for recipe in planned:
        finished(folder / CELLS / cell_name(recipe), recipe)
    earlier = read_summary(result.RecallStudySummary, folder, result.AGAIN)
    if earlier is None:
        return
    kept = {f"{CELLS}/{cell_name(recipe)}" for recipe in planned}
    lost = [cell.folder for cell in earlier.cells if cell.folder not in kept]
    if lost:
        raise UsageError(
            f"{folder} has a study with {len(lost)} of {len(earlier.cells)} trainings that this one does not have, for"
            f" example {Path(lost[0]).name}; its summary would lose them. Give another folder with --out, or a study"
            " that has them too."
        )


def _run(study: RecallStudy, planned: Sequence[Recipe], folder: Path, watcher: Watcher) -> result.RecallStudySummary:
    trainings = {}
    for number, recipe in enumerate(planned, 1):
        place = f"{CELLS}/{cell_name(recipe)}"
        name = f"{visible(study.name)} {number} of {len(planned)}"
        trainings[place] = run(
            recipe, folder / place, corpus=study.corpus, device=study.device, watcher=watcher, name=name
        )
    fields = result.StudyTraining.model_fields.keys() - {"folder"}
    cells = [
        result.StudyTraining(folder=place, **{name: getattr(trained, name) for name in fields})
        for place, trained in trainings.items()
    ]
    summary = result.RecallStudySummary(study=study, cells=cells, groups=result.groups(list(trainings.values())))
    summary.write(folder)
    keep(folder / STUDY, study.to_toml())
    return summary
