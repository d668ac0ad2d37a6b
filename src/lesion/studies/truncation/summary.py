"""From the answers of a truncation search to its numbers: cells, the chosen edit on test items, token probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lesion.core.cached_answers import Answers, CachedAnswers
from lesion.core.rates import loops
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.edits.spectra import spectra
from lesion.models.load import Model
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean
from lesion.statistics.paired import Contrast, accuracy, mcnemar_exact, paired_drop, rank_agreement
from lesion.studies.truncation import grid
from lesion.studies.truncation.result import (
    Elimination,
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
from lesion.studies.truncation.search import SearchOutcome, Split, collapsed
from lesion.studies.truncation.study import TruncationStudy
from lesion.tasks.task import Item

DRAWS = 1000
"""Resamples of cells for the interval of the screen's rank correlation."""
POINTS = 200
"""A summary holds so many singular values of a spectrum."""


def summarise(
    study: TruncationStudy,
    model: Model,
    cells: grid.Grid,
    outcome: SearchOutcome,
    parts: Split,
    cache: CachedAnswers,
) -> TruncationSummary:
    """The summary of a search, without other revisions.

    Args:
        study: how was searched.
        model: that was searched.
        cells: of the search.
        outcome: of the search.
        parts: the items of each task.
        cache: has all answers that `search.search` and `edits_tested` need.
    """
    level, best, composed = study.level, outcome.chosen or outcome.best, outcome.composed or outcome.chosen
    return TruncationSummary(
        approximate=loops(study.decoding.stop_loops).get("approximate"),
        study=study,
        model=SearchedModel(
            name=study.model.name,
            fingerprint=model.fingerprint,
            blocks=len(model.anatomy.blocks),
            family=model.anatomy.family,
            dtype=str(model.dtype).removeprefix("torch."),
        ),
        tasks=tuple(
            SearchedTask(
                name=choice.name,
                kind=task.kind,
                validation_items=len(parts.validation[choice]),
                test_items=len(parts.test[choice]),
            )
            for choice, task in parts.tasks.items()
        ),
        merged=len(cells.merged),
        screen=screen_outcome(outcome, level, study.seed),
        elimination=_elimination(study, outcome, parts),
        unedited=_unedited(parts, cache, level),
        unedited_score=outcome.baseline.first,
        cells=tuple(_cell(cell, outcome, parts, cache, level) for cell in cells.cells),
        best=None if best is None else str(best),
        nothing=_nothing(outcome),
        best_tests=() if best is None else _tests(best, parts, cache, level),
        path=tuple(outcome.steps),
        composed=str(composed) if outcome.steps else None,
        composed_tests=_tests(composed, parts, cache, level) if outcome.steps and composed is not None else (),
        spectra=_spectra(cells, model),
        tokens=tokens((BASELINE, *edits_tested(outcome)), parts, cache, level),
        notes=(*outcome.notes, *_notes(cells, parts)),
    )


def edits_tested(outcome: SearchOutcome) -> list[Edit]:
    """The edits that are evaluated on test items: the chosen one, or else the best, and the composition."""
    return [edit for edit in (outcome.chosen or outcome.best, outcome.composed) if edit is not None]


def followed(
    summary: TruncationSummary, revision: str, edits: Sequence[Edit], parts: Split, cache: CachedAnswers
) -> TruncationSummary:
    """The summary with another revision of the model on the test items, unedited and under the edits."""
    every, level = (BASELINE, *edits), summary.study.level
    outcomes = tuple(
        RevisionOutcome(revision=revision, edit=str(edit), **_edited(choice, *_pair(choice, edit, items, cache), level))
        for edit in every
        for choice, items in parts.test.items()
    )
    return summary.model_copy(
        update={
            "tokens": (*summary.tokens, *tokens(every, parts, cache, level, revision)),
            "revisions": (*summary.revisions, *outcomes),
        }
    )


def _unedited(parts: Split, cache: CachedAnswers, level: float) -> tuple[Unedited, ...]:
    outcomes = []
    for choice in parts.tasks:
        for part, items in (("validation", parts.validation), ("test", parts.test)):
            values = _edited(choice, *_pair(choice, BASELINE, items[choice], cache), level)
            del values["collapsed"]  # compared with itself it is not
            outcomes.append(Unedited(part=part, **values))
    return tuple(outcomes)


def _cell(
    cell: grid.GridCell, outcome: SearchOutcome, parts: Split, cache: CachedAnswers, level: float
) -> TruncatedMatrix:
    scored = outcome.scores.get(cell.edit)
    outcomes = []
    for choice, items in parts.validation.items() if scored is not None else ():
        baseline, edited = _pair(choice, cell.edit, items, cache)
        drop = Estimate.of(paired_drop(baseline.right, edited.right, level))
        outcomes.append(Outcome(drop=drop, **_edited(choice, baseline, edited, level)))
    return TruncatedMatrix(
        edit=str(cell.edit),
        address=cell.edit.address,
        layer=cell.layer,
        matrix=cell.matrix,
        keep=cell.edit.keep,
        side=cell.edit.side,
        rank=cell.rank,
        of=cell.of,
        saved=cell.saved,
        screen=None if outcome.screened is None else outcome.screened[cell.edit],
        eliminated=outcome.eliminated.get(cell.edit),
        score=None if scored is None else scored.first,
        outcomes=tuple(outcomes),
    )


def _tests(edit: Edit, parts: Split, cache: CachedAnswers, level: float) -> tuple[Tested, ...]:
    """An edit on the test items of every task, against the baseline on the same items."""
    outcomes = []
    for choice, items in parts.test.items():
        baseline, edited = _pair(choice, edit, items, cache)
        drop = paired_drop(baseline.right, edited.right, level)
        p = mcnemar_exact(int((baseline.right & ~edited.right).sum()), int((edited.right & ~baseline.right).sum()))
        right, tempting = _token_gains(baseline, edited, level)
        outcomes.append(
            Tested(
                baseline=float(baseline.right.mean()),
                gain=Estimate.of(drop, p).negative,
                gold_gain=Estimate.of(mean(edited.gold - baseline.gold, level)),
                right_gain=right,
                tempting_gain=tempting,
                **_edited(choice, baseline, edited, level),
            )
        )
    return tuple(outcomes)


def _token_gains(baseline: Answers, edited: Answers, level: float) -> tuple[Estimate | None, Estimate | None]:
    """How much likelier an edit makes the right and the tempting token: the mean paired difference of probabilities."""
    if baseline.scores.shape[1] != 2 or edited.scores.shape[1] != 2:
        return None, None
    right, tempting = (
        _clipped(mean(np.exp(after) - np.exp(before), level), -1.0)
        for before, after in zip(baseline.scores.T, edited.scores.T, strict=True)
    )
    return right, tempting


def tokens(
    edits: Sequence[Edit], parts: Split, cache: CachedAnswers, level: float, revision: str | None = None
) -> tuple[Tokens, ...]:
    """Probability, rank and margin of the right and the tempting token on test items, of every task that has them.

    Intervals are Student's for the mean over items; those of probabilities are cut off at 0 and 1.
    """
    outcomes = []
    for edit in edits:
        for choice, task in parts.tasks.items():
            if task.kind != "contrast":
                continue
            answers = cache.answers(choice, parts.test[choice], edit)
            if answers.scores.shape[1] != 2:
                continue  # no logits were finite
            right, tempting = answers.scores.T
            ranked = np.where(answers.ranks > 0, answers.ranks, np.nan)
            outcomes.append(
                Tokens(
                    task=choice.name,
                    edit=str(edit),
                    revision=revision,
                    items=len(parts.test[choice]),
                    p_right=_clipped(mean(np.exp(right), level), 0.0),
                    p_tempting=_clipped(mean(np.exp(tempting), level), 0.0),
                    rank_right=float(np.nanmedian(ranked[:, 0])),
                    rank_tempting=float(np.nanmedian(ranked[:, 1])),
                    margin=Estimate.of(mean(right - tempting, level)),
                )
            )
    return tuple(outcomes)


def screen_outcome(outcome: SearchOutcome, level: float, seed: int) -> ScreenOutcome | None:
    """What the screen was, and how its ranks agree with those of the full evaluation, over the cells that have both.

    The interval is that of resampling these cells. They are the best of the screen and some drawn at random, so the
    agreement is that of such a choice, not of all cells.
    """
    if outcome.screen is None or outcome.screened is None:
        return None
    both = [cell.edit for cell in outcome.evaluated if cell.edit in outcome.scores]
    first = np.array([outcome.screened[edit] for edit in both])
    second = np.array([outcome.scores[edit].first for edit in both])
    value = low = high = math.nan
    if len(both) > 1:
        value = rank_agreement(first.tolist(), second.tolist())
        generator = np.random.default_rng(seed)
        draws = [generator.integers(0, len(both), len(both)) for _ in range(DRAWS)]
        resampled = np.array([rank_agreement(first[draw].tolist(), second[draw].tolist()) for draw in draws])
        if np.isfinite(resampled).any():
            low, high = np.nanquantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return ScreenOutcome(
        items=outcome.screen.items,
        best=outcome.screen.best,
        random=outcome.screen.random,
        evaluated=len(both),
        rank_correlation=Estimate(value=value, low=low, high=high),
    )


def _elimination(study: TruncationStudy, outcome: SearchOutcome, parts: Split) -> Elimination | None:
    if study.eliminate is None or not outcome.looks:
        return None
    (items,) = parts.validation.values()
    return Elimination(
        error=study.eliminate,
        looks=outcome.looks,
        eliminated=len(outcome.eliminated),
        answers_saved=sum(len(items) - seen for seen in outcome.eliminated.values()),
    )


def _nothing(outcome: SearchOutcome) -> str | None:
    if outcome.chosen is not None:
        return None
    if not outcome.scores:
        return "No cell was evaluated in full without being given up."
    if outcome.best is None:
        return "Under every edit the model gives one answer to nearly all items, and the unedited model does not."
    return "No edit is better than the unedited model on the validation items."


def _notes(cells: grid.Grid, parts: Split) -> list[str]:
    notes = []
    if cells.merged:
        notes.append(
            f"{len(cells.merged)} keeps were not asked again: they keep the same number of components as another, or"
            f" all of them."
        )
    if all(task.kind != "contrast" for task in parts.tasks.values()):
        names = ", ".join(choice.name for choice in parts.tasks)
        notes.append(
            f"{names}: no tempting token, so that no token probabilities are told; ioi, facts and their like have one."
        )
    return notes


def _spectra(cells: grid.Grid, model: Model) -> tuple[Spectrum, ...]:
    """The singular values of the searched matrices, of long spectra some."""
    of_matrices = []
    for address in dict.fromkeys(cell.edit.address for cell in cells.cells):
        matrix = model.anatomy.matrix(address)
        values = spectra(model).of(address, matrix.read()).values.cpu().numpy()
        index = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).round().astype(int))
        of_matrices.append(Spectrum(address=address, index=index.tolist(), values=values[index].tolist()))
    return tuple(of_matrices)


def _pair(choice: TaskChoice, edit: Edit, items: Sequence[Item], cache: CachedAnswers) -> tuple[Answers, Answers]:
    return cache.answers(choice, items, BASELINE), cache.answers(choice, items, edit)


def _edited(task: TaskChoice, baseline: Answers, edited: Answers, level: float) -> dict[str, Any]:
    """The fields of `Edited`."""
    label, share, is_label = collapsed(edited, baseline)
    return {
        "task": task.name,
        "items": len(edited.right),
        "accuracy": Estimate.of(accuracy(edited.right, level)),
        "gold": float(edited.gold.mean()),
        "label": label,
        "label_share": share,
        "collapsed": is_label,
    }


def _clipped(contrast: Contrast, least: float) -> Estimate:
    """An estimate with its limits between `least` and 1."""
    low, high = np.clip([contrast.low, contrast.high], least, 1.0)
    return Estimate(value=contrast.value, low=low, high=high)
