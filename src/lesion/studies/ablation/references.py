"""The references of a layer study: what replaces a place's contribution under each task, kept in the study's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from lesion.activations.calibration import calibration
from lesion.activations.contributions import Kind, reference
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.reference import Reference, read_reference
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.studies.ablation.sweep import PlaceEdit, Replacement, made
from lesion.tasks.catalogue import calibration_items
from lesion.tasks.gold import gold_name
from lesion.tasks.task import Item, Task

TEXTS = 100
"""So many texts of a task make its reference, or all that it has."""
FOLDER = "references"


References = Mapping[str, Mapping[str, Reference]]
"""References by task, and of each task by what they are the source of (`Replacement.source`)."""


def references_of(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, edits: Sequence[PlaceEdit]
) -> dict[str, dict[str, Reference]]:
    """The references of every task of a study that its edits need, by the task's name and by that of its gold answers.

    A reference that the folder has of these weights is read; another one is made from prompts with their gold
    solutions, the last of the seeded order from which the evaluated items are the first.

    Raises:
        UsageError: a task has no items.
        LesionError: what a place adds cannot be read, or a file of the folder is damaged or cannot be written.
    """
    sources = list(dict.fromkeys(edit.source for edit in edits if isinstance(edit, Replacement)))
    by_task: dict[str, dict[str, Reference]] = {}
    for choice, task in evaluation.tasks.items():
        own: dict[str, Reference] = {}
        for source in sources:
            path = evaluation.run.folder / FOLDER / _file(evaluation, chosen, choice, source)
            known = _read(path) if path.is_file() else None
            if known is None or known.fingerprint != model.fingerprint:
                known = _made(evaluation, chosen, choice, task, model, source)
                path.parent.mkdir(parents=True, exist_ok=True)
                known.save(path)
            own[source] = known
        by_task[choice.name] = by_task[gold_name(choice.name)] = own
    return by_task


def _read(path: Path) -> Reference:
    try:
        return read_reference(path)
    except LesionError as error:
        raise LesionError(
            f"{error} Delete it to have it made anew; what was answered under it is answered again where the new one"
            " differs."
        ) from error


def _made(
    evaluation: Evaluation, chosen: ModelChoice, choice: TaskChoice, task: Task, model: Model, source: str
) -> Reference:
    study = evaluation.study
    count = min(TEXTS, len(calibration_items(task)))
    style = study.prompt_style_of(chosen, choice)
    texts = calibration(model, task, count, seed=study.seed, style=style)
    kinds: Sequence[Kind] = ("position",) if source == "position" else ("mean", "resample")
    return reference(model, texts, kinds=kinds, seed=study.seed, watcher=evaluation.run.watcher)


def _file(evaluation: Evaluation, chosen: ModelChoice, choice: TaskChoice, source: str) -> Path:
    """The file of a model, task and source: what decides the reference, as a hash."""
    style = evaluation.study.prompt_style_of(chosen, choice)
    decided = f"{chosen.name}|{choice.name}|{style}|{evaluation.study.seed}|{source}"
    return Path(f"{hashlib.sha256(decided.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.safetensors")


def pending_of(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
    tasks: Mapping[TaskChoice, Task] | None = None,
    items: Mapping[TaskChoice, Sequence[Item]] | None = None,
) -> Pending:
    """The answers that are wanted of a model (`Evaluation.pending`), each task under edits with its own reference."""
    tasks = evaluation.tasks if tasks is None else tasks
    whole = Pending(0, {})
    for choice, task in tasks.items():
        of_task = [made(edit, references.get(choice.name, {})) for edit in edits]
        part = evaluation.pending(chosen, model, of_task, {choice: task}, items)
        whole = Pending(whole.total + part.total, whole.cells | part.cells)
    return whole
