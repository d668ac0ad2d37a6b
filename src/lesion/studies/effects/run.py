"""Running a study of effects: every item measured once and kept, then the summary over items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

from lesion.activations.readout import readout
from lesion.core import cells
from lesion.core.preflight import refuse_unshared
from lesion.core.run import Evaluation, Run, refuse_scored
from lesion.core.study_file import ModelChoice
from lesion.edits.edit import Scale
from lesion.engines.transformers.engine import refuse_simple
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.report.wording import numbered
from lesion.studies.ablation.sweep import sweep
from lesion.studies.effects.measurement import Measured, Text, clean_pass, measure
from lesion.studies.effects.report import EffectsResult
from lesion.studies.effects.result import EffectsSummary, Reference, TaskEffects
from lesion.studies.effects.study import EffectsStudy
from lesion.studies.effects.summary import Drops, by_class, notes_on_gaps, read_drops, summarised
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_contrast, encode_gold
from lesion.tasks.gold_classes import classes_of, classified
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import Gold


def run_effects(study: EffectsStudy, run: Run) -> EffectsResult:
    """Measure every item of every task in every model; what the folder has is not measured again."""
    run.refuse_elsewhere("Effects are read from the streams of a model")
    questions = study.questions()
    tasks = {choice: find(choice.name) for choice in study.tasks}
    refuse_scored(tasks, ", and no token of it is the right one; give tasks that have gold answers.")
    drops = None if study.study is None else read_drops(study)
    for chosen in run.unloaded(study.models, questions, tasks):
        refuse_unshared(chosen, "effects", trust_remote_code=run.trusts_code)
    parts: list[TaskEffects] = []
    measured = 0
    with run.evaluation(questions, tasks=tasks, text=study.to_toml(), shared=study.basis()) as evaluation:
        for chosen in study.models:
            model = run.load(questions, chosen, tasks=tasks, finite=True)
            refuse_simple(model, "effects")
            edits = _places(study, run, chosen, model)
            if drops is not None:
                drops.refuse_another(chosen.name, model.fingerprint)
                for note in notes_on_gaps(drops, study, chosen.name, edits):
                    run.watcher.note(note)
            evaluation.add(chosen.name, model)
            made, now = _model(study, evaluation, chosen, model, edits, drops)
            parts, measured = [*parts, *made], measured + now
            del model  # makes room for the next
            summary = EffectsSummary(study=study, tasks=parts)
            summary.write(run.folder)
    planned = len(study.models) * sum(len(items) for items in evaluation.items.values())
    return EffectsResult(run.folder, summary, measured, planned)


def _places(study: EffectsStudy, run: Run, chosen: ModelChoice, model: Model) -> list[Scale]:
    """Every place that a model has of the units of a study; said of blocks that lack them, refused where all do."""
    edits: list[Scale] = []
    lacking: dict[str, list[int]] = {}
    refusals: list[UsageError] = []
    for unit, layer in product(study.unit, range(len(model.anatomy.blocks))):
        try:
            edits += (edit for edit in sweep(model.anatomy, [unit], [layer], [0.0]) if isinstance(edit, Scale))
        except UsageError as refusal:
            refusals.append(refusal)
            lacking.setdefault(unit, []).append(layer)
    if not edits:
        raise refusals[0]
    for name, layers in lacking.items():
        what = "heads" if name == "head" else name
        run.watcher.note(
            f"{chosen.name}: {what} of {numbered('block', layers)} not measured, since none is known there."
        )
    return edits


def _model(
    study: EffectsStudy,
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[Scale],
    drops: Drops | None,
) -> tuple[list[TaskEffects], int]:
    style_of = evaluation.study.prompt_style_of
    texts = {
        (choice, item.id): _text(model, evaluation.tasks[choice], item, style_of(chosen, choice))
        for choice, items in evaluation.items.items()
        for item in items
    }
    folder, watcher = evaluation.run.folder, evaluation.run.watcher
    decided = {"model": model.fingerprint, "dtype": str(model.dtype), "unit": sorted(study.unit)}
    keys = {place: cells.key_of({**decided, **asdict(text)}) for place, text in texts.items()}
    kept = cells.read_all(folder, keys, Measured, watcher.note, chosen.name)
    missing = [place for place in keys if place not in kept]
    if missing:
        reads = readout(model, texts[missing[0]].read)
        clean_pass(reads, texts[missing[0]], edits)  # what no item of the model can show is refused before the first
        watcher.begin(chosen.name, len(keys), len(kept), "items measured")
        rows = None if isinstance(study.batch_size, str) else study.batch_size
        for place in missing:
            try:
                kept[place] = measure(reads, texts[place], edits, rows)
            except LesionError as error:
                raise LesionError(f"Item {place[1]} of {place[0].name}: {error}") from error
            cells.write(folder, keys[place], kept[place])
            watcher.answered(1)
    parts = []
    for choice, items in evaluation.items.items():
        own, task = [kept[choice, item.id] for item in items], evaluation.tasks[choice]
        reference: Reference = "tempting" if task.kind == "contrast" else "mean"
        effects = summarised(study, chosen.name, choice.name, own, edits, drops, reference)
        classes = by_class(study, task, [item.group for item in items], [each.classes for each in own], edits)
        parts.append(effects.model_copy(update=classes))
    return parts, len(missing)


def _text(model: Model, task: Task, item: Item, style: str | None) -> Text:
    """An item with its gold tokens: of a contrast the right token against the tempting one, else the gold solution."""
    if task.kind == "contrast":
        contrast = encode_contrast(model, task, item, style)
        return Text(contrast.prompt, (contrast.right,), contrast.tempting)
    prompt, gold = encode_gold(model, Gold(task), item, style)
    return Text(prompt, gold, classes=classified(model.tokenizer, gold, item, classes_of(task)))
