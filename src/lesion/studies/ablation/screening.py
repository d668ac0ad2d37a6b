"""Screening: the gold solutions scored under every edit before anything is generated.

A pass over prompt and solution gives the log-probability of the solution; rows share the prompt and the blocks below
the edit. What an edit takes of it ranks the layers at a small part of what generating costs. The summary says how well
that ranking foretells the drops of generated accuracy; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from lesion.core.rates import by_edit, complete, first_scores
from lesion.core.values import alike
from lesion.edits.edit import BASELINE
from lesion.report.values import Estimate
from lesion.report.wording import counted
from lesion.statistics.agreement import rank_correlation
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.result import Agreement, Amount, Loss, Screen, TaskResult
from lesion.studies.ablation.sweep import PlaceEdit, place_of_edit, text_of
from lesion.tasks.wrapped import gold_name

ITEMS = 100  # of a task that are screened at most: the first of the draw
DRAWS = 1000
CHUNK = 100  # draws that are held at once


def no_screen(task: str) -> str:
    """Why a task has no screen, as a sentence."""
    return f"{task} has no screen: its answers are scored, not generated, so that asking costs no more than a screen."


@dataclass(frozen=True)
class Losses:
    """What edits take of the gold solutions of one task, of those that have been scored in full.

    Attributes:
        edits: which they are; the rows of `lost`.
        lost: log-probability in nats, of the items whose unedited score is a number.
        known: the numbers of these items.
        tokens: of every item; `before`: unedited log-probability.
    """

    edits: tuple[PlaceEdit, ...]
    lost: Float[np.ndarray, "edits known"]
    known: Int[np.ndarray, " known"]
    tokens: Float[np.ndarray, " items"]
    before: Float[np.ndarray, " items"]

    @classmethod
    def of(cls, answers: pd.DataFrame, task: str, ids: Sequence[str], edits: Sequence[PlaceEdit]) -> Losses | None:
        """The losses of a task; None where the baseline has not been scored in full, or nothing else."""
        golds = complete(answers[answers["task"] == gold_name(task)], list(ids)[:ITEMS])
        unedited = golds.pop(str(BASELINE), None)
        own = tuple(edit for edit in edits if text_of(edit, task) in golds)
        if unedited is None or not own:
            return None
        before, tokens = first_scores(unedited), unedited["tokens"].to_numpy(dtype=np.float64)
        known = np.flatnonzero(np.isfinite(before))
        if not known.size:
            return None
        lost = np.stack([before - first_scores(golds[text_of(edit, task)]) for edit in own])[:, known]
        return cls(own, lost, known, tokens, before)

    @property
    def per_token(self) -> Float[np.ndarray, " edits"]:
        """Nats that a token loses on average; infinite where an item has no number under an edit."""
        means = self.lost.sum(axis=1) / self.tokens[self.known].sum()
        return np.where(np.isfinite(means), means, np.inf)


def chosen_edits(
    answers: pd.DataFrame, ids: Mapping[str, Sequence[str]], edits: Sequence[PlaceEdit], top: int
) -> list[PlaceEdit]:
    """The edits to generate under: of each unit and factor the `top` that take most log-probability from any task.

    All tasks are answered under the same edits, so that tasks can be compared at each of them. Those that tie with the
    last are chosen too.

    Args:
        answers: of one model, from `Store.answers`, with its gold solutions scored under every edit.
        ids: of the items of each task that generates, in the order of the draw.
        edits: to choose from, returned in this order.
    """
    chosen: set[PlaceEdit] = set()
    for task, of_task in ids.items():
        losses = Losses.of(answers, task, of_task, edits)
        if losses is None:
            continue
        lost = dict(zip(losses.edits, losses.per_token, strict=True))
        for kind in alike(losses.edits, "unit", "factor"):
            bar = sorted((lost[edit] for edit in kind), reverse=True)[:top][-1]
            chosen |= {edit for edit in kind if lost[edit] >= bar}
    return [edit for edit in edits if edit in chosen]


def screened(
    answers: pd.DataFrame,
    ids: Sequence[str],
    result: TaskResult,
    edits: Sequence[PlaceEdit],
    *,
    level: float,
    seed: int,
    top: int | None = None,
) -> Screen | None:
    """The screen of a task; None where the baseline has not been scored in full.

    Args:
        answers: of one model, from `Store.answers`.
        edits: that the study plans; losses are told of all that have been scored, the rank correlation is over those
            that have a cell.
        top: edits of each unit and factor to which generation was limited.
    """
    items = list(ids)[:ITEMS]
    cells = {cell.edit: cell for cell in result.cells}
    # Where generation is not limited, an edit without a cell is not answered in full yet.
    known_edits = [edit for edit in edits if top is not None or text_of(edit, result.task) in cells]
    losses = Losses.of(answers, result.task, ids, known_edits)
    if losses is None:
        return None
    before, tokens, known, lost, per_token = losses.before, losses.tokens, losses.known, losses.lost, losses.per_token
    resampled = _means(lost, known, tokens[known], len(ids), seed)
    low, high = _interval(resampled, level)
    frames = by_edit(answers[answers["task"] == result.task])
    ranks = np.zeros(len(losses.edits), dtype=int)
    agreement = []
    at = {edit: place for place, edit in enumerate(losses.edits)}
    for kind in alike(losses.edits, "unit", "factor"):
        places = [at[edit] for edit in kind]
        ranks[places] = rankdata(-per_token[places], method="min")
        measured = {at[edit]: cells[text] for edit in kind if (text := text_of(edit, result.task)) in cells}
        if not measured:
            continue
        places, own = list(measured), list(measured.values())
        drops = np.array([cell.size for cell in own])
        drawn_drops = np.stack([_drawn_drop(frames, cell, ids, seed) for cell in own], axis=1)
        rho = Estimate.of(rank_correlation(per_token[places], drops, resampled[:, places], drawn_drops, level))
        tied = sum(int((drops == drop).sum()) > 1 for drop in drops)
        of_kind = {"unit": kind[0].unit, "factor": kind[0].factor, "layers": len(places)}
        agreement.append(Agreement(**of_kind, tied=tied, rho=rho))
    evaluated = {str(BASELINE): result.items, **{cell.edit: cell.items for cell in result.cells}}
    generated = sum(int(frames[edit]["tokens"].loc[list(ids)[:count]].sum()) for edit, count in evaluated.items())
    scored = 1 + len(losses.edits)
    return Screen(
        top=top,
        items=len(items),
        scored=Amount(answers=len(items) * scored, tokens=int(tokens.sum()) * scored),
        generated=Amount(answers=result.answers, tokens=generated),
        baseline=float(before[known].sum() / tokens[known].sum()),
        losses=[
            Loss(
                **place_of_edit(edit, result.task),
                lost=Estimate(value=per_token[place], low=low[place], high=high[place]),
                lost_per_answer=lost[place].mean(),
                nonfinite=int((~np.isfinite(lost[place])).sum()),
                rank=int(ranks[place]),
            )
            for place, edit in enumerate(losses.edits)
        ],
        agreement=agreement,
    )


def limited(model: str, tasks: Sequence[TaskResult], kept: Sequence[PlaceEdit], edits: int, top: int) -> Iterator[str]:
    """What limiting generation to `kept` of so many edits means for the numbers, as sentences; none without any."""
    if not kept:
        return
    yield (
        f"{model}: answers were generated under {len(kept)} of {counted(edits, 'edit')}, those that take most"
        f" log-probability of gold solutions (--screen-top {top}). The corrections count all {edits:,}, with p = 1 for"
        " those left out, so that choosing makes no wrong call likelier. The items that chose an edit also measure its"
        " drop, so that the largest drops may be overestimated; an edit that was left out may still cost accuracy."
    )
    for result in tasks:
        there = {cell.edit for cell in result.cells}
        missing = [edit for edit in kept if text_of(edit, result.task) not in there]
        if missing:
            yield f"{model}, {result.task}: {counted(len(missing), 'edit')} of these not answered in full yet."


def _means(
    values: Float[np.ndarray, "rows some"],
    places: Int[np.ndarray, " some"],
    weights: Float[np.ndarray, " some"],
    items: int,
    seed: int,
) -> Float[np.ndarray, "draws rows"]:
    """Σ values / Σ weights over items drawn again with replacement; infinite where a value is no number.

    The draws are of all the items of a task and depend on the seed alone, so that numbers of different parts of the
    items vary together: `places` says where these are.
    """
    rng = np.random.default_rng(seed)
    broken = ~np.isfinite(values).all(axis=1)
    clean = np.where(broken[:, None], 0.0, values)
    chunks = []
    for start in range(0, DRAWS, CHUNK):
        size = min(CHUNK, DRAWS - start)
        times = rng.multinomial(items, np.full(items, 1 / items), size=size)[:, places].astype(np.float64)
        times[times.sum(axis=1) == 0] = 1  # of few items none may be drawn: then all of them are
        chunks.append((times @ clean.T) / (times @ weights)[:, None])
    means = np.concatenate(chunks)
    means[:, broken] = np.inf
    return means


def _interval(
    drawn: Float[np.ndarray, "draws rows"], level: float
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """The percentiles between which `level` of the draws lie; infinite where the draws are."""
    known = np.isfinite(drawn).all(axis=0)
    ends = np.percentile(np.where(known, drawn, 0.0), [50 * (1 - level), 50 * (1 + level)], axis=0)
    low, high = np.where(known, ends, np.inf)
    return low, high


def _drawn_drop(
    frames: Mapping[str, pd.DataFrame], cell: Cell, ids: Sequence[str], seed: int
) -> Float[np.ndarray, " draws"]:
    own = list(ids)[: cell.items]
    right, edited = (frames[edit]["correct"].loc[own].to_numpy(np.float64) for edit in (str(BASELINE), cell.edit))
    return _means((right - edited)[None], np.arange(len(own)), np.ones(len(own)), len(ids), seed)[:, 0]
