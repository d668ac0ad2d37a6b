"""Trainings that differ in their seed alone, gathered: means and spreads of everything that is measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from lesion.labs.recall.measurement import FOUR, MARGINS

NUMBERS = (*FOUR, "noisy_loss")
_LEVEL = 0.95


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation, lowest and highest of a few numbers, and Student's interval for the mean.

    `deviation`, `low` and `high` are None of a single number: it says nothing about how others would lie.
    """
    count = len(values)
    mean = math.fsum(values) / count
    found: dict[str, Any] = {"mean": mean, "deviation": None, "low": None, "high": None}
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * deviation / math.sqrt(count)
        found |= {"deviation": deviation, "low": mean - half, "high": mean + half}
    return {**found, "least": min(values), "most": max(values)}


def groups(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each recipe but for its seed, in the order of the summaries.

    Each holds `recipe` (without seed), `seeds`, `full` and `truncated` (numbers as `spread`; random projections are
    first averaged over their draws), and `phases` (mean, deviation, lowest and highest over those seeds in which the
    phase came, with `came`, and `untrained`: the seeds in which a margin was positive before training, not among them).
    A row of a top or bottom truncation has `beyond`: by how much each number differs from what a random projection of
    the same rank leaves of the same seed's model.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        recipe = {key: value for key, value in summary["recipe"].items() if key != "seed"}
        found.setdefault(json.dumps(recipe, sort_keys=True), []).append(summary)
    return [_group(json.loads(key), of_recipe) for key, of_recipe in found.items()]


def _group(recipe: dict[str, Any], summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [_averaged(summary["truncated"]) for summary in summaries]
    truncated = []
    for key in rows[0]:
        of_key = [row[key] for row in rows]
        row = dict(zip(("matrix", "keep", "rank", "side", "control"), key, strict=True))
        row |= {name: spread([values[name] for values in of_key]) for name in NUMBERS}
        random = (*key[:3], None, "random")
        if row["control"] is None and all(random in of_seed for of_seed in rows):
            row["beyond"] = {
                name: spread([of_seed[key][name] - of_seed[random][name] for of_seed in rows]) for name in NUMBERS
            }
        truncated.append(row)
    return {
        "recipe": recipe,
        "seeds": [summary["recipe"]["seed"] for summary in summaries],
        "full": {name: spread([summary["full"][name] for summary in summaries]) for name in NUMBERS},
        "truncated": truncated,
        "phases": {
            **{name: _margin(name, [summary["phases"] for summary in summaries]) for name in MARGINS},
            "attention": _phase([summary["phases"]["attention"] for summary in summaries]),
        },
    }


def _averaged(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Rows by matrix, keep, rank, side and control; draws of a random projection are averaged."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("matrix", "keep", "rank", "side", "control"))
        found.setdefault(key, []).append(row)
    return {
        key: {name: math.fsum(row[name] for row in of_key) / len(of_key) for name in NUMBERS}
        for key, of_key in found.items()
    }


def _margin(name: str, phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    already = [name in of_seed.get("untrained", ()) for of_seed in phases]
    steps = [None if known else of_seed["margins"][name] for known, of_seed in zip(already, phases, strict=True)]
    return {**_phase(steps), "untrained": sum(already)}


def _phase(steps: Sequence[int | None]) -> dict[str, Any]:
    came = [float(step) for step in steps if step is not None]
    # No interval: Student's would reach below the first step.
    told = {key: value for key, value in spread(came).items() if key not in ("low", "high")} if came else {}
    return {"came": len(came), "of": len(steps), **told}
