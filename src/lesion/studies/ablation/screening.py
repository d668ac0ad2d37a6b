"""Screening: the gold solutions scored under every edit before anything is generated.

A pass over prompt and solution gives the log-probability of the solution; rows share the prompt and the blocks below
the edit. What an edit takes of it ranks the layers at a small part of what generating costs. The summary says how well
that ranking foretells the drops of generated accuracy; nothing is decided by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from lesion.core.values import Estimate
from lesion.edits.edit import BASELINE
from lesion.statistics.agreement import correlations
from lesion.statistics.paired import rank_agreement
from lesion.studies.ablation.result import Agreement, Amount, Cell, Loss, Screen, TaskResult
from lesion.studies.ablation.sweep import by_edit, complete
from lesion.tasks.gold import gold_name

ITEMS = 100  # of a task that are screened at most: the first of the draw
ASKING = "asking"
"""The part of the cost that says how long answers took, in a study with a screen: by model and part."""
DRAWS = 1000
CHUNK = 100  # draws that are held at once


def no_screen(task: str) -> str:
    """Why a task has no screen, as a sentence."""
    return f"{task} has no screen: its answers are scored, not generated, so that asking costs no more than a screen."


def screened(
    answers: pd.DataFrame, ids: Sequence[str], result: TaskResult, *, level: float, seed: int
) -> Screen | None:
    """The screen of a task; None where the baseline has not been scored in full.

    Args:
        answers: of one model, from `Store.answers`.
        ids: of the task's items, in the order of the draw.
        result: of the task, with its cells.
        level, seed: of the bootstrap over items.
    """
    items = list(ids)[:ITEMS]
    golds = complete(answers[answers["task"] == gold_name(result.task)], items)
    unedited = golds.pop(str(BASELINE), None)
    cells = [cell for cell in result.cells if cell.edit in golds]
    if unedited is None or not cells:
        return None
    before, tokens = _scores(unedited), unedited["tokens"].to_numpy(dtype=np.float64)
    known = np.flatnonzero(np.isfinite(before))
    if not known.size:
        return None
    lost = np.stack([before - _scores(golds[cell.edit]) for cell in cells])[:, known]
    per_token = lost.sum(axis=1) / tokens[known].sum()
    per_token[~np.isfinite(per_token)] = np.inf
    resampled = _means(lost, known, tokens[known], len(ids), seed)
    low, high = _interval(resampled, level)
    frames = by_edit(answers[answers["task"] == result.task])
    ranks = np.zeros(len(cells), dtype=int)
    agreement = []
    for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in cells):
        places = [place for place, cell in enumerate(cells) if (cell.unit, cell.factor) == (unit, factor)]
        ranks[places] = rankdata(-per_token[places], method="min")
        drops = [cells[place].drop.value or 0.0 for place in places]
        drawn_drops = [_drawn_drop(frames, cells[place], ids, seed) for place in places]
        rho = _agreement(per_token[places], drops, resampled[:, places], np.stack(drawn_drops, axis=1), level)
        tied = sum(drops.count(drop) > 1 for drop in drops)
        agreement.append(Agreement(unit=unit, factor=factor, layers=len(places), tied=tied, rho=rho))
    evaluated = {str(BASELINE): result.items, **{cell.edit: cell.items for cell in result.cells}}
    generated = sum(int(frames[edit]["tokens"].loc[list(ids)[:count]].sum()) for edit, count in evaluated.items())
    return Screen(
        items=len(items),
        scored=Amount(answers=len(items) * (1 + len(cells)), tokens=int(tokens.sum()) * (1 + len(cells))),
        generated=Amount(answers=result.answers, tokens=generated),
        baseline=float(before[known].sum() / tokens[known].sum()),
        losses=[
            Loss(
                layer=cell.layer,
                unit=cell.unit,
                factor=cell.factor,
                reference=cell.reference,
                lost=Estimate(value=per_token[place], low=low[place], high=high[place]),
                lost_per_answer=lost[place].mean(),
                nonfinite=int((~np.isfinite(lost[place])).sum()),
                rank=int(ranks[place]),
            )
            for place, cell in enumerate(cells)
        ],
        agreement=agreement,
    )


def _scores(frame: pd.DataFrame) -> Float[np.ndarray, " items"]:
    """Log-probabilities in nats; NaN where it is no number."""
    return np.array([scores[0] if len(scores) else math.nan for scores in frame["scores"]], dtype=np.float64)


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
    ends = np.full((2, drawn.shape[1]), np.inf)
    if known.any():
        ends[:, known] = np.percentile(drawn[:, known], [50 * (1 - level), 50 * (1 + level)], axis=0)
    return ends[0], ends[1]


def _drawn_drop(
    frames: Mapping[str, pd.DataFrame], cell: Cell, ids: Sequence[str], seed: int
) -> Float[np.ndarray, " draws"]:
    """The drop of a cell over the items that it has, under every draw."""
    own = list(ids)[: cell.items]
    right, edited = (frames[edit]["correct"].loc[own].to_numpy(np.float64) for edit in (str(BASELINE), cell.edit))
    return _means((right - edited)[None], np.arange(len(own)), np.ones(len(own)), len(ids), seed)[:, 0]


def _agreement(
    lost: Float[np.ndarray, " layers"],
    drops: Sequence[float],
    drawn_lost: Float[np.ndarray, "draws layers"],
    drawn_drops: Float[np.ndarray, "draws layers"],
    level: float,
) -> Estimate:
    """Spearman's ρ with its bootstrap interval; no value for fewer than two layers or where one side ranks nothing."""
    rho = rank_agreement(lost.tolist(), drops) if len(drops) > 1 else math.nan
    ranks = rankdata(drawn_lost, axis=1), rankdata(drawn_drops, axis=1)
    drawn = correlations(*ranks) if math.isfinite(rho) else np.empty(0)
    drawn = drawn[np.isfinite(drawn)]
    if not drawn.size:
        return Estimate(value=None)
    low, high = _interval(drawn[:, None], level)
    # Ends that are equal say that so few layers have no other ranks, not that ρ is certain.
    return Estimate(value=rho, low=low[0], high=high[0]) if low[0] < high[0] else Estimate(value=rho)
