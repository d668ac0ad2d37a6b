"""Running a truncation search: what it refuses, the search itself, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lesion import files
from lesion.core.baseline import baseline_first
from lesion.core.cached_answers import CachedAnswers, gold_of, gold_tasks
from lesion.core.inference import load_chosen, pending_cells
from lesion.core.layers import parse_layers
from lesion.core.run import Evaluation, Run, refuse_scored
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.core.values import Summary
from lesion.edits.edit import Edit
from lesion.edits.files.artefact import save_edit
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, configuration, refuse_not_finite
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.truncation.result import BEST, TruncationSummary
from lesion.studies.truncation.rivals import Rivals, answers_after_the_search
from lesion.studies.truncation.search import Search, grid, split
from lesion.studies.truncation.study import TruncationStudy
from lesion.studies.truncation.summary import followed, summarise
from lesion.tasks.catalogue import find
from lesion.tasks.task import Item, Task

# What a config calls the shape of a network, and what we call it.
SHAPE = {
    "num_hidden_layers": "{} blocks",
    "hidden_size": "width {}",
    "intermediate_size": "inner width {}",
    "num_attention_heads": "{} heads",
}


def refuse_few(drawn: Mapping[TaskChoice, Sequence[Item]]) -> None:
    """At least two items are needed: one to choose an edit on, one to test it on."""
    for choice, items in drawn.items():
        if len(items) < 2:
            raise UsageError(
                f"{choice.name} has {len(items)} item: an edit is chosen on some items and tested on others: give two"
                f" at least."
            )


def refuse_unfit_items(
    study: TruncationStudy, model: Model, tasks: Mapping[TaskChoice, Task], drawn: Mapping[TaskChoice, Sequence[Item]]
) -> None:
    """Encode every item that may be needed, also in the last round, so that what is wrong with one is said now."""
    golds = gold_tasks(
        {
            choice: task
            for choice, task in tasks.items()
            if task.kind == "generate" or (task.kind != "contrast" and not isinstance(study.screen, str))
        }
    )
    items = {**drawn, **{gold_of(choice): items for choice, items in drawn.items()}}
    pending_cells(study, study.model, model, {**tasks, **golds}, items, ())


def stated_shape(config: Any) -> dict[str, str]:
    """The shape of a network in words, as far as its configuration states it."""
    stated = {name: getattr(config.get_text_config(decoder=True), name, None) for name in SHAPE}
    return {name: SHAPE[name].format(value) for name, value in stated.items() if isinstance(value, int)}


def matrix_shapes(model: Model) -> dict[str, str]:
    """The shape of every matrix in words."""
    matrices = model.anatomy.matrices.items()
    return {address: f"{address} of {matrix.shape[0]} × {matrix.shape[1]}" for address, matrix in matrices}


def refuse_other_shape(name: str, own: Mapping[str, str], checkpoint: str, theirs: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another shape: an edit of one would be none of the other."""
    for part in (*own, *theirs):
        here, there = own.get(part, f"no {part}"), theirs.get(part, f"no {part}")
        if here != there:
            raise UsageError(
                f"{checkpoint} has {there}, and {name} has {here}: an edit of one is none of the other. Leave it out of"
                f" --revisions, which are checkpoints of one training."
            )


TESTING = "answers on test items"


def run_truncation(study: TruncationStudy, run: Run) -> TruncationResult:
    """Search for a truncation; a folder of the same questions takes further cells and other validation shares."""
    folder = run.folder
    tasks = {choice: find(choice.name) for choice in study.tasks}
    refuse_scored(tasks, "; search by a task that is answered, and evaluate the edit on others with `lesion evaluate`.")
    items = run.drawn(study, tasks)
    refuse_few(items)
    model = run.load(study, study.model, finite=True)
    model.refuse_packed("truncated")
    layers = parse_layers(study.layers, len(model.anatomy.blocks), study.model.name)
    cells = grid(model.anatomy, layers, study.matrices, study.keep, study.side)
    # What is wrong with an item or a checkpoint is said before hours of search.
    refuse_unfit_items(study, model, tasks, items)
    own_shape = stated_shape(model.network.config)
    for chosen in (_at(study.model, revision) for revision in study.revisions):
        theirs = stated_shape(configuration(chosen.source, revision=chosen.revision))  # its weights are not read
        stated = {part: theirs.get(part, shape) for part, shape in own_shape.items()}
        refuse_other_shape(study.model.name, own_shape, chosen.name, stated)
    parts = split(tasks, items, study.validation)
    with run.evaluation(study, items, tasks=tasks) as evaluation:
        evaluation.ask(gold_tasks(tasks))
        evaluation.add(study.model.name, model)
        baseline_first(evaluation, study.model, model, None, anyway=study.anyway)
        cache = CachedAnswers(evaluation, study.model, model)
        search = Search(study, cells.cells, parts, cache)
        evaluation.later = answers_after_the_search(parts)
        search.run()
        evaluation.later = {}
        search.evaluate("test", search.tested, TESTING)
        rivals = Rivals(search, evaluation, folder).of(next(reversed(search.tested), None))
        summary = summarise(search, model, cells).model_copy(update={"rivals": rivals})
        requested = set(cache.requested)
        # A checkpoint that fails takes nothing with it.
        leave_edit(folder, _without(summary, study.revisions), search.composed or search.chosen, model)
        evaluated = {model.fingerprint: study.model}
        for number, revision in enumerate(study.revisions, start=1):
            follower = _follow(study, revision, model, evaluated, evaluation)
            following = replace(search, cache=follower)
            following.evaluate("test", search.tested, TESTING)
            requested |= follower.requested
            summary = followed(summary, revision, following)
            del follower, following  # its model makes room for the next
            _without(summary, study.revisions[number:]).write(folder)
    return TruncationResult(folder, summary, evaluation.evaluated, len(requested))


def _without(summary: TruncationSummary, revisions: Sequence[str]) -> TruncationSummary:
    """The summary as far as it has got, with a note on the checkpoints that are still to be evaluated."""
    if not revisions:
        return summary
    note = f"Not asked yet: {', '.join(revisions)}; the same command goes on from here."
    return summary.model_copy(update={"notes": (*summary.notes, note)})


def _follow(
    study: TruncationStudy, revision: str, model: Model, evaluated: dict[str, ModelChoice], evaluation: Evaluation
) -> CachedAnswers:
    """A checkpoint ready to answer. With the weights of a model in `evaluated` it has that model's name and answers."""
    chosen = _at(study.model, revision)
    evaluation.release()
    checkpoint = load_chosen(study, chosen, evaluation.run.make_engine)
    refuse_not_finite(checkpoint, chosen.name)
    refuse_other_shape(study.model.name, matrix_shapes(model), chosen.name, matrix_shapes(checkpoint))
    if checkpoint.fingerprint in evaluated:
        same = evaluated[checkpoint.fingerprint].name
        evaluation.run.watcher.note(f"{chosen.name} has the weights of {same}; its answers are those.")
    named = evaluated.setdefault(checkpoint.fingerprint, chosen)
    if checkpoint.fingerprint == model.fingerprint:
        checkpoint = model  # its spectra are known
    evaluation.add(named.name, checkpoint)
    return CachedAnswers(evaluation, named, checkpoint)


def _at(chosen: ModelChoice, revision: str) -> ModelChoice:
    """The same model at another revision than its source, or the choice itself, names."""
    source = chosen.source if files.named(chosen.source, "model").is_dir() else chosen.source.partition("@")[0]
    return chosen.model_copy(update={"source": source, "revision": revision})


def leave_edit(folder: Path, summary: Summary, edit: Edit | None, model: Model) -> None:
    """Write the summary, and the edit; an edit of an earlier search that this one does not choose is removed."""
    summary.write(folder)
    if edit is not None:
        save_edit(folder / BEST, edit, model)
        return
    try:
        (folder / BEST).unlink(missing_ok=True)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error
