"""From stored answers to the numbers of a study: accuracies, paired drops, tests, and what is critical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.core.rates import loops, rates
from lesion.core.values import Estimate
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
    smallest_loss,
)
from lesion.statistics.paired import holm, mcnemar_exact, paired_drop, wilson
from lesion.studies.ablation.result import (
    AblationSummary,
    AtShare,
    Cell,
    ModelResult,
    Scores,
    Sensitivity,
    TaskResult,
)
from lesion.studies.ablation.screen_summary import screened
from lesion.studies.ablation.screening import no_screen
from lesion.studies.ablation.stopped_summary import replayed, stopped_task
from lesion.studies.ablation.study import Study


def summarise(
    study: Study, plan: Mapping[str, Sequence[Scale]], answers: pd.DataFrame, items: pd.DataFrame
) -> AblationSummary:
    """The numbers of a study without those of its families: what is known of every edit that has all its answers.

    An edit that is still missing answers is left out and named in the task's `planned`; a task without a complete
    baseline is left out with a note. A task that is scored by log-probability has a note that its accuracy says little.

    Args:
        study: what is evaluated.
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
            ids = list(items["item"][items["task"] == choice.name])
            of_task = of_model[of_model["task"] == choice.name]
            if stopping is None:
                result = _task(study, choice.name, ids, of_task, edits)
                begun = "all items"
            else:
                result = stopped_task(study, choice.name, of_task, edits, stopping)
                begun = "the items of the first round"
            if result is None:
                notes.append(f"{model} has not answered {begun} of {choice.name} without an edit yet.")
                continue
            if study.screen:
                screen = screened(of_model, ids, result, level=study.level, seed=study.seed)
                result = result.model_copy(update={"screen": screen})
                unscreened |= {choice.name: None} if any(map(len, of_task["scores"])) else {}
            tasks.append(result)
            notes += _nonfinite(model, choice.name, of_task, edits)
            notes += _unreachable(model, result)
            if _scored(of_task):
                scored[choice.name] = None
        models.append(ModelResult(model=model, tasks=tasks))
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
    return AblationSummary(
        version=version("lesion"),
        engine="; ".join(filter(None, engines)),
        approximate=loops(study.decoding.stop_loops).get("approximate"),
        study=study,
        models=models,
        notes=notes,
    )


def _task(
    study: Study, task: str, ids: Sequence[str], answers: pd.DataFrame, edits: Sequence[Scale]
) -> TaskResult | None:
    by_edit = {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}

    def complete(edit: str) -> pd.DataFrame | None:
        frame = by_edit.get(edit)
        return frame.loc[list(ids)] if frame is not None and set(ids) <= set(frame.index) else None

    baseline = complete(str(BASELINE))
    if baseline is None or not ids:
        return None
    families: dict[tuple[str, float], list[Scale]] = {}
    for edit in edits:
        families.setdefault((edit.unit, edit.factor), []).append(edit)
    cells: dict[Scale, Cell] = {}
    sensitivity = []
    for family in families.values():
        answered = {edit: frame for edit in family if (frame := complete(str(edit))) is not None}
        counts = {edit: pairs(_right(baseline), _right(frame)) for edit, frame in answered.items()}
        # Edits that are still missing answers count as tests too: the correction is that of the finished study.
        missing = len(family) - len(counts)
        cells |= _cells(baseline, answered, counts, missing, study.level)
        if counts:
            sensitivity.append(_sensitivity(int(_right(baseline).sum()), counts, missing))
    return TaskResult(
        task=task,
        items=len(ids),
        baseline=Scores(**_scores(baseline, study.level)),
        cells=[cells[edit] for edit in edits if edit in cells],
        planned=sorted({edit.layer for edit in edits}),
        sensitivity=sensitivity,
    )


def _cells(
    baseline: pd.DataFrame,
    answered: Mapping[Scale, pd.DataFrame],
    counts: Mapping[Scale, Pairs],
    missing: int,
    level: float,
) -> dict[Scale, Cell]:
    """The cells of one unit and factor, with p-values corrected over them and the `missing` ones."""
    p = [mcnemar_exact(each.lost, each.won) for each in counts.values()]
    p_loss = [p_critical(each) for each in counts.values()]
    corrected, loss_corrected = (holm([*values, *[1.0] * missing]) for values in (p, p_loss))
    cells = {}
    for place, (edit, frame) in enumerate(answered.items()):
        drop = paired_drop(_right(baseline), _right(frame), level)
        cells[edit] = Cell(
            layer=edit.layer,
            unit=edit.unit,
            factor=edit.factor,
            **_scores(frame, level),
            drop=Estimate(value=drop.drop, low=drop.low, high=drop.high, p=p[place], p_corrected=corrected[place]),
            p_critical=p_loss[place],
            p_critical_corrected=loss_corrected[place],
            critical=critical(loss_corrected[place]),
        )
    return cells


def _sensitivity(right: int, counts: Mapping[Scale, Pairs], missing: int) -> Sensitivity:
    """What the rule can find in the cells of one unit and factor, and what it would find at other shares."""
    tests = len(counts) + missing
    edit = next(iter(counts))
    return Sensitivity(
        unit=edit.unit,
        factor=edit.factor,
        tests=tests,
        right=right,
        fewest_right=fewest_right(tests),
        power=POWER,
        smallest_loss=smallest_loss(right, tests),
        shares=[
            AtShare(share=share, critical=[edit.layer for edit, called in zip(counts, calls, strict=True) if called])
            for share in SHARES
            for calls in [critical_cells(list(counts.values()), missing, share)]
        ],
    )


def _scored(answers: pd.DataFrame) -> bool:
    """Whether these are log-probabilities of one text each, of which none is right or wrong."""
    if "scores" not in answers:
        return False
    return any(len(scores) == 1 and not text for scores, text in zip(answers["scores"], answers["text"], strict=True))


def _right(frame: pd.DataFrame) -> NDArray[np.bool_]:
    return frame["correct"].to_numpy(dtype=bool)


def _scores(frame: pd.DataFrame, level: float) -> dict[str, Any]:
    """The fields of `Scores`: accuracy with Wilson's interval, and rates."""
    right = _right(frame)
    low, high = wilson(int(right.sum()), len(right), level)
    accuracy = Estimate(value=float(right.mean()), low=low, high=high)
    return {"items": len(right), "accuracy": accuracy, **rates(frame)}


def _unreachable(model: str, result: TaskResult) -> list[str]:
    """A note where nothing can be critical for a task."""
    tests = max((each.tests for each in result.sensitivity), default=0)
    right = result.sensitivity[0].right if tests else 0
    note = out_of_reach(model, result.task, right, result.items, tests) if tests else None
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
