"""From stored answers to the numbers of an evaluation: drops, random controls, selectivity, and the chosen edit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.core.rates import rates
from lesion.edits.edit import BASELINE
from lesion.statistics.contrasts import beyond_random, difference_of_drops, perplexity, perplexity_ratio
from lesion.statistics.paired import Drop, holm, mcnemar_exact, paired_drop, wilson

RULE = (
    "Of all edits, the one with the highest accuracy on the skill's validation items; of several, the one that costs"
    " the controls least there, then the factor nearest to 1, then the smallest share."
)


@dataclass(frozen=True)
class _Answers:
    """The complete answers of one edit to a task, in the order of the items."""

    right: NDArray[np.bool_]
    scores: NDArray[np.float64]
    choices: NDArray[np.int64]
    tokens: NDArray[np.int64]
    rates: Mapping[str, float]


def summarise(plan: Mapping[str, Any], answers: pd.DataFrame, items: pd.DataFrame) -> dict[str, Any]:
    """What `summary.json` holds under `evaluation`.

    An edit that is still missing answers to a task is left out there; a task without a complete baseline is left out
    with a note.

    Args:
        plan: what `plan.json` holds.
        answers: from `Store.answers`.
        items: from `Store.items`.
    """
    level = float(plan["level"])
    notes: list[str] = list(plan.get("notes", ()))
    tasks = []
    complete: dict[str, dict[str, _Answers]] = {}
    for task, kind in plan["tasks"].items():
        asked = list(items["item"][items["task"] == task])
        found = _complete(answers[answers["task"] == task], asked)
        if str(BASELINE) not in found:
            notes.append(f"{plan['model']} has not answered all items of {task} without an edit yet.")
            continue
        complete[task] = found
        role = None if plan["skill"] not in plan["tasks"] else "skill" if task == plan["skill"] else "control"
        chance = _chance(kind, found[str(BASELINE)])
        entry = {"task": task, "role": role, "kind": kind, "items": len(asked), "chance": chance}
        tasks.append({**entry, **(_score(plan, found, level) if kind == "score" else _accuracy(plan, found, level))})
    choice = _choice(plan, complete, level)
    if plan["validation"] is not None and choice is None and len(complete) == len(plan["tasks"]):
        notes.append(
            "No edit is chosen: that needs an edit answered in full and items of the skill on both sides of the choice."
        )
    return {
        "model": plan["model"],
        "dtype": plan.get("dtype"),
        "edits": [{key: value for key, value in entry.items() if key != "randoms"} for entry in plan["edits"]],
        "tasks": tasks,
        "selectivity": _selectivity(plan, complete, level),
        "choice": choice,
        "notes": notes,
    }


def _complete(answers: pd.DataFrame, asked: Sequence[str]) -> dict[str, _Answers]:
    found = {}
    for edit, frame in answers.groupby("edit", sort=False):
        by_item = frame.set_index("item")
        if not asked or not set(asked) <= set(by_item.index):
            continue
        rows = by_item.loc[list(asked)]
        found[str(edit)] = _Answers(
            right=rows["correct"].to_numpy(dtype=bool),
            scores=np.array([s[0] if len(s) else math.nan for s in rows["scores"]], dtype=np.float64),
            choices=np.array([len(s) for s in rows["scores"]], dtype=np.int64),
            tokens=rows["tokens"].to_numpy(dtype=np.int64),
            rates=rates(rows),
        )
    return found


def _chance(kind: str, baseline: _Answers) -> float | None:
    """The accuracy of guessing: mean of 1 / number of choices, 0 for an item with one alone, which is no choice (the
    continuations of lm-evaluation-harness); 0 where answers are generated, None for perplexity.
    """
    if kind == "score":
        return None
    if kind != "choose":
        return 0.0
    known = baseline.choices[baseline.choices > 0]
    return float(np.mean(np.where(known > 1, 1 / known, 0.0))) if len(known) else None


def _of(right: NDArray[np.bool_], level: float) -> dict[str, float]:
    low, high = wilson(int(right.sum()), len(right), level)
    return {"accuracy": float(right.mean()), "low": low, "high": high}


def _p(baseline: NDArray[np.bool_], right: NDArray[np.bool_]) -> float:
    return mcnemar_exact(int((baseline & ~right).sum()), int((~baseline & right).sum()))


def _accuracy(plan: Mapping[str, Any], found: Mapping[str, _Answers], level: float) -> dict[str, Any]:
    baseline = found[str(BASELINE)]
    cells = []
    for entry in plan["edits"]:
        if entry["edit"] not in found:
            continue
        edited = found[entry["edit"]]
        drop = paired_drop(baseline.right, edited.right, level)
        cells.append(
            {
                "edit": entry["edit"],
                **_of(edited.right, level),
                "drop": drop.drop,
                "drop_low": drop.low,
                "drop_high": drop.high,
                "p": _p(baseline.right, edited.right),
                "p_corrected": None,
                **edited.rates,
                "random": _random(entry, found, edited, baseline, level),
            }
        )
    # The random controls are no hypotheses of the study: what is corrected for is how many edits were tried. An edit
    # that is still missing answers counts too, so that the correction is that of the finished evaluation.
    tried = {entry["edit"] for entry in plan["edits"] if entry["random_of"] is None}
    own = [cell for cell in cells if cell["edit"] in tried]
    corrected = holm([*(cell["p"] for cell in own), *[1.0] * (len(tried) - len(own))])
    for cell, value in zip(own, corrected, strict=False):
        cell["p_corrected"] = value
    return {"baseline": {**_of(baseline.right, level), **baseline.rates}, "cells": cells}


def _random(
    entry: Mapping[str, Any], found: Mapping[str, _Answers], edited: _Answers, baseline: _Answers, level: float
) -> dict[str, Any] | None:
    drawn = [found[edit].right for edit in entry.get("randoms", ()) if edit in found]
    if not drawn:
        return None
    accuracies = [float(right.mean()) for right in drawn]
    beyond = beyond_random(edited.right, np.stack(drawn), level)
    return {
        "draws": len(drawn),
        "accuracy": float(np.mean(accuracies)),
        "lowest": min(accuracies),
        "highest": max(accuracies),
        "drop": float(baseline.right.mean() - np.mean(accuracies)),
        "beyond": beyond.value,
        "beyond_low": beyond.low,
        "beyond_high": beyond.high,
    }


def _score(plan: Mapping[str, Any], found: Mapping[str, _Answers], level: float) -> dict[str, Any]:
    baseline = found[str(BASELINE)]
    own = perplexity(baseline.scores, baseline.tokens, level)
    cells = []
    for entry in plan["edits"]:
        if entry["edit"] not in found:
            continue
        edited = found[entry["edit"]]
        value = perplexity(edited.scores, edited.tokens, level)
        ratio = perplexity_ratio(baseline.scores, edited.scores, baseline.tokens, level)
        drawn = [
            perplexity(found[edit].scores, found[edit].tokens, level).value
            for edit in entry.get("randoms", ())
            if edit in found
        ]
        cells.append(
            {
                "edit": entry["edit"],
                "perplexity": value.value,
                "low": value.low,
                "high": value.high,
                "ratio": ratio.value,
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
                "nonfinite": edited.rates["nonfinite"],
                "random": {
                    "draws": len(drawn),
                    "perplexity": float(np.mean(drawn)),
                    "lowest": min(drawn),
                    "highest": max(drawn),
                }
                if drawn
                else None,
            }
        )
    tokens = int(baseline.tokens.sum())
    return {
        "baseline": {"perplexity": own.value, "low": own.low, "high": own.high, "tokens": tokens},
        "cells": cells,
    }


def _drop(found: Mapping[str, _Answers], edit: str, level: float, part: slice = slice(None)) -> Drop:
    return paired_drop(found[str(BASELINE)].right[part], found[edit].right[part], level)


def _selectivity(
    plan: Mapping[str, Any], complete: Mapping[str, Mapping[str, _Answers]], level: float
) -> list[dict[str, Any]]:
    """The drop on the skill minus the drop on every control, for every edit and random control."""
    skill = plan["skill"]
    if skill not in complete or plan["tasks"][skill] == "score":
        return []
    found = []
    for control, answers in complete.items():
        if control == skill or plan["tasks"][control] == "score":
            continue
        for entry in plan["edits"]:
            edit = entry["edit"]
            if edit in answers and edit in complete[skill]:
                contrast = difference_of_drops(_drop(complete[skill], edit, level), _drop(answers, edit, level))
                found.append(
                    {
                        "edit": edit,
                        "skill": skill,
                        "control": control,
                        "difference": contrast.value,
                        "low": contrast.low,
                        "high": contrast.high,
                    }
                )
    return found


def _choice(
    plan: Mapping[str, Any], complete: Mapping[str, Mapping[str, _Answers]], level: float
) -> dict[str, Any] | None:
    """The edit that the validation items choose, and what the test items say of it."""
    skill, share = plan["skill"], plan["validation"]
    if share is None or skill not in complete or plan["tasks"][skill] == "score":
        return None
    there = {task: len(found[str(BASELINE)].right) for task, found in complete.items()}
    # One item is not two parts.
    controls = [t for t in complete if t != skill and plan["tasks"][t] != "score" and there[t] > 1]
    # Items stand in seeded order, so that the first of them are a random part. Neither part is empty.
    ahead = {task: min(math.ceil(share * there[task]), there[task] - 1) for task in (skill, *controls)}
    candidates = [
        entry
        for entry in plan["edits"]
        if entry["random_of"] is None and all(entry["edit"] in complete[task] for task in (skill, *controls))
    ]
    if not candidates or there[skill] < 2:
        return None

    def validation(entry: Mapping[str, Any], task: str) -> Fraction:
        # Exact, so that a tie is one whatever the controls' numbers of items.
        return Fraction(int(complete[task][entry["edit"]].right[: ahead[task]].sum()), ahead[task])

    def order(entry: Mapping[str, Any]) -> tuple[Fraction, Fraction, float, float]:
        kept = sum((validation(entry, task) for task in controls), Fraction(0))
        return validation(entry, skill), kept, -abs(entry["factor"] - 1), -entry["share"]

    chosen = max(candidates, key=order)
    test = slice(ahead[skill], None)
    baseline, edited = (complete[skill][edit].right for edit in (str(BASELINE), chosen["edit"]))
    drop = _drop(complete[skill], chosen["edit"], level, test)
    drawn = [complete[skill][edit].right[test] for edit in chosen.get("randoms", ()) if edit in complete[skill]]
    beyond = beyond_random(edited[test], np.stack(drawn), level) if drawn else None
    return {
        "skill": skill,
        "validation_items": ahead[skill],
        "test_items": len(baseline) - ahead[skill],
        "candidates": [
            {
                "edit": entry["edit"],
                "accuracy": float(validation(entry, skill)),
                "mean_control": float(np.mean([float(validation(entry, task)) for task in controls]))
                if controls
                else None,
            }
            for entry in candidates
        ],
        "chosen": chosen["edit"],
        "baseline_validation": float(baseline[: ahead[skill]].mean()),
        "accuracy_validation": float(edited[: ahead[skill]].mean()),
        "baseline_test": float(baseline[test].mean()),
        "accuracy_test": float(edited[test].mean()),
        # 0.0 − 0.0 is 0.0, and −0.0 would be told as a loss of nothing.
        "gain": 0.0 - drop.drop,
        "gain_low": 0.0 - drop.high,
        "gain_high": 0.0 - drop.low,
        "p": _p(baseline[test], edited[test]),
        "rule": RULE,
        "random": None
        if beyond is None
        else {
            "draws": len(drawn),
            "accuracy": float(np.mean(drawn)),
            "gain_beyond": 0.0 - beyond.value,
            "gain_beyond_low": 0.0 - beyond.high,
            "gain_beyond_high": 0.0 - beyond.low,
        },
        "controls": [
            {"task": task, "drop": one.drop, "drop_low": one.low, "drop_high": one.high}
            for task in controls
            if (one := _drop(complete[task], chosen["edit"], level, slice(ahead[task], None)))
        ],
    }
