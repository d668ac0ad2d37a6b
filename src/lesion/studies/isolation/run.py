"""Running an isolation study: isolate, evaluate every edit, and the numbers of both; recalling it from its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lesion.core.lock import locked
from lesion.core.rates import loops
from lesion.core.run import Run, drawn
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, Questions, differences
from lesion.core.values import read_summary, summary_kind
from lesion.edits.edit import ScaleParameters, parts
from lesion.edits.files.artefact import EditFile, read_edit
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.outputs import kind_of
from lesion.studies.isolation.activation_cache import FILE as STATISTICS
from lesion.studies.isolation.activation_cache import draw_texts, identity
from lesion.studies.isolation.evaluation import EditedModel, Evaluation
from lesion.studies.isolation.evaluation_items import calibrated_on, draw_items, seen
from lesion.studies.isolation.plan import Candidate, Roles, keep_plan, plan, read_plan
from lesion.studies.isolation.result import Isolation, IsolationSummary
from lesion.studies.isolation.select_weights import isolate
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.studies.isolation.summary import summarise
from lesion.tasks.catalogue import canonical


class Recalled(NamedTuple):
    """What a folder holds: the numbers, and where edits were evaluated the answers and items."""

    summary: IsolationSummary
    answers: pd.DataFrame | None = None
    items: pd.DataFrame | None = None


def run_isolation(study: IsolationStudy, run: Run) -> tuple[IsolationSummary, int, int]:
    """Isolate a skill and, where the study has tasks, evaluate every edit.

    Returns:
        The numbers; how many answers were given now, and of how many.

    Raises:
        UsageError: a task or a number of items does not exist; nothing has been observed then.
        LesionError: the model cannot be loaded, an edit selects nothing or moves nothing, or the folder belongs to
            another study or process, or cannot be written.
    """
    drawn(study)
    folder, watcher = run.folder, run.watcher
    model = run.load(study, study.model, finite=True)
    with locked(folder, "isolation"):
        texts = draw_texts(study, model)
        _refuse_another(folder, study, identity(study, model, texts))
        isolated = isolate(study, model, folder, watcher, texts)
        _summary(study, isolated.result, None).write(folder)
    for text in isolated.result.notes:
        watcher.note(text)
    evaluation, evaluated, planned = None, 0, 0
    if study.tasks:
        entries, edits = plan(model, isolated.candidates, study.factor, study.random_controls, watcher.note)
        skill = next((c.name for c in study.tasks if canonical(c.name) == canonical(study.skill)), study.skill)
        validation = None if study.choose is None else study.choose.validation
        roles = Roles(skill, validation, used=calibrated_on(edits.values()))
        evaluation, evaluated, planned = evaluate(study, study.model, model, entries, edits, run, roles)
    summary = _summary(study, isolated.result, evaluation)
    summary.write(folder)
    return summary, evaluated, planned


def run_evaluation(
    study: EvaluationStudy, run: Run, files: Sequence[EditFile] | None = None
) -> tuple[IsolationSummary, int, int]:
    """Evaluate the edits of files on one model, each beside its matched random controls.

    Args:
        study: which edits on which tasks; a folder of the same questions takes further edits.
        run: into that folder.
        files: of the edits, where they are read already.

    Returns:
        The numbers; how many answers were given now, and of how many.

    Raises:
        UsageError: a task does not exist, or a file holds something other than one selection of weights.
        LesionError: an edit does not fit the model, or as for `run_isolation`.
    """
    folder, watcher = run.folder, run.watcher
    files = [read_edit(file) for file in study.edits] if files is None else files
    drawn(study)
    model = run.load(study, study.model)
    candidates: dict[tuple[float, ...], list[Candidate]] = {}
    skills: list[str] = []
    remade: list[str] = []
    for file in files:
        edit = file.fit(model, force=study.force)
        if file.afresh(model, edit):
            remade.append(
                f"{file.label} was made for {file.model.name} (fingerprint {file.model.fingerprint}); its selection was"
                f" made anew on the weights of {model.name}."
            )
        single = list(parts(edit))
        if len(single) != 1 or not isinstance(single[0], ScaleParameters):
            raise UsageError(f"{file.path} holds '{edit}', not one selection of weights; it cannot be evaluated here.")
        selection = single[0].selection
        calibration = [p for inputs in selection.inputs[:1] for p in inputs.provenance[:1]]
        skills += [p.data for p in calibration]
        samples, repeat = (len(calibration[0].ids), calibration[0].repeat) if calibration else (None, None)
        factors = study.factor or (float(single[0].factor),)
        candidates.setdefault(factors, []).append(Candidate(selection, samples, repeat))
    entries: list[EditedModel] = []
    edits: dict[str, ScaleParameters] = {}
    # Those under the same factors together, since they can share random controls.
    for factors, same in candidates.items():
        more, made = plan(model, same, factors, study.random_controls, watcher.note)
        entries += [entry for entry in more if entry.edit not in edits]
        edits |= made
    by_task = {canonical(choice.name): choice.name for choice in study.tasks}
    skill = next((by_task[canonical(name)] for name in skills if canonical(name) in by_task), None)
    broken = [model.complaint(study.model.name)] if model.not_finite else []
    roles = Roles(skill, study.validation, (*broken, *remade), calibrated_on(edits.values()))
    isolation = _stored(folder)
    evaluation, evaluated, planned = evaluate(study, study.model, model, entries, edits, run, roles)
    summary = _summary(study, isolation, evaluation)
    summary.write(folder)
    return summary, evaluated, planned


def evaluate(
    questions: Questions,
    chosen: ModelChoice,
    model: Model,
    planned: Sequence[EditedModel],
    edits: Mapping[str, ScaleParameters],
    run: Run,
    roles: Roles | None = None,
) -> tuple[Evaluation, int, int]:
    """Evaluate the baseline and every edit on the same items; a folder of the same questions takes further edits.

    Returns:
        The numbers; how many answers were given now, and of how many.

    Raises:
        UsageError: a task or a number of items does not exist.
        LesionError: the folder belongs to other questions or cannot be written. Answers given until then are stored.
    """
    roles = roles or Roles()
    items = draw_items(questions, roles.used, run.folder)
    roles = replace(roles, notes=(*roles.notes, *seen(items, roles.used)))
    with run.evaluation(questions, items) as evaluation:
        evaluation.add(chosen.name, model)
        kinds = {choice.name: task.kind for choice, task in evaluation.tasks.items()}
        dtype = str(model.dtype).removeprefix("torch.")
        plan = keep_plan(run.folder, chosen.name, dtype, kinds, planned, roles, questions.level)
        evaluation.evaluate(chosen, model, [edits[entry.edit] for entry in planned])
        numbers = summarise(plan, evaluation.store.answers(), evaluation.store.items())
    return numbers, evaluation.evaluated, evaluation.planned


def recall_isolation(folder: Path) -> Recalled | None:
    """An isolation or evaluation as far as it has got; None: the folder has none.

    Raises:
        LesionError: something in the folder is damaged.
    """
    isolation, planned = _stored(folder), read_plan(folder)
    if planned is None:
        return None if isolation is None else Recalled(_summary(isolation.study, isolation, None))
    with Store.read(folder) as store:
        answers, items, text = store.answers(), store.items(), store.study[1]
    kind = EvaluationStudy if tomllib.loads(text).get("kind") == "evaluation" else IsolationStudy
    study = kind.parse(text, "The stored study")
    return Recalled(_summary(study, isolation, summarise(planned, answers, items)), answers, items)


def _refuse_another(folder: Path, study: IsolationStudy, identity: str) -> None:
    """One folder, one isolation: further shares and methods are welcome, other texts or models are not.

    Raises:
        LesionError: what was isolated there has another model, other data, or other draws.
    """
    try:
        there = _stored(folder)
    except LesionError:
        return  # damaged: there is nothing to lose
    if there is None or there.identity == identity:
        return
    keys = ("model", "skill", "controls", "samples", "repeats", "seed", "replacement", "prompt_style", "dtype")
    differing = differences(there.study, study, keys) or "the same draws of data that has changed since"
    raise LesionError(
        f"{folder} holds another isolation ({differing}); its edits would be mixed with these. Give another folder with"
        f" --out."
    )


def _stored(folder: Path) -> Isolation | None:
    """The isolation in a folder; None where none was made there.

    Raises:
        LesionError: it is damaged, and cannot be made again from the answers.
    """
    try:
        if (kind_of(folder) or summary_kind(folder)) != "isolation":
            return None
        summary = read_summary(IsolationSummary, folder, "run `lesion isolate` again")
    except LesionError:
        if (folder / STATISTICS).exists():
            raise
        return None  # of an evaluation alone everything is in the store and the plan
    return None if summary is None else summary.isolation


def _summary(
    study: IsolationStudy | EvaluationStudy, isolation: Isolation | None, evaluation: Evaluation | None
) -> IsolationSummary:
    notes = [part.notes for part in (isolation, evaluation) if part is not None]
    label = loops(study.decoding.stop_loops).get("approximate") if evaluation is not None else None
    return IsolationSummary(
        approximate=label,
        study=study,
        isolation=isolation,
        evaluation=evaluation,
        notes=tuple(dict.fromkeys([*chain(*notes), *_foreign(isolation, evaluation)])),
    )


def _foreign(isolation: Isolation | None, evaluation: Evaluation | None) -> list[str]:
    """A note where edits were evaluated that are not among those isolated in the same folder."""
    if isolation is None or evaluation is None:
        return []
    own = {selection.digest for selection in isolation.selections}
    others = {edit.label for edit in evaluation.tried if edit.digest not in own}
    if not others:
        return []
    return [
        f"{', '.join(sorted(others))}: evaluated here, but not among the selections that this folder's isolation made;"
        f" what is told of those does not hold for these."
    ]
