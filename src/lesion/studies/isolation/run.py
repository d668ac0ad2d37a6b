"""Running an isolation study: isolate, evaluate every edit, and the numbers of both; recalling it from its folder."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from lesion.atomic import replace
from lesion.bounds import check
from lesion.core.inference import load_chosen
from lesion.core.lock import FolderLock
from lesion.core.outcome import Outcome
from lesion.core.rates import loops
from lesion.core.store import Store
from lesion.core.study_file import Questions
from lesion.edits.edit import ScaleParameters, parts
from lesion.edits.files.artefact import EditFile
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.files import UNFIT, stored_object
from lesion.models.load import Model, refuse_not_finite
from lesion.outputs import refuse_another_kind
from lesion.progress import Silent, Watcher
from lesion.studies.isolation.activation_cache import draw_texts, identity
from lesion.studies.isolation.evaluate import Candidate, Planned, Roles, evaluate, plan, read_plan
from lesion.studies.isolation.evaluation_items import calibrated_on
from lesion.studies.isolation.evaluation_summary import summarise
from lesion.studies.isolation.select_weights import isolate
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.tasks.catalogue import canonical, draw, find

ISOLATION = "isolation.json"


def run_isolation(
    study: IsolationStudy,
    folder: Path,
    *,
    watcher: Watcher | None = None,
    model: Model | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> Outcome:
    """Isolate a skill into a folder and, where the study has tasks, evaluate every edit.

    What the folder has already, sums or answers, is not computed again.

    Args:
        study: what to isolate and ask.
        folder: made when absent.
        watcher: is told how it goes.
        model: the study's model, where it is loaded already.
        make_engine: the engine for a model and a batch size.

    Raises:
        UsageError: a task or a number of items does not exist; nothing has been observed then.
        LesionError: the model cannot be loaded, an edit selects nothing or moves nothing, or the folder belongs to
            another study or process, or cannot be written.
    """
    watcher = watcher or Silent()
    for choice in study.tasks:
        draw(find(choice.name), study.items_of(choice), study.seed)
    folder = Path(folder)
    refuse_another_kind(folder, "isolation")
    model = model or load_chosen(study, study.model, make_engine)
    refuse_not_finite(model, study.model.name)
    with _locked(folder):
        texts = draw_texts(study, model)
        told = identity(study, model, texts)
        _refuse_another(folder, study, told)
        isolation = isolate(study, model, folder, watcher, texts)
        _keep(folder, study, told, isolation.summary, isolation.notes)
    notes = list(isolation.notes)
    for text in notes:
        watcher.note(text)
    asked = planned = 0
    evaluation = None
    if study.tasks:
        candidates = [
            Candidate(one.selection, one.samples, one.repeat, one.keep, one.method, counts)
            for one, counts in zip(isolation.made, isolation.counts, strict=True)
        ]
        entries, edits = plan(model, candidates, study.factor, study.random_controls, watcher.note)
        skill = next((c.name for c in study.tasks if canonical(c.name) == canonical(study.skill)), study.skill)
        roles = Roles(
            skill,
            None if study.choose is None else study.choose.validation,
            used=calibrated_on(edits.values()),
        )
        evaluation, asked, planned = evaluate(
            study, study.model, model, entries, edits, folder, watcher, roles, make_engine
        )
        notes += evaluation.pop("notes")
    return Outcome(folder, _summary(study, isolation.summary, evaluation, notes), asked, planned)


def run_evaluation(
    study: EvaluationStudy,
    files: Sequence[EditFile],
    folder: Path,
    *,
    factors: Sequence[float] = (),
    random_controls: int = 3,
    validation: float | None = None,
    force: bool = False,
    watcher: Watcher | None = None,
    model: Model | None = None,
    make_engine: MakeEngine = TransformersEngine,
) -> Outcome:
    """Evaluate the edits of files on one model, each beside its matched random controls, into a folder.

    Args:
        study: what to ask.
        files: of the edits; none asks the baseline alone.
        folder: made when absent; one of the same questions takes further edits.
        factors: that selected weights are multiplied by; none: each file's own.
        random_controls: how many of each edit under each factor.
        validation: the share of items on which the best edit is chosen; None: none is chosen.
        force: also edits that were made for another model, where shapes fit.
        watcher: is told how it goes.
        model: the study's model, where it is loaded already.
        make_engine: the engine for a model and a batch size.

    Raises:
        UsageError: a task does not exist, or a file holds something other than one selection of weights.
        LesionError: an edit does not fit the model, or as for `run_isolation`.
    """
    check(random_controls=random_controls)
    watcher = watcher or Silent()
    for choice in study.tasks:
        draw(find(choice.name), study.items_of(choice), study.seed)
    refuse_another_kind(Path(folder), "isolation")
    model = model or load_chosen(study, study.model, make_engine)
    if model.not_finite:
        watcher.note(model.complaint(study.model.name))
    candidates: dict[tuple[float, ...], list[Candidate]] = {}
    skills: list[str] = []
    afresh: list[str] = []
    for file in files:
        edit = file.fit(model, force=force)
        if file.afresh(model, edit):
            afresh.append(
                f"{file.label} was made for {file.model.name} (fingerprint {file.model.fingerprint}); its selection was"
                f" made anew on the weights of {model.name}."
            )
        single = list(parts(edit))
        if len(single) != 1 or not isinstance(single[0], ScaleParameters):
            raise UsageError(f"{file.path} holds '{edit}', not one selection of weights; it cannot be evaluated here.")
        selection = single[0].selection
        told = [p for inputs in selection.inputs[:1] for p in inputs.provenance[:1]]
        skills += [p.data for p in told]
        candidate = Candidate(
            selection,
            len(told[0].ids) if told else None,
            told[0].repeat if told else None,
        )
        candidates.setdefault(tuple(factors) or (float(single[0].factor),), []).append(candidate)
    entries: list[Planned] = []
    edits: dict[str, ScaleParameters] = {}
    # Those under the same factors together, since they can share random controls.
    for under, those in candidates.items():
        more, made = plan(model, those, under, random_controls, watcher.note)
        entries += [entry for entry in more if entry.edit not in edits]
        edits |= made
    asked_of = {canonical(choice.name): choice.name for choice in study.tasks}
    skill = next((asked_of[canonical(name)] for name in skills if canonical(name) in asked_of), None)
    broken = [model.complaint(study.model.name)] if model.not_finite else []
    roles = Roles(skill, validation, (*broken, *afresh), calibrated_on(edits.values()))
    evaluation, asked, planned = evaluate(
        study, study.model, model, entries, edits, Path(folder), watcher, roles, make_engine
    )
    notes = evaluation.pop("notes")
    kept = _kept(Path(folder))
    if kept is not None:
        notes = [*kept.notes, *notes]
    summary = _summary(study, None if kept is None else kept.isolation, evaluation, notes)
    return Outcome(Path(folder), summary, asked, planned)


def recall_isolation(folder: Path) -> tuple[dict[str, Any], pd.DataFrame | None, pd.DataFrame | None] | None:
    """The summary, answers and items of an isolation or evaluation as far as it has got; None: the folder has none.

    Raises:
        LesionError: something in the folder is damaged.
    """
    folder = Path(folder)
    kept, planned = _kept(folder), read_plan(folder)
    if planned is None:
        return None if kept is None else (_summary(kept.study, kept.isolation, None, kept.notes), None, None)
    with Store.read(folder) as store:
        answers, items, text = store.answers(), store.items(), store.study[1]
    kind = EvaluationStudy if tomllib.loads(text).get("kind") == "evaluation" else IsolationStudy
    evaluation = summarise(planned, answers, items)
    notes = [*([] if kept is None else kept.notes), *evaluation.pop("notes")]
    study: Questions = kind.parse(text, "The stored study")
    return _summary(study, None if kept is None else kept.isolation, evaluation, notes), answers, items


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time writes the sums and edits of a folder."""
    lock = FolderLock(folder, "isolation")
    try:
        yield
    finally:
        lock.release()


def _refuse_another(folder: Path, study: IsolationStudy, identity: str) -> None:
    """One folder, one isolation: further shares and methods are welcome, other texts or models are not.

    Raises:
        LesionError: what was isolated there has another model, other data, or other draws.
    """
    kept = _kept(folder)
    if kept is None or kept.identity == identity:
        return
    keys = ("model", "skill", "controls", "samples", "repeats", "seed", "replacement", "prompt_style", "dtype")
    there, here = kept.study.model_dump(), study.model_dump()
    differing = [
        f"{key}: {_told(there[key])} there, {_told(here[key])} here" for key in keys if there[key] != here[key]
    ]
    raise LesionError(
        f"{folder} holds another isolation ({'; '.join(differing) or 'the same draws of data that has changed since'});"
        f" its edits would be mixed with these. Give another folder with --out."
    )


def _told(value: Any) -> str:
    if isinstance(value, dict):
        value = value["source"]
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _keep(folder: Path, study: IsolationStudy, identity: str, summary: Mapping[str, Any], notes: Sequence[str]) -> None:
    try:
        kept = {"study": study.to_toml(), "identity": identity, "isolation": summary, "notes": list(notes)}
        replace(folder / ISOLATION, json.dumps(kept))
    except OSError as error:
        raise LesionError(f"{folder / ISOLATION} cannot be written: {error.strerror or error}.") from error


@dataclass(frozen=True)
class _Kept:
    """What `isolation.json` holds."""

    study: IsolationStudy
    identity: str
    isolation: dict[str, Any]
    notes: list[str]


def _kept(folder: Path) -> _Kept | None:
    kept = stored_object(folder / ISOLATION, "run `lesion isolate` again")
    if kept is None:
        return None
    try:
        study = IsolationStudy.parse(kept["study"], "The stored study")
        return _Kept(study, str(kept["identity"]), dict(kept["isolation"]), list(kept["notes"]))
    except (*UNFIT, LesionError) as error:
        reason = " ".join(str(error).split())
        raise LesionError(f"{folder / ISOLATION} is damaged ({reason}); run `lesion isolate` again.") from error


def _summary(
    study: Questions | None, isolation: dict[str, Any] | None, evaluation: dict[str, Any] | None, notes: Sequence[str]
) -> dict[str, Any]:
    told: dict[str, Any] = {"version": version("lesion")}
    if study is not None:
        told = {"name": study.name, "title": study.title, "seed": study.seed, "level": study.level, **told}
    summary: dict[str, Any] = {}
    if isolation is not None:
        summary["isolation"] = isolation
    if evaluation is not None:
        summary["evaluation"] = evaluation
        told |= {} if study is None else loops(study.decoding.stop_loops)
    return {**summary, "study": told, "notes": list(dict.fromkeys([*notes, *_foreign(isolation, evaluation)]))}


def _foreign(isolation: Mapping[str, Any] | None, evaluation: Mapping[str, Any] | None) -> list[str]:
    """A note where edits were evaluated that are not among those isolated in the same folder."""
    if isolation is None or evaluation is None:
        return []
    own = {one["digest"] for one in isolation["selections"]}
    others = {one["label"] for one in evaluation["edits"] if one["random_of"] is None and one["digest"] not in own}
    if not others:
        return []
    return [
        f"{', '.join(sorted(others))}: evaluated here, but not among the selections that this folder's isolation made;"
        f" what is told of those does not hold for these."
    ]
