"""From stored answers to the numbers of a study: accuracies, paired drops, tests, and what is critical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.edits.edit import BASELINE, Scale
from lesion.studies.rates import loops, rates
from lesion.studies.screening import no_screen
from lesion.studies.statistics import critical, holm, mcnemar_exact, paired_drop, rule, wilson
from lesion.studies.study import Study
from lesion.studies.summary_screen import screened
from lesion.studies.summary_stopped import replayed, stopped_rule, stopped_task


def summarise(
    study: Study, plan: Mapping[str, Sequence[Scale]], answers: pd.DataFrame, items: pd.DataFrame
) -> dict[str, Any]:
    """What `summary.json` holds: per model and task the baseline and every edit that has all its answers.

    An edit that is still missing answers is left out and named in the task's `planned`; a task without a complete
    baseline is left out with a note. A task that is scored by log-probability has a note that its accuracy says little.
    Every layer says how many `items` it was asked, and what was `decided` of it: null in a full table; where asking
    stopped (`study.stop`) see `summary_stopped`. With `study.screen`, a task has a section `screen` (`summary_screen`).

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
            "rule": rule(study.level) if study.stop is None else stopped_rule(study.stop),
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
    entries = []
    for edit in edits:
        edited = complete(str(edit))
        if edited is not None:
            entries.append(_edit(edit, right, edited, study.level))
    families: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for entry in entries:
        families.setdefault((entry["unit"], entry["factor"]), []).append(entry)
    for (unit, factor), family in families.items():
        # Edits that are still missing answers count as tests too: the correction is that of the finished study.
        missing = sum((edit.unit, edit.factor) == (unit, factor) for edit in edits) - len(family)
        for entry, corrected in zip(family, holm([*(e["p"] for e in family), *[1.0] * missing]), strict=False):
            entry["p_corrected"] = corrected
            entry["critical"] = critical(float(right.mean()), entry["drop_low"], corrected)
            entry["decided"] = None
    return {
        "task": task,
        "items": len(asked),
        "baseline": _accuracy(right, baseline, study.level),
        "layers": entries,
        "planned": sorted({edit.layer for edit in edits}),
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


def _edit(edit: Scale, baseline: NDArray[np.bool_], edited: pd.DataFrame, level: float) -> dict[str, Any]:
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
        "p": mcnemar_exact(int((baseline & ~right).sum()), int((~baseline & right).sum())),
    }


def _nonfinite(model: str, task: str, answers: pd.DataFrame, edits: Sequence[Scale]) -> list[str]:
    broken = answers["edit"][answers["finish"] == "nonfinite"].value_counts()
    planned = [str(BASELINE), *map(str, edits)]
    return [
        f"{model}, {task}, edit {edit}: {broken[edit]} answers were broken off because logits were not finite; they"
        " count as wrong."
        for edit in planned
        if edit in broken
    ]
