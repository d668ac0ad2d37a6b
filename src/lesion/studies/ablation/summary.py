"""From stored answers to the numbers of a study: accuracies, paired drops, tests, and what is critical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.core.rates import loops, rates
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.critical import (
    POWER,
    SHARES,
    Pairs,
    critical,
    critical_cells,
    fewest_right,
    out_of_reach,
    p_critical,
    pairs,
    rule,
    smallest_loss,
)
from lesion.statistics.paired import holm, mcnemar_exact, paired_drop, wilson
from lesion.studies.ablation.screen_summary import screened
from lesion.studies.ablation.screening import no_screen
from lesion.studies.ablation.stopped_summary import replayed, stopped_rule, stopped_task
from lesion.studies.ablation.study import Study


def summarise(
    study: Study, plan: Mapping[str, Sequence[Scale]], answers: pd.DataFrame, items: pd.DataFrame
) -> dict[str, Any]:
    """What `summary.json` holds: per model and task the baseline and every edit that has all its answers.

    An edit that is still missing answers is left out and named in the task's `planned`; a task without a complete
    baseline is left out with a note. A task that is scored by log-probability has a note that its accuracy says little.
    Every layer says how many `items` it was asked, and what was `decided` of it: null in a full table; where asking
    stopped (`study.stop`) see `summary_stopped`. Of a full table, `p` asks whether the edit changes anything and
    `p_critical` whether it takes more than half of the accuracy, each with its correction over the layers;
    `sensitivity` says per unit and factor how large a loss the rule can find, and which layers are critical at other
    shares. With `study.screen`, a task has a section `screen` (`summary_screen`).

    Args:
        study: what was asked.
        plan: the edits of each model, by the model's name.
        answers: from `Store.answers`.
        items: from `Store.items`.
    """
    notes: list[str] = []
    scored: dict[str, None] = {}
    unscreened: dict[str, None] = {}
    models = []
    for model, edits in plan.items():
        tasks = []
        of_model = answers[answers["model_name"] == model]
        stopping = replayed(study, edits, items, of_model) if study.stop is not None else None
        if stopping is not None and stopping.answers:
            notes.append(f"{model}: {stopping.told()}")
        for choice in study.tasks:
            asked = list(items["item"][items["task"] == choice.name])
            of_task = of_model[of_model["task"] == choice.name]
            if stopping is None:
                entry = _task(study, choice.name, asked, of_task, edits)
                begun = "all items"
            else:
                entry = stopped_task(study, choice.name, of_task, edits, stopping)
                begun = "the items of the first round"
            if entry is None:
                notes.append(f"{model} has not answered {begun} of {choice.name} without an edit yet.")
                continue
            tasks.append(entry)
            if study.screen:
                entry["screen"] = screened(choice.name, of_model, asked, entry, level=study.level, seed=study.seed)
                unscreened |= {choice.name: None} if any(map(len, of_task["scores"])) else {}
            notes += _nonfinite(model, choice.name, of_task, edits)
            notes += _unreachable(model, entry)
            if _scored(of_task):
                scored[choice.name] = None
        models.append({"model": model, "tasks": tasks})
    notes += [
        f"{task} is scored, not judged: the accuracy says only how often its log-probability was a finite number. "
        f"`lesion evaluate` compares log-probabilities."
        for task in scored
    ]
    notes += map(no_screen, unscreened)
    engines = list(dict.fromkeys(answers["engine"])) if "engine" in answers else []
    if len(engines) > 1:
        notes.append(
            f"Answers were given by more than one engine: {'; '.join(each or 'not recorded' for each in engines)}."
        )
    return {
        "models": models,
        "engine": "; ".join(filter(None, engines)),
        "study": {
            "name": study.name,
            "title": study.title,
            "seed": study.seed,
            "level": study.level,
            "rule": rule() if study.stop is None else stopped_rule(study.stop),
            **({} if study.stop is None else {"stop": study.stop.model_dump()}),
            **loops(study.decoding.stop_loops),
            "version": version("lesion"),
        },
        "notes": notes,
    }


def _task(
    study: Study, task: str, asked: Sequence[str], answers: pd.DataFrame, edits: Sequence[Scale]
) -> dict[str, Any] | None:
    by_edit = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}

    def complete(edit: str) -> pd.DataFrame | None:
        frame = by_edit.get(edit)
        return frame.loc[list(asked)] if frame is not None and set(asked) <= set(frame.index) else None

    baseline = complete(str(BASELINE))
    if baseline is None or not asked:
        return None
    right = _right(baseline)
    families: dict[tuple[str, float], list[Scale]] = {}
    for edit in edits:
        families.setdefault((edit.unit, edit.factor), []).append(edit)
    entries: dict[Scale, dict[str, Any]] = {}
    sensitivity = []
    for (unit, factor), family in families.items():
        answered = {edit: frame for edit in family if (frame := complete(str(edit))) is not None}
        found = {edit: pairs(right, _right(frame)) for edit, frame in answered.items()}
        tested = [_edit(edit, right, answered[edit], counts, study.level) for edit, counts in found.items()]
        # Edits that are still missing answers count as tests too: the correction is that of the finished study.
        missing = len(family) - len(tested)
        for name in ("p", "p_critical"):
            corrected = holm([*(entry[name] for entry in tested), *[1.0] * missing])
            for entry, p in zip(tested, corrected, strict=False):
                entry[f"{name}_corrected"] = p
        for entry in tested:
            entry["critical"] = critical(entry["p_critical_corrected"])
            entry["decided"] = None
        entries |= zip(found, tested, strict=True)
        if tested:
            sensitivity.append({"unit": unit, "factor": factor, **_sensitivity(int(right.sum()), found, missing)})
    return {
        "task": task,
        "items": len(asked),
        "baseline": _accuracy(right, baseline, study.level),
        "layers": [entries[edit] for edit in edits if edit in entries],
        "planned": sorted({edit.layer for edit in edits}),
        "sensitivity": sensitivity,
    }


def _sensitivity(right: int, found: Mapping[Scale, Pairs], missing: int) -> dict[str, Any]:
    """What the rule can find in one family of cells, and what it finds were the share another."""
    tests = len(found) + missing
    at = {share: critical_cells(list(found.values()), missing, share) for share in SHARES}
    return {
        "tests": tests,
        "right": right,
        "fewest_right": fewest_right(tests),
        "power": POWER,
        "smallest_loss": smallest_loss(right, tests),
        "shares": [
            {"share": share, "critical": [edit.layer for edit, called in zip(found, calls, strict=True) if called]}
            for share, calls in at.items()
        ],
    }


def _scored(answers: pd.DataFrame) -> bool:
    """Whether these are log-probabilities of one text each, of which none is right or wrong."""
    if "scores" not in answers:
        return False
    return any(len(scores) == 1 and not text for scores, text in zip(answers["scores"], answers["text"], strict=True))


def _right(frame: pd.DataFrame) -> NDArray[np.bool_]:
    return frame["correct"].to_numpy(dtype=bool)


def _accuracy(right: NDArray[np.bool_], frame: pd.DataFrame, level: float) -> dict[str, Any]:
    low, high = wilson(int(right.sum()), len(right), level)
    return {
        "items": len(right),
        "accuracy": float(right.mean()),
        "low": low,
        "high": high,
        **rates(frame),
    }


def _edit(
    edit: Scale, baseline: NDArray[np.bool_], edited: pd.DataFrame, counts: Pairs, level: float
) -> dict[str, Any]:
    right = _right(edited)
    drop = paired_drop(baseline, right, level)
    return {
        "layer": edit.layer,
        "unit": edit.unit,
        "factor": edit.factor,
        **_accuracy(right, edited, level),
        "drop": drop.drop,
        "drop_low": drop.low,
        "drop_high": drop.high,
        "p": mcnemar_exact(counts.lost, counts.won),
        "p_critical": p_critical(counts),
    }


def _unreachable(model: str, entry: Mapping[str, Any]) -> list[str]:
    """A note where nothing can be critical for a task."""
    tests = max((family["tests"] for family in entry.get("sensitivity", ())), default=0)
    right = round(entry["baseline"]["accuracy"] * entry["items"])
    note = out_of_reach(model, entry["task"], right, entry["items"], tests) if tests else None
    return [] if note is None else [note]


def _nonfinite(model: str, task: str, answers: pd.DataFrame, edits: Sequence[Scale]) -> list[str]:
    broken = answers["edit"][answers["finish"] == "nonfinite"].value_counts()
    planned = [str(BASELINE), *map(str, edits)]
    return [
        f"{model}, {task}, edit {edit}: {broken[edit]} answers were broken off because logits were not finite; they"
        " count as wrong."
        for edit in planned
        if edit in broken
    ]
