"""What a screen told: the log-probability that gold solutions lost under each edit, beside the generated accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from lesion.core.cached_answers import gold_name
from lesion.core.values import Estimate
from lesion.edits.edit import BASELINE
from lesion.statistics.paired import rank_agreement
from lesion.studies.ablation.result import Agreement, Amount, Cell, Loss, Screen, TaskResult
from lesion.studies.ablation.screening import ITEMS

DRAWS = 1000
_CHUNK = 100  # draws that are held at once


def screened(
    answers: pd.DataFrame, ids: Sequence[str], result: TaskResult, *, level: float, seed: int
) -> Screen | None:
    """The screen of a task; None where the baseline has not been scored in full.

    Args:
        answers: of one model, from `Store.answers`.
        ids: of the task's items, in the order of the draw.
        result: of the task, with its cells.
        level: of the bootstrap intervals over items.
        seed: of the bootstrap.
    """
    items = list(ids)[:ITEMS]
    golds = _by_edit(answers[answers["task"] == gold_name(result.task)], items)
    unedited = golds.pop(str(BASELINE), None)
    if unedited is None:
        return None
    before = _scores(unedited)
    known = np.flatnonzero(np.isfinite(before))
    tokens = unedited["tokens"].to_numpy(dtype=np.float64)
    cells = [cell for cell in result.cells if cell.edit in golds]
    if not known.size or not cells:
        return None
    lost = np.stack([before - _scores(golds[cell.edit]) for cell in cells])[:, known]
    resampled = _means(lost, known, tokens[known], len(ids), seed)
    low, high = _interval(resampled, level)
    per_token = _ratio(lost, tokens[known])
    frames = {
        str(edit): frame.set_index("item") for edit, frame in answers[answers["task"] == result.task].groupby("edit")
    }
    ranks: dict[int, int] = {}
    agreement = []
    for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in cells):
        family = [place for place, cell in enumerate(cells) if (cell.unit, cell.factor) == (unit, factor)]
        of_family = _ratio(lost[family], tokens[known])
        ranks |= {place: int(rank) for place, rank in zip(family, rankdata(-of_family, method="min"), strict=True)}
        pairs = [_pairs(frames, cells[place], ids) for place in family]
        drawn = [_means(pair[None], np.arange(len(pair)), np.ones(len(pair)), len(ids), seed)[:, 0] for pair in pairs]
        drops = [cells[place].drop.value or 0.0 for place in family]
        rho = _agreement(of_family, drops, resampled[:, family], np.stack(drawn, axis=1), level)
        tied = sum(drops.count(drop) > 1 for drop in drops)
        agreement.append(Agreement(unit=unit, factor=factor, layers=len(family), tied=tied, rho=rho))
    return Screen(
        items=len(items),
        scored=Amount(answers=len(items) * (1 + len(cells)), tokens=int(tokens.sum()) * (1 + len(cells))),
        generated=_generated(frames, ids, result),
        baseline=float(before[known].sum() / tokens[known].sum()),
        losses=[
            Loss(
                layer=cell.layer,
                unit=cell.unit,
                factor=cell.factor,
                lost=Estimate(value=per_token[place], low=low[place], high=high[place]),
                lost_per_answer=lost[place].mean(),
                nonfinite=int((~np.isfinite(lost[place])).sum()),
                rank=ranks[place],
            )
            for place, cell in enumerate(cells)
        ],
        agreement=agreement,
    )


def _by_edit(answers: pd.DataFrame, items: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The answers of the edits that have one to all of these items, in their order."""
    frames = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}
    return {edit: frame.loc[list(items)] for edit, frame in frames.items() if items and set(items) <= set(frame.index)}


def _scores(frame: pd.DataFrame) -> Float[np.ndarray, " items"]:
    """Log-probabilities in nats; NaN where it is no number."""
    return np.array([scores[0] if len(scores) else math.nan for scores in frame["scores"]], dtype=np.float64)


def _ratio(
    lost: Float[np.ndarray, "layers items"], tokens: Float[np.ndarray, " items"]
) -> Float[np.ndarray, " layers"]:
    """Log-probability lost per token; infinite where it is no number."""
    found = lost.sum(axis=1) / tokens.sum()
    return np.where(np.isfinite(found), found, np.inf)


def _means(
    values: Float[np.ndarray, "rows some"],
    places: Int[np.ndarray, " some"],
    weights: Float[np.ndarray, " some"],
    items: int,
    seed: int,
) -> Float[np.ndarray, "draws rows"]:
    """Σ values / Σ weights over items drawn again with replacement; infinite where a value is no number.

    The draws are of all the items of a task, and depend on the seed alone, so that what is told of different parts of
    the items goes together: `places` says where these are.
    """
    rng = np.random.default_rng(seed)
    broken = ~np.isfinite(values).all(axis=1)
    clean = np.where(broken[:, None], 0.0, values)
    found = []
    for start in range(0, DRAWS, _CHUNK):
        size = min(_CHUNK, DRAWS - start)
        times = rng.multinomial(items, np.full(items, 1 / items), size=size)[:, places].astype(np.float64)
        times[times.sum(axis=1) == 0] = 1  # of few items none may be drawn: then all of them are
        found.append((times @ clean.T) / (times @ weights)[:, None])
    means = np.concatenate(found)
    means[:, broken] = np.inf
    return means


def _interval(
    drawn: Float[np.ndarray, "draws rows"], level: float
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """The percentiles between which `level` of the draws lie; infinite where the draws are."""
    tails = [50 * (1 - level), 50 * (1 + level)]
    known = np.isfinite(drawn).all(axis=0)
    ends = np.full((2, drawn.shape[1]), np.inf)
    if known.any():
        ends[:, known] = np.percentile(drawn[:, known], tails, axis=0)
    return ends[0], ends[1]


def _pairs(frames: Mapping[str, pd.DataFrame], cell: Cell, ids: Sequence[str]) -> Float[np.ndarray, " items"]:
    """Baseline minus edited verdict, item by item, over the items of the cell."""
    own = list(ids)[: cell.items]
    right, edited = (frames[edit]["correct"].loc[own].to_numpy(np.float64) for edit in (str(BASELINE), cell.edit))
    pairs: Float[np.ndarray, " items"] = right - edited
    return pairs


def _agreement(
    lost: Float[np.ndarray, " layers"],
    drops: Sequence[float],
    drawn_lost: Float[np.ndarray, "draws layers"],
    drawn_drops: Float[np.ndarray, "draws layers"],
    level: float,
) -> Estimate:
    """Spearman's ρ with its bootstrap interval; no value for fewer than two layers or where one side ranks nothing."""
    rho = rank_agreement(lost.tolist(), drops) if len(drops) > 1 else math.nan
    drawn = _spearman(drawn_lost, drawn_drops) if math.isfinite(rho) else np.empty(0)
    drawn = drawn[np.isfinite(drawn)]
    if not drawn.size:
        return Estimate(value=None)
    low, high = _interval(drawn[:, None], level)
    return Estimate(value=rho, low=low[0], high=high[0])


def _spearman(
    first: Float[np.ndarray, "draws layers"], second: Float[np.ndarray, "draws layers"]
) -> Float[np.ndarray, " draws"]:
    """Spearman's rank correlation, row by row; NaN where a row ranks nothing."""
    a, b = (rankdata(one, axis=1) for one in (first, second))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Float[np.ndarray, " draws"] = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return found


def _generated(frames: Mapping[str, pd.DataFrame], ids: Sequence[str], result: TaskResult) -> Amount:
    """The answers behind the table, and the tokens that were generated for them."""
    counts = {str(BASELINE): result.items, **{cell.edit: cell.items for cell in result.cells}}
    tokens = sum(int(frames[edit]["tokens"].loc[list(ids)[:count]].sum()) for edit, count in counts.items())
    return Amount(answers=result.answers, tokens=tokens)
