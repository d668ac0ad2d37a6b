"""Running a drift study: own solutions, hidden states, clusters of every run kept as they come, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lesion.core.rates import approximate
from lesion.core.run import Evaluation, Run
from lesion.core.store import refuse_another, study_there
from lesion.core.study_file import ModelChoice
from lesion.models.load import Model, peek
from lesion.studies.drift import measurement
from lesion.studies.drift import summary as drift_summary
from lesion.studies.drift.report import DriftResult
from lesion.studies.drift.result import CLASS, DriftOfModel, DriftSummary, critical_blocks, read_critical
from lesion.studies.drift.study import DriftStudy
from lesion.studies.drift.token_drift import token_drift
from lesion.tasks.catalogue import find
from lesion.tasks.task import Item, Task


def run_drift(study: DriftStudy, run: Run) -> DriftResult:
    """Measure the drift of every model; solutions and cells are kept as they come."""
    folder = run.folder
    task = find(study.task.name)
    runs = measurement.draw_runs(study, task)
    run.note_if_fewer(study.task.name, len(runs[0]), study.items)
    critical = None if study.study is None else read_critical(study.study, [each.name for each in study.models])
    _look_ahead(study, run)
    refuse_another(folder, "drift study", study_there(DriftSummary, folder), study)
    measured = 0
    finished: list[DriftOfModel] = []
    notes = [] if critical is None else drift_summary.beside_notes(study, critical)
    if task.kind == "score" and study.solution != "none":
        notes.append(f"{study.task.name} is running text: there are no solutions, and all of it counts as prompt.")
    if study.runs > 1 and len(runs[0]) == len(task.load()):
        notes.append(
            f"Every run has all {len(runs[0]):,} items of {study.task.name}, so runs differ by the start of k-means"
            " alone: intervals, p and ± say nothing of other items, and tokens are counted once a run. Ask for fewer"
            " with --items."
        )
    questions = study.questions()
    items = {study.task: list({item.id: item for items in runs for item in items}.values())}
    with (
        run.evaluation(
            questions, items, tasks={study.task: task}, text=study.to_toml(), shared=study.basis()
        ) as evaluation,
        measurement.spooling(folder),
    ):
        for number, chosen in enumerate(study.models, start=1):
            model = run.load(questions, chosen, finite=True)
            # What is wrong with the two layers is said before anything is evaluated.
            drift_summary.between(study, len(model.anatomy.blocks), None, chosen.name)
            evaluation.add(chosen.name, model)
            entry, made, remarks = _model(study, chosen, model, task, runs, evaluation, critical)
            finished.append(entry)
            measured, notes = measured + made, notes + remarks
            del model  # makes room for the next
            summary = _summary(study, finished, notes, study.models[number:])
            summary.write(folder)
    planned = len(study.models) * study.runs * len(study.clusters or (study.drawn,))
    return DriftResult(folder, summary, evaluation.evaluated, planned, measured)


def _look_ahead(study: DriftStudy, run: Run) -> None:
    for chosen in run.unloaded(study.models, study.questions()):
        blocks = peek(chosen.source, revision=chosen.revision, trust_remote_code=run.trusts_code)
        if blocks is not None:
            drift_summary.between(study, blocks, None, chosen.name)


def _model(
    study: DriftStudy,
    chosen: ModelChoice,
    model: Model,
    task: Task,
    runs: Sequence[Sequence[Item]],
    evaluation: Evaluation,
    critical: Mapping[str, Mapping[str, tuple[int, ...]]] | None,
) -> tuple[DriftOfModel, int, list[str]]:
    run = evaluation.run
    solutions = measurement.own_solutions(chosen, model, evaluation) if measurement.speaks(study, task) else None
    texts = measurement.read_texts(study, chosen, model, task, runs, solutions)
    study, notes = measurement.fitted(study, chosen, model, texts, run.folder)
    labels = [measurement.labels_of(study, model, read) for read in texts]
    cells, made = measurement.measure(study, chosen, model, texts, labels, run.folder, run.watcher)
    blocks = len(model.anatomy.blocks)
    by_task = (critical or {}).get(chosen.name)
    compared = drift_summary.compared(study, by_task)
    blocks_beside = critical_blocks(by_task, compared)
    tokens = [read.flat[measurement.in_part(study, read)] for read in texts]
    curves = drift_summary.curves(study, cells, tokens, measurement.seed_of(study, "shape"), blocks_beside)
    drawn = next(curve for curve in curves if curve.clusters == study.drawn)
    layers = drift_summary.between(study, blocks, drawn.departure, chosen.name)
    occurrences = [
        measurement.occurrences_of(study, read, measured, label[CLASS], layers)
        for read, measured, label in zip(texts, cells[study.drawn], labels, strict=True)
    ]
    family, variant = chosen.lineage
    entry = DriftOfModel(
        name=chosen.name,
        family=family or model.anatomy.family,
        variant=variant,
        fingerprint=model.fingerprint,
        blocks=blocks,
        clusters=study.drawn,
        curves=curves,
        critical=by_task,
        compared=compared,
        runs=[measurement.run_of(read, measurement.in_part(study, read)) for read in texts],
        tokens=token_drift(model.tokenizer, occurrences, layers, study.level),
    )
    if solutions is not None and any(read.truncated for read in texts):
        cut, of = sum(read.truncated or 0 for read in texts), sum(len(read.items) for read in texts)
        met = "the token limit or fell into a loop" if study.stop_loops else "the token limit"
        notes.append(f"{chosen.name}: {cut} of {of} own solutions met {met} and are read as far as they go.")
    return entry, made, notes


def _summary(
    study: DriftStudy, finished: Sequence[DriftOfModel], notes: Sequence[str], left: Sequence[ModelChoice]
) -> DriftSummary:
    remarks = list(dict.fromkeys(notes))
    if left:
        names = ", ".join(chosen.name for chosen in left)
        remarks.append(f"Not measured yet: {names}; the same command goes on from here.")
    return DriftSummary(
        identity=study.identity(),
        approximate=approximate(study.stop_loops),
        study=study,
        models=finished,
        notes=remarks,
    )
