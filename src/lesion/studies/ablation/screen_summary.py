"""What a screen told: the log-probability that gold solutions lost under each edit, beside the generated accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from lesion.core.cached_answers import gold_name
from lesion.edits.edit import BASELINE, SCALES
from lesion.statistics.paired import rank_agreement
from lesion.studies.ablation.screening import ITEMS

DRAWS = 1000
_CHUNK = 100  # draws that are held at once


def screened(
    task: str, answers: pd.DataFrame, asked: Sequence[str], entry: Mapping[str, Any], *, level: float, seed: int
) -> dict[str, Any] | None:
    """The section `screen` of a task in `summary.json`; None where the baseline has not been scored in full.

    Of every layer: `lost`, the log-probability lost per token of the solutions in nats, with its bootstrap interval
    over items (`low`, `high`), `lost_per_answer`, and `rank`, 1 where most is lost. On `nonfinite` items there was no
    number under the edit; then `lost` is null and the rank is the first. `agreement` has per unit and factor Spearman's
    ρ with the drops of generated accuracy in the same table, with its bootstrap interval over items, and of how many
    layers these drops are `tied`. `answers` and `tokens` were scored, those of `generated` generated for the table.

    Args:
        task: whose screen.
        answers: of one model, from `Store.answers`.
        asked: ids of the task's items, in the order of the draw.
        entry: of the task in the summary, with its `layers`.
        level: of the intervals.
        seed: of the bootstrap.
    """
    items = list(asked)[:ITEMS]
    golds = _by_edit(answers[answers["task"] == gold_name(task)], items)
    unedited = golds.pop(str(BASELINE), None)
    if unedited is None:
        return None
    before = _scores(unedited)
    known = np.flatnonzero(np.isfinite(before))
    tokens = unedited["tokens"].to_numpy(dtype=np.float64)
    layers = [dict(one) for one in entry["layers"] if _text(one) in golds]
    if not known.size or not layers:
        return None
    lost = np.stack([before - _scores(golds[_text(one)]) for one in layers])[:, known]
    resampled = _means(lost, known, tokens[known], len(asked), seed)
    low, high = _interval(resampled, level)
    told = [
        {
            **{name: one[name] for name in ("layer", "unit", "factor")},
            "lost": _finite(per_token),
            "low": _finite(low[place]),
            "high": _finite(high[place]),
            "lost_per_answer": _finite(lost[place].mean()),
            "nonfinite": int((~np.isfinite(lost[place])).sum()),
        }
        for place, (one, per_token) in enumerate(zip(layers, _ratio(lost, tokens[known]), strict=True))
    ]
    frames = {str(edit): frame.set_index("item") for edit, frame in answers[answers["task"] == task].groupby("edit")}
    agreement = []
    for unit, factor in dict.fromkeys((one["unit"], one["factor"]) for one in layers):
        family = [place for place, one in enumerate(layers) if (one["unit"], one["factor"]) == (unit, factor)]
        of_family = _ratio(lost[family], tokens[known])
        for place, rank in zip(family, rankdata(-of_family, method="min"), strict=True):
            told[place]["rank"] = int(rank)
        pairs = [_pairs(frames, layers[place], asked) for place in family]
        drawn = [_means(pair[None], np.arange(len(pair)), np.ones(len(pair)), len(asked), seed)[:, 0] for pair in pairs]
        drops = [layers[place]["drop"] for place in family]
        agreed = _agreement(of_family, drops, resampled[:, family], np.stack(drawn, axis=1), level)
        tied = sum(drops.count(drop) > 1 for drop in drops)
        agreement.append({"unit": unit, "factor": factor, "layers": len(family), "tied": tied, **agreed})
    return {
        "items": len(items),
        "answers": len(items) * (1 + len(layers)),
        "tokens": int(tokens.sum()) * (1 + len(layers)),
        "generated": _generated(frames, asked, entry),
        "baseline": float(before[known].sum() / tokens[known].sum()),
        "layers": told,
        "agreement": agreement,
    }


def _by_edit(answers: pd.DataFrame, items: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The answers of the edits that have one to all of these items, in their order."""
    frames = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}
    return {edit: frame.loc[list(items)] for edit, frame in frames.items() if items and set(items) <= set(frame.index)}


def _text(entry: Mapping[str, Any]) -> str:
    return str(SCALES[entry["unit"]](entry["layer"], entry["factor"]))


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


def _pairs(
    frames: Mapping[str, pd.DataFrame], entry: Mapping[str, Any], asked: Sequence[str]
) -> Float[np.ndarray, " items"]:
    """Baseline minus edited verdict, item by item, as far as the layer was asked."""
    ids = list(asked)[: entry["items"]]
    right, edited = (frames[edit]["correct"].loc[ids].to_numpy(np.float64) for edit in (str(BASELINE), _text(entry)))
    pairs: Float[np.ndarray, " items"] = right - edited
    return pairs


def _agreement(
    lost: Float[np.ndarray, " layers"],
    drops: Sequence[float],
    drawn_lost: Float[np.ndarray, "draws layers"],
    drawn_drops: Float[np.ndarray, "draws layers"],
    level: float,
) -> dict[str, float | None]:
    """Spearman's ρ with its bootstrap interval; null for fewer than two layers, and where one side ranks nothing."""
    rho = rank_agreement(lost.tolist(), drops) if len(drops) > 1 else math.nan
    drawn = _spearman(drawn_lost, drawn_drops) if math.isfinite(rho) else np.empty(0)
    drawn = drawn[np.isfinite(drawn)]
    if not drawn.size:
        return {"rho": None, "low": None, "high": None}
    low, high = _interval(drawn[:, None], level)
    return {"rho": rho, "low": float(low[0]), "high": float(high[0])}


def _spearman(
    first: Float[np.ndarray, "draws layers"], second: Float[np.ndarray, "draws layers"]
) -> Float[np.ndarray, " draws"]:
    """Spearman's rank correlation, row by row; NaN where a row ranks nothing."""
    a, b = (rankdata(one, axis=1) for one in (first, second))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Float[np.ndarray, " draws"] = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return found


def _generated(frames: Mapping[str, pd.DataFrame], asked: Sequence[str], entry: Mapping[str, Any]) -> dict[str, int]:
    """The answers that the table looks at, and the tokens that were generated for them."""
    counts = {str(BASELINE): entry["items"], **{_text(one): one["items"] for one in entry["layers"]}}
    tokens = sum(int(frames[edit]["tokens"].loc[list(asked)[:count]].sum()) for edit, count in counts.items())
    return {"answers": sum(counts.values()), "tokens": tokens}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
