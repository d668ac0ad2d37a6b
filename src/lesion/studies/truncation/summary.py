"""From the answers of a truncation search to its numbers: cells, the chosen edit on test items, token probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lesion.core.cached_answers import Answers
from lesion.core.rates import approximate
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.edits.spectra import spectra
from lesion.models.load import Model
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean
from lesion.statistics.paired import Contrast, accuracy, paired_drop, rank_agreement
from lesion.studies.truncation.result import (
    Elimination,
    ItemsPart,
    Outcome,
    RevisionOutcome,
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
from lesion.studies.truncation.search import Grid, GridCell, Search, collapsed

DRAWS = 1000
"""Resamples of cells for the interval of the screen's rank correlation."""
POINTS = 200
"""A summary holds so many singular values of a spectrum."""


def summarise(search: Search, model: Model, grid: Grid) -> TruncationSummary:
    """The summary of a search, without other revisions and rivals."""
    study, composed = search.study, search.composed or search.chosen
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
        merged=len(grid.merged),
        screen=screen_outcome(search),
        elimination=_elimination(search),
        unedited=tuple(_unedited(search)),
        unedited_score=search.baseline.first,
        cells=tuple(_cell(search, cell) for cell in search.cells),
        best=None if search.best is None else str(search.best),
        nothing=_nothing(search),
        best_tests=tuple(_tests(search, search.best)),
        path=tuple(search.steps),
        composed=str(composed) if search.steps else None,
        composed_tests=tuple(_tests(search, composed if search.steps else None)),
        spectra=tuple(_spectra(search, model)),
        tokens=tuple(_tokens(search)),
        notes=(*search.notes, *_notes(grid)),
    )


def followed(summary: TruncationSummary, revision: str, search: Search) -> TruncationSummary:
    """The summary with another revision of the model, whose answers `search` has, on the test items."""
    outcomes = tuple(
        RevisionOutcome(revision=revision, edit=str(edit), **_edited(search, choice, edit, "test"))
        for edit in (BASELINE, *search.tested)
        for choice in search.parts.tasks
    )
    return summary.model_copy(
        update={"tokens": (*summary.tokens, *_tokens(search, revision)), "revisions": (*summary.revisions, *outcomes)}
    )


def _unedited(search: Search) -> Iterator[Unedited]:
    parts: tuple[ItemsPart, ...] = ("validation", "test")
    for choice in search.parts.tasks:
        for part in parts:
            values = _edited(search, choice, BASELINE, part)
            del values["collapsed"]  # compared with itself it is not
            yield Unedited(part=part, **values)


def _cell(search: Search, cell: GridCell) -> TruncatedMatrix:
    scored, outcomes = search.scores.get(cell.edit), []
    for choice in search.parts.tasks if scored is not None else ():
        baseline, edited = search.pair(choice, cell.edit, "validation")
        drop = Estimate.of(paired_drop(baseline.right, edited.right, search.study.level))
        outcomes.append(Outcome(drop=drop, **_edited(search, choice, cell.edit, "validation")))
    return TruncatedMatrix(
        **dict(cell.row)
        | {
            "screen": None if search.screened is None else search.screened[cell.edit],
            "eliminated": search.eliminated.get(cell.edit),
            "score": None if scored is None else scored.first,
            "outcomes": tuple(outcomes),
        }
    )


def _tests(search: Search, edit: Edit | None) -> Iterator[Tested]:
    """An edit on the test items of every task, against the baseline on the same items."""
    level = search.study.level
    for choice in search.parts.tasks if edit is not None else ():
        assert edit is not None
        baseline, edited = search.pair(choice, edit, "test")
        right, tempting = _token_gains(baseline, edited, level)
        yield Tested(
            baseline=float(baseline.right.mean()),
            gain=Estimate.dropped(baseline.right, edited.right, level).negative,
            gold_gain=Estimate.of(mean(edited.gold - baseline.gold, level)),
            right_gain=right,
            tempting_gain=tempting,
            **_edited(search, choice, edit, "test"),
        )


def _token_gains(baseline: Answers, edited: Answers, level: float) -> tuple[Estimate | None, Estimate | None]:
    """How much likelier an edit makes the right and the tempting token: the mean paired difference of probabilities."""
    if baseline.scores.shape[1] != 2 or edited.scores.shape[1] != 2:
        return None, None
    right, tempting = (
        _clipped(mean(np.exp(after) - np.exp(before), level), -1.0)
        for before, after in zip(baseline.scores.T, edited.scores.T, strict=True)
    )
    return right, tempting


def _tokens(search: Search, revision: str | None = None) -> Iterator[Tokens]:
    """Probability, rank and margin of the right and the tempting token on test items, of every task that has them.

    Intervals are Student's for the mean over items; those of probabilities are cut off at 0 and 1.
    """
    level = search.study.level
    contrasts = [choice for choice, task in search.parts.tasks.items() if task.kind == "contrast"]
    for edit in (BASELINE, *search.tested):
        for choice in contrasts:
            _, answers = search.pair(choice, edit, "test")
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
    """What the screen was, and how its ranks agree with those of the full evaluation, over the cells that have both.

    The interval is that of resampling these cells. They are the best of the screen and some drawn at random, so the
    agreement is that of such a choice, not of all cells.
    """
    if search.screen is None or search.screened is None:
        return None
    both = [cell.edit for cell in search.evaluated if cell.edit in search.scores]
    first = np.array([search.screened[edit] for edit in both])
    second = np.array([search.scores[edit].first for edit in both])
    value = low = high = math.nan
    if len(both) > 1:
        value, level = rank_agreement(first.tolist(), second.tolist()), search.study.level
        generator = np.random.default_rng(search.study.seed)
        draws = [generator.integers(0, len(both), len(both)) for _ in range(DRAWS)]
        resampled = np.array([rank_agreement(first[draw].tolist(), second[draw].tolist()) for draw in draws])
        if np.isfinite(resampled).any():
            low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return ScreenOutcome(
        **search.screen.model_dump(include={"items", "best", "random"}),
        evaluated=len(both),
        rank_correlation=Estimate(value=value, low=low, high=high),
    )


def _elimination(search: Search) -> Elimination | None:
    if search.study.eliminate is None or not search.looks:
        return None
    (items,) = search.parts.validation.values()
    return Elimination(
        error=search.study.eliminate,
        looks=search.looks,
        eliminated=len(search.eliminated),
        answers_saved=sum(len(items) - seen for seen in search.eliminated.values()),
    )


def _nothing(search: Search) -> str | None:
    if search.chosen is not None:
        return None
    if not search.scores:
        return "No cell was evaluated in full without being given up."
    if search.best is None:
        return "Under every edit the model gives one answer to nearly all items, and the unedited model does not."
    return "No edit is better than the unedited model on the validation items."


def _notes(grid: Grid) -> Iterator[str]:
    if grid.merged:
        yield f"{len(grid.merged)} keeps leave the same components as another, or all, and were not asked again."


def _spectra(search: Search, model: Model) -> Iterator[Spectrum]:
    """The singular values of the searched matrices, of long spectra some."""
    for address in dict.fromkeys(cell.row.address for cell in search.cells):
        values = spectra(model).of(address, model.anatomy.matrix(address).read()).values.cpu().numpy()
        index = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).round().astype(int))
        yield Spectrum(address=address, index=index.tolist(), values=values[index].tolist())


def _edited(search: Search, choice: TaskChoice, edit: Edit, part: ItemsPart) -> dict[str, Any]:
    """The fields of `Edited`."""
    baseline, edited = search.pair(choice, edit, part)
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
