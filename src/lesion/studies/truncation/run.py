"""Running a truncation search: what it refuses, the search itself, what follows it, and its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lesion import files
from lesion.core.baseline import baseline_first
from lesion.core.cached_answers import Answers, CachedAnswers, for_golds, gold_tasks
from lesion.core.inference import load_chosen, pending_cells
from lesion.core.layers import parse_layers
from lesion.core.rates import approximate
from lesion.core.run import Evaluation, Run, refuse_scored
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.core.values import Summary
from lesion.edits.edit import BASELINE, Edit, Truncate
from lesion.edits.files.artefact import save_edit
from lesion.edits.spectra import spectra
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, configuration, refuse_not_finite
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean
from lesion.statistics.paired import Contrast, accuracy, paired_drop, rank_agreement
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.truncation.result import (
    BEST,
    Elimination,
    ItemsPart,
    Outcome,
    RevisionOutcome,
    Rival,
    ScreenOutcome,
    SearchedModel,
    SearchedTask,
    Spectrum,
    Tested,
    Tokens,
    TruncatedMatrix,
    TruncationSummary,
    Unedited,
)
from lesion.studies.truncation.rivals import Rivals, answers_after_the_search
from lesion.studies.truncation.search import Items, Search, collapsed, grid, merged_note, screen_tasks, split
from lesion.studies.truncation.study import EditSearch, TruncationStudy
from lesion.tasks.catalogue import find
from lesion.tasks.task import Item, Task

# What a config calls the shape of a network, and what we call it.
SHAPE = {
    "num_hidden_layers": "{} blocks",
    "hidden_size": "width {}",
    "intermediate_size": "inner width {}",
    "num_attention_heads": "{} heads",
}


def begun(
    study: EditSearch, run: Run, tasks: Mapping[TaskChoice, Task], controls: Mapping[TaskChoice, Task]
) -> tuple[Model, list[int], dict[TaskChoice, Sequence[Item]]]:
    """The model of a search, the blocks that it looks at, and the items of its tasks, two at least, and controls."""
    items = run.drawn(study, {**tasks, **controls})
    for choice, task in {**tasks, **controls}.items():
        if task.kind == "score":  # a passage that stands in a text twice says nothing more the second time
            items[choice] = list({item.question: item for item in items[choice]}.values())
    for choice in tasks:
        if len(items[choice]) < 2:
            count = f"{choice.name} has {len(items[choice])} item"
            raise UsageError(f"{count}: an edit is chosen on some items and tested on others: give two at least.")
    model = run.load(study, study.model, finite=True)
    return model, parse_layers(study.layers, len(model.anatomy.blocks), study.model.name), items


def refuse_unfit_items(
    study: EditSearch, model: Model, tasks: Mapping[TaskChoice, Task], items: Mapping[TaskChoice, Sequence[Item]]
) -> None:
    """Encode every item that may be needed, also in the last round, so that what is wrong with one is said now."""
    pending_cells(study, study.model, model, {**tasks, **screen_tasks(tasks)}, for_golds(items), ())


def stated_shape(config: Any) -> dict[str, str]:
    """The shape of a network in words, as far as its configuration states it."""
    stated = {name: getattr(config.get_text_config(decoder=True), name, None) for name in SHAPE}
    return {name: SHAPE[name].format(value) for name, value in stated.items() if isinstance(value, int)}


def matrix_shapes(model: Model) -> dict[str, str]:
    """The shape of every matrix in words."""
    matrices = model.anatomy.matrices.items()
    return {address: f"{address} of {matrix.shape[0]} × {matrix.shape[1]}" for address, matrix in matrices}


def refuse_other_shape(name: str, own: Mapping[str, str], checkpoint: str, theirs: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another shape."""
    for part in (*own, *theirs):
        here, there = own.get(part, f"no {part}"), theirs.get(part, f"no {part}")
        if here != there:
            raise UsageError(
                f"{checkpoint} has {there}, and {name} has {here}: an edit of one is none of the other. Leave it out of"
                f" --revisions, which are checkpoints of one training."
            )


def run_truncation(study: TruncationStudy, run: Run) -> TruncationResult:
    """Search for a truncation; a folder of the same questions takes further cells and other validation shares."""
    folder = run.folder
    tasks = {choice: find(choice.name) for choice in study.tasks}
    advice = "; search by a task that is answered, and evaluate what is found on others with `lesion evaluate`."
    refuse_scored(tasks, advice)
    model, layers, items = begun(study, run, tasks, {})
    model.refuse_packed("truncated")
    cells, merged = grid(model.anatomy, layers, study.matrices, study.keep, study.side)
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
        search = Search(study, cells, parts, cache)
        evaluation.later = answers_after_the_search(parts)
        search.run()
        evaluation.later = {}
        search.evaluate(parts.test, search.tested, "test answers")
        summary = summarise(search, model, merged, Rivals(search, evaluation).of(search.tested[-1:]))
        # The baseline also has the items that ask what chose, and so test nothing.
        baseline = {(model.fingerprint, str(BASELINE), task.name, item.id) for task in tasks for item in items[task]}
        requested = cache.requested | baseline
        # A checkpoint that fails takes nothing with it.
        leave_edit(folder, _without(summary, study.revisions), search.composed or search.chosen, model)
        evaluated = {model.fingerprint: study.model}
        for number, revision in enumerate(study.revisions, start=1):
            follower = _follow(study, revision, model, evaluated, evaluation)
            following = replace(search, cache=follower)
            following.evaluate(parts.test, search.tested, "test answers")
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


DRAWS = 1000
"""Resamples of cells for the interval of the screen's rank correlation."""
ONE_ANSWER = "Under every edit the model gives one answer to nearly all items, and the unedited model does not."
POINTS = 200
"""Singular values of a spectrum in a summary."""


def summarise(search: Search, model: Model, merged: int, rivals: tuple[Rival, ...]) -> TruncationSummary:
    """The summary of a search, without other revisions; `merged` keeps were the same as others."""
    study, best = search.study, search.best
    composed = (search.composed or search.chosen) if search.steps else None
    return TruncationSummary(
        approximate=approximate(study.decoding.stop_loops),
        study=study,
        model=SearchedModel.of(study.model.name, model),
        tasks=tuple(
            SearchedTask(
                name=choice.name,
                kind=task.kind,
                validation_items=len(search.parts.validation[choice]),
                test_items=len(search.parts.test[choice]),
            )
            for choice, task in search.parts.tasks.items()
        ),
        merged=merged,
        screen=screen_outcome(search),
        elimination=_elimination(search),
        unedited=tuple(_unedited(search)),
        unedited_score=search.baseline[0],
        cells=tuple(_cell(search, edit, cell) for edit, cell in search.cells.items()),
        best=_text(best),
        nothing=_nothing(search),
        best_tests=tuple(_tests(search, best)),
        path=tuple(search.steps),
        composed=_text(composed),
        composed_tests=tuple(_tests(search, composed)),
        rivals=rivals,
        spectra=tuple(_spectra(search, model)),
        tokens=tuple(_tokens(search)),
        notes=(*search.notes, *merged_note(merged)),
    )


def _text(edit: Edit | None) -> str | None:
    return None if edit is None else str(edit)


def followed(summary: TruncationSummary, revision: str, search: Search) -> TruncationSummary:
    """The summary with another revision of the model, whose answers `search` has, on the test items."""
    outcomes = tuple(
        RevisionOutcome(revision=revision, edit=str(edit), **_edited(search, choice, edit, search.parts.test))
        for edit in (BASELINE, *search.tested)
        for choice in search.parts.tasks
    )
    return summary.model_copy(
        update={"tokens": (*summary.tokens, *_tokens(search, revision)), "revisions": (*summary.revisions, *outcomes)}
    )


def _unedited(search: Search) -> Iterator[Unedited]:
    parts: dict[ItemsPart, Items] = {"validation": search.parts.validation, "test": search.parts.test}
    for choice in search.parts.tasks:
        for part, items in parts.items():
            values = _edited(search, choice, BASELINE, items)
            del values["collapsed"]  # compared with itself it is not
            yield Unedited(part=part, **values)


def _cell(search: Search, edit: Truncate, cell: TruncatedMatrix) -> TruncatedMatrix:
    known: dict[str, Any] = {"screen": search.screened.get(edit), "eliminated": search.eliminated.get(edit)}
    if edit in search.scores:
        outcomes, items = [], search.parts.validation
        for choice in search.parts.tasks:
            baseline, edited = search.pair(choice, edit, items)
            drop = Estimate.of(paired_drop(baseline.right, edited.right, search.study.level))
            outcomes.append(Outcome(drop=drop, **_edited(search, choice, edit, items)))
        known |= {"score": search.scores[edit][0], "outcomes": tuple(outcomes)}
    return TruncatedMatrix(**dict(cell) | known)


def _tests(search: Search, edit: Edit | None) -> Iterator[Tested]:
    """An edit on the test items of every task, against the baseline on the same items."""
    if edit is None:
        return
    level, items = search.study.level, search.parts.test
    for choice in search.parts.tasks:
        baseline, edited = search.pair(choice, edit, items)
        right, tempting = _token_gains(baseline, edited, level)
        yield Tested(
            baseline=float(baseline.right.mean()),
            gain=Estimate.dropped(baseline.right, edited.right, level).negative,
            gold_gain=Estimate.of(mean(edited.gold - baseline.gold, level)),
            right_gain=right,
            tempting_gain=tempting,
            **_edited(search, choice, edit, items),
        )


def _token_gains(baseline: Answers, edited: Answers, level: float) -> tuple[Estimate | None, Estimate | None]:
    """How much likelier an edit makes the right and the tempting token: mean paired differences."""
    if baseline.scores.shape[1] != 2 or edited.scores.shape[1] != 2:
        return None, None
    right, tempting = (
        _clipped(mean(np.exp(after) - np.exp(before), level), -1.0)
        for before, after in zip(baseline.scores.T, edited.scores.T, strict=True)
    )
    return right, tempting


def _tokens(search: Search, revision: str | None = None) -> Iterator[Tokens]:
    """The right and the tempting token on test items, of every task that has them, with Student's intervals."""
    level = search.study.level
    contrasts = [choice for choice, task in search.parts.tasks.items() if task.kind == "contrast"]
    for edit in (BASELINE, *search.tested):
        for choice in contrasts:
            _, answers = search.pair(choice, edit, search.parts.test)
            if answers.scores.shape[1] != 2:
                continue  # no logits were finite
            right, tempting = answers.scores.T
            ranked = np.where(answers.ranks > 0, answers.ranks, np.nan)
            yield Tokens(
                task=choice.name,
                edit=str(edit),
                revision=revision,
                items=len(answers.right),
                p_right=_clipped(mean(np.exp(right), level), 0.0),
                p_tempting=_clipped(mean(np.exp(tempting), level), 0.0),
                rank_right=float(np.nanmedian(ranked[:, 0])),
                rank_tempting=float(np.nanmedian(ranked[:, 1])),
                margin=Estimate.of(mean(right - tempting, level)),
            )


def screen_outcome(search: Search) -> ScreenOutcome | None:
    """What the screen was, and how its ranks agree with those of the full evaluation, over the cells that have both."""
    if search.screen is None:
        return None
    both = [edit for edit in search.evaluated if edit in search.scores]
    first = np.array([search.screened[edit] for edit in both])
    second = np.array([search.scores[edit][0] for edit in both])
    correlation = Estimate(value=None)
    if len(both) > 1:
        value, level = rank_agreement(first.tolist(), second.tolist()), search.study.level
        generator = np.random.default_rng(search.study.seed)
        draws = [generator.integers(0, len(both), len(both)) for _ in range(DRAWS)]
        resampled = np.array([rank_agreement(first[draw].tolist(), second[draw].tolist()) for draw in draws])
        if np.isfinite(resampled).any():
            low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
            correlation = Estimate(value=value, low=low, high=high)
    return ScreenOutcome(**dict(search.screen), evaluated=len(both), rank_correlation=correlation)


def _elimination(search: Search) -> Elimination | None:
    error, given_up = search.study.eliminate, search.eliminated.values()
    if error is None or not search.looks:
        return None
    (items,) = search.parts.validation.values()
    saved = sum(len(items) - seen for seen in given_up)
    return Elimination(error=error, looks=search.looks, eliminated=len(given_up), answers_saved=saved)


def _nothing(search: Search) -> str | None:
    if not search.scores:
        return "No cell was evaluated in full without being given up."
    if search.best is None:
        return ONE_ANSWER
    return None if search.chosen else "No edit is better than the unedited model on the validation items."


def _spectra(search: Search, model: Model) -> Iterator[Spectrum]:
    for address in dict.fromkeys(edit.address for edit in search.cells):
        values = spectra(model).of(address, model.anatomy.matrix(address).read()).values.cpu().numpy()
        index = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).round().astype(int))
        yield Spectrum(address=address, index=index.tolist(), values=values[index].tolist())


def _edited(search: Search, choice: TaskChoice, edit: Edit, items: Items) -> dict[str, Any]:
    baseline, edited = search.pair(choice, edit, items)
    label, share, is_label = collapsed(edited, baseline)
    return {
        "task": choice.name,
        "items": len(edited.right),
        "accuracy": Estimate.of(accuracy(edited.right, search.study.level)),
        "gold": float(edited.gold.mean()),
        "label": label,
        "label_share": share,
        "collapsed": is_label,
    }


def _clipped(contrast: Contrast, least: float) -> Estimate:
    """An estimate with its limits between `least` and 1."""
    low, high = np.clip([contrast.low, contrast.high], least, 1.0)
    return Estimate(value=contrast.value, low=low, high=high)
