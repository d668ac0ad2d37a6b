"""Running an isolation study: isolate, evaluate every edit, and the numbers of both; recalling it from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from lesion.activations.calibration import Calibration
from lesion.core.apart import Used, calibrated_on, draw_apart
from lesion.core.baseline import baseline_first
from lesion.core.database import FILE
from lesion.core.estimate import DryRun
from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.core.store import Store, refuse_another
from lesion.core.study_file import PROMPTING, ModelChoice, Questions, TaskChoice
from lesion.edits.edit import BASELINE, Edit, of_weights, path_of
from lesion.edits.files.artefact import EditFile, read_edit
from lesion.edits.text import parse, simplified
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.isolation.evaluation import Evaluation
from lesion.studies.isolation.plan import RIVALS, CandidateEdit, EvaluationPlan, PlannedEdits, keep_plan, plan
from lesion.studies.isolation.report import EvaluationResult, IsolationResult
from lesion.studies.isolation.selections import draw_texts, identity, isolate
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.studies.isolation.summary import stored, summarise, summarised
from lesion.tasks.catalogue import canonical, find
from lesion.tasks.task import Item
from lesion.tasks.wrapped import guessing


def run_isolation(study: IsolationStudy, run: Run) -> IsolationResult:
    """Isolate a skill and, where the study has tasks, evaluate every edit."""
    run.drawn(study)
    folder, watcher = run.folder, run.watcher
    model = observed = run.load(study, study.model, finite=True)
    chosen = study.model
    if study.weights is None:
        observed.refuse_packed("selected from")
    else:
        chosen = ModelChoice(source=study.weights)
        model = run.load(study, chosen, finite=True)
        refuse_other_weights(observed, model)
    texts = draw_texts(study, observed)
    try:
        with locked(folder, "isolation"), watcher.preparing() if study.tasks else nullcontext():
            _refuse_another(folder, study, identity(study, model, texts, observed))
            candidates, isolation = isolate(study, model, folder, watcher, texts, observed)
            summarised(study, isolation, None).write(folder)
    except DryRun:
        if study.tasks:
            _estimate_answers(study, chosen, model, run, texts)
        raise
    for text in isolation.notes:
        watcher.note(text)
    evaluation, evaluated, planned = None, 0, 0
    if study.tasks:
        edits = plan(model, candidates, study.factor, study.random_controls, study.matched_in)
        skill = asked_skill(study)
        validation = None if study.choose is None else study.choose.validation
        notes = []
        if canonical(skill) != canonical(study.skill) and skill in [task.name for task in study.tasks]:
            notes.append(f"{skill} stands for the skill {study.skill}: the same task with other options.")
        evaluation, evaluated, planned = evaluate(study, chosen, model, edits, run, skill, validation, notes)
    summary = summarised(study, isolation, evaluation)
    summary.write(folder)
    return IsolationResult(folder, summary, evaluated, planned)


def _estimate_answers(
    study: IsolationStudy, chosen: ModelChoice, model: Model, run: Run, texts: Mapping[str, Calibration]
) -> None:
    """Have the unedited model answer a few items, to say what the answers cost under edits that are not yet made.

    Raises:
        DryRun: once that is said, or where there are too few answers for it.
    """
    draws = len(study.samples) * study.repeats
    made = len(study.share) * sum(1 if method == "magnitude" else draws for method in study.methods)
    tried = made * sum(factor != 1 for factor in study.factor)
    edits = tried * (1 + study.random_controls * len(study.matched_in)) + bool(study.exclude_super_weights)
    if any(factor > 1 for factor in study.factor):  # at most: selections of the same block share their rivals
        edits += made * RIVALS
    items = draw_items(study, Used.make({data: of_data.ids for data, of_data in texts.items()}), run.folder)
    with run.evaluation(study, items) as evaluation:
        evaluation.add(chosen.name, model)
        evaluation.later = {choice.name: edits * len(drawn) for choice, drawn in items.items()}
        evaluation.evaluate(chosen, model, [])


def run_evaluation(study: EvaluationStudy, run: Run, files: Sequence[EditFile] | None = None) -> EvaluationResult:
    """Evaluate edits on one model, each beside its matched random controls."""
    folder = run.folder
    given: Sequence[EditFile | Edit] | None = files
    if given is None:
        given = [parse(text) if (file := path_of(text)) is None else read_edit(file) for text in study.edits]
    by_task = {canonical(choice.name): choice.name for choice in study.tasks}
    if study.skill is not None and canonical(study.skill) not in by_task:
        raise UsageError(f"{study.skill} is the skill, so it must be one of the tasks: {', '.join(by_task.values())}.")
    run.drawn(study)
    model = run.load(study, study.model)
    candidates: list[CandidateEdit] = []
    skills: list[str] = []
    notes = [model.complaint(study.model.name)] if model.not_finite else []
    for each in given:
        edit = each.fit(model, force=study.force) if isinstance(each, EditFile) else simplified(each)
        if edit == BASELINE:
            notes.append(f"{each} changes nothing: the unedited model is evaluated anyway, and counts as no edit.")
            continue
        if isinstance(each, EditFile) and each.afresh(model, edit):
            notes.append(
                f"{each.label} was made for {each.model.name} (fingerprint {each.model.fingerprint}); its selection was"
                f" made anew on the weights of {model.name}."
            )
        calibration = [p for part in of_weights(edit) for inputs in part.selection.inputs for p in inputs.provenance]
        skills += [first.data for first in calibration[:1]]
        samples, repeat = (len(calibration[0].ids), calibration[0].repeat) if calibration else (None, None)
        candidates.append(CandidateEdit(edit, samples, repeat))
    edits = plan(model, candidates, study.factor, study.random_controls, study.matched_in)
    skills = skills if study.skill is None else [study.skill]
    skill = next((by_task[canonical(name)] for name in skills if canonical(name) in by_task), None)
    isolation = stored(folder)
    evaluation, evaluated, planned = evaluate(study, study.model, model, edits, run, skill, study.validation, notes)
    summary = summarised(study, isolation, evaluation)
    summary.write(folder)
    return EvaluationResult(folder, summary, evaluated, planned)


def asked_skill(study: IsolationStudy) -> str:
    """The task that is asked as the skill: the calibrated one, else the first that differs in its options alone."""
    names = [task.name for task in study.tasks]
    same = [name for name in names if canonical(name) == canonical(study.skill)]
    alike = [name for name in names if name.partition("?")[0] == study.skill.partition("?")[0]]
    return (same or alike or [study.skill])[0]


def evaluate(
    questions: IsolationStudy | EvaluationStudy,
    chosen: ModelChoice,
    model: Model,
    planned: PlannedEdits,
    run: Run,
    skill: str | None = None,
    validation: float | None = None,
    notes: Sequence[str] = (),
) -> tuple[Evaluation, int, int]:
    """Evaluate the baseline and every edit on the same items; a folder of the same questions takes further edits."""
    used = calibrated_on(planned.edits.values())
    items = draw_items(questions, used, run.folder)
    notes = (*notes, *planned.notes, *_calibration_items(items, used))
    for note in notes:
        run.watcher.note(note)
    with run.evaluation(questions, items) as evaluation:
        evaluation.add(chosen.name, model)
        tasks = {choice.name: (task, items[choice]) for choice, task in evaluation.tasks.items()}
        plan = EvaluationPlan(
            model=chosen.name,
            dtype=model.dtype_name,
            tasks={name: task.kind for name, (task, _) in tasks.items()},
            chance={name: guessing(task, drawn) for name, (task, drawn) in tasks.items() if task.kind != "score"},
            edits=planned.entries,
            skill=skill,
            validation=validation,
            level=questions.level,
            notes=tuple(dict.fromkeys(notes)),
        )
        plan = keep_plan(run.folder, plan)
        if planned.edits:
            baseline_first(evaluation, chosen, model, None, anyway=questions.anyway)
        evaluation.evaluate(chosen, model, list(planned.edits.values()))
        numbers = summarise(plan, evaluation.store.answers(), evaluation.store.items())
    return numbers, evaluation.evaluated, evaluation.planned


def draw_items(questions: Questions, used: Used, folder: Path) -> dict[TaskChoice, list[Item]]:
    """The items of every task: seeded, those that were calibration texts last; those that a folder has come first.

    An evaluation compares all edits of a folder on the same items, also one that was calibrated on some of them.
    """
    stored: dict[str, list[str]] = {}
    if (folder / FILE).is_file():
        with Store.read(folder) as store:
            frame = store.items()
            stored = {str(task): list(rows["item"]) for task, rows in frame.groupby("task", sort=False)}
    drawn = {}
    for choice in questions.tasks:
        items = draw_apart(questions, choice, find(choice.name), used.of(choice.name))
        place = {item: number for number, item in enumerate(stored.get(choice.name, ()))}
        items.sort(key=lambda item: place.get(item.id, len(place)))
        drawn[choice] = items[: questions.items_of(choice)]
    return drawn


def _calibration_items(drawn: Mapping[TaskChoice, Sequence[Item]], used: Used) -> Iterator[str]:
    """A note for each task of which items are asked on which an edit was calibrated."""
    for choice, items in drawn.items():
        texts = used.of(choice.name)
        both = sum(item.id in texts for item in items)
        if both:
            free = sum(item.id not in texts for item in find(choice.name).load())
            fewer = f"ask for at most {free:,} items, or " if free else ""
            yield (
                f"{choice.name}: {both:,} of the {len(items):,} items that are asked were also calibration texts of the"
                f" edits. To keep them apart, {fewer}isolate with fewer texts (--samples)."
            )


def refuse_other_weights(observed: Model, model: Model) -> None:
    """Refuse full-precision weights that a quantised model cannot have been made from, by what shapes show."""
    if observed.quantisation is None:
        raise UsageError(f"{observed.name} is not quantised, so its own weights are taken; leave out --weights.")
    model.refuse_packed("selected from")
    shapes = [{address: m.shape for address, m in each.anatomy.matrices.items()} for each in (observed, model)]
    differing = [a for a in {**shapes[0], **shapes[1]} if shapes[0].get(a) != shapes[1].get(a)]
    words = [each.network.get_input_embeddings().weight.shape[0] for each in (observed, model)]
    if differing or words[0] != words[1]:
        what = f"{differing[0]} has another shape, or is not in both" if differing else "their vocabularies differ"
        raise LesionError(
            f"{model.name} is not what {observed.name} was made from: {what}. Give --weights the checkpoint that was"
            f" quantised."
        )


def _refuse_another(folder: Path, study: IsolationStudy, identity: str) -> None:
    """One folder, one isolation: further shares and methods are welcome, other texts or models are not."""
    try:
        there = stored(folder)
    except LesionError:
        return  # damaged: there is nothing to lose
    drawn = ("samples", "repeats", "seed", "replacement", *PROMPTING, "dtype")
    refuse_another(
        folder,
        "isolation",
        None if there is None else there.study,
        study,
        same=there is not None and there.identity == identity,
        compared=("model", "weights", "skill", "controls", "exclude_super_weights", *drawn),
        otherwise="the same draws of data that has changed since",
    )
