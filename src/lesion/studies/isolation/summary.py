"""From stored answers to the numbers of an evaluation: drops, random controls, selectivity, and the chosen edit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.core.rates import rates
from lesion.core.values import Estimate
from lesion.edits.edit import BASELINE
from lesion.statistics.contrasts import beyond_random, difference_of_drops, perplexity, perplexity_ratio
from lesion.statistics.paired import Drop, holm, mcnemar_exact, paired_drop, wilson
from lesion.studies.isolation.evaluation import (
    Baseline,
    Candidate,
    Choice,
    ControlDrop,
    EditedModel,
    EvaluatedTask,
    Evaluation,
    RandomControls,
    RandomGain,
    Rates,
    Selectivity,
    TaskUnderEdit,
)
from lesion.studies.isolation.plan import Plan

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
    rates: Rates


ByEdit = Mapping[str, _Answers]


def summarise(plan: Plan, answers: pd.DataFrame, items: pd.DataFrame) -> Evaluation:
    """The numbers of an evaluation, as far as it has got.

    An edit that is still missing answers to a task is left out there; a task without a complete baseline is left out
    with a note.

    Args:
        plan: edits and tasks.
        answers: from `Store.answers`.
        items: from `Store.items`.
    """
    notes = list(plan.notes)
    tasks = []
    complete: dict[str, ByEdit] = {}
    for task, kind in plan.tasks.items():
        drawn = list(items["item"][items["task"] == task])
        by_edit = _complete(answers[answers["task"] == task], drawn)
        if str(BASELINE) not in by_edit:
            notes.append(f"{plan.model} has not answered all items of {task} without an edit yet.")
            continue
        complete[task] = by_edit
        baseline, cells = (_score if kind == "score" else _accuracy)(plan, by_edit)
        tasks.append(
            EvaluatedTask(
                name=task,
                role=None if plan.skill not in plan.tasks else "skill" if task == plan.skill else "control",
                kind=kind,
                items=len(drawn),
                chance=_chance(kind, by_edit[str(BASELINE)]),
                baseline=baseline,
                cells=tuple(cells),
            )
        )
    choice = _choice(plan, complete)
    if plan.validation is not None and choice is None and len(complete) == len(plan.tasks):
        notes.append(
            "No edit is chosen: that needs an edit answered in full and items of the skill on both sides of the choice."
        )
    return Evaluation(
        model=plan.model,
        dtype=plan.dtype,
        edits=plan.edits,
        tasks=tuple(tasks),
        selectivity=tuple(_selectivity(plan, complete)),
        choice=choice,
        notes=tuple(notes),
    )


def _complete(answers: pd.DataFrame, items: Sequence[str]) -> ByEdit:
    complete = {}
    for edit, frame in answers.groupby("edit", sort=False):
        by_item = frame.set_index("item")
        if not items or not set(items) <= set(by_item.index):
            continue
        rows = by_item.loc[list(items)]
        complete[str(edit)] = _Answers(
            right=rows["correct"].to_numpy(dtype=bool),
            scores=np.array([s[0] if len(s) else math.nan for s in rows["scores"]], dtype=np.float64),
            choices=np.array([len(s) for s in rows["scores"]], dtype=np.int64),
            tokens=rows["tokens"].to_numpy(dtype=np.int64),
            rates=Rates(**rates(rows)),
        )
    return complete


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


def _estimate(right: NDArray[np.bool_], level: float) -> Estimate:
    low, high = wilson(int(right.sum()), len(right), level)
    return Estimate(value=float(right.mean()), low=low, high=high)


def _p(baseline: NDArray[np.bool_], right: NDArray[np.bool_]) -> float:
    return mcnemar_exact(int((baseline & ~right).sum()), int((~baseline & right).sum()))


def _accuracy(plan: Plan, by_edit: ByEdit) -> tuple[Baseline, list[TaskUnderEdit]]:
    baseline = by_edit[str(BASELINE)]
    answered = [edit for edit in plan.edits if edit.edit in by_edit]
    tests = {edit.edit: _p(baseline.right, by_edit[edit.edit].right) for edit in answered}
    # The random controls are no hypotheses of the study: what is corrected for is how many edits were tried. An edit
    # that is still missing answers counts too, so that the correction is that of the finished evaluation.
    own = [edit.edit for edit in answered if edit.random_of is None]
    every = holm([*(tests[edit] for edit in own), *[1.0] * (len(plan.tried) - len(own))])
    corrected = dict(zip(own, every, strict=False))
    cells = []
    for edit in answered:
        edited = by_edit[edit.edit]
        drop = paired_drop(baseline.right, edited.right, plan.level)
        cells.append(
            TaskUnderEdit(
                edit=edit.edit,
                result=_estimate(edited.right, plan.level),
                change=Estimate(
                    value=drop.drop,
                    low=drop.low,
                    high=drop.high,
                    p=tests[edit.edit],
                    p_corrected=corrected.get(edit.edit),
                ),
                rates=edited.rates,
                random=_random(edit, by_edit, plan.level),
            )
        )
    return Baseline(result=_estimate(baseline.right, plan.level), rates=baseline.rates), cells


def _random(edit: EditedModel, by_edit: ByEdit, level: float) -> RandomControls | None:
    drawn = [by_edit[control].right for control in edit.randoms if control in by_edit]
    if not drawn:
        return None
    accuracies = [float(right.mean()) for right in drawn]
    beyond = beyond_random(by_edit[edit.edit].right, np.stack(drawn), level)
    return RandomControls(
        draws=len(drawn),
        mean=float(np.mean(accuracies)),
        lowest=min(accuracies),
        highest=max(accuracies),
        drop=float(by_edit[str(BASELINE)].right.mean() - np.mean(accuracies)),
        beyond=Estimate(value=beyond.value, low=beyond.low, high=beyond.high),
    )


def _score(plan: Plan, by_edit: ByEdit) -> tuple[Baseline, list[TaskUnderEdit]]:
    baseline, level = by_edit[str(BASELINE)], plan.level
    own = perplexity(baseline.scores, baseline.tokens, level)
    cells = []
    for edit in plan.edits:
        if edit.edit not in by_edit:
            continue
        edited = by_edit[edit.edit]
        value = perplexity(edited.scores, edited.tokens, level)
        ratio = perplexity_ratio(baseline.scores, edited.scores, baseline.tokens, level)
        drawn = [
            perplexity(by_edit[control].scores, by_edit[control].tokens, level).value
            for control in edit.randoms
            if control in by_edit
        ]
        random = None
        if drawn:
            random = RandomControls(draws=len(drawn), mean=float(np.mean(drawn)), lowest=min(drawn), highest=max(drawn))
        cells.append(
            TaskUnderEdit(
                edit=edit.edit,
                result=Estimate(value=value.value, low=value.low, high=value.high),
                change=Estimate(value=ratio.value, low=ratio.low, high=ratio.high),
                rates=Rates(nonfinite=edited.rates.nonfinite),
                random=random,
            )
        )
    result = Estimate(value=own.value, low=own.low, high=own.high)
    return Baseline(result=result, tokens=int(baseline.tokens.sum())), cells


def _drop(by_edit: ByEdit, edit: str, level: float, part: slice = slice(None)) -> Drop:
    return paired_drop(by_edit[str(BASELINE)].right[part], by_edit[edit].right[part], level)


def _selectivity(plan: Plan, complete: Mapping[str, ByEdit]) -> list[Selectivity]:
    """The drop on the skill minus the drop on every control, for every edit and random control."""
    skill = plan.skill
    if skill is None or skill not in complete or plan.tasks[skill] == "score":
        return []
    contrasts = []
    for control, answers in complete.items():
        if control == skill or plan.tasks[control] == "score":
            continue
        for edit in (edit.edit for edit in plan.edits):
            if edit in answers and edit in complete[skill]:
                contrast = difference_of_drops(
                    _drop(complete[skill], edit, plan.level), _drop(answers, edit, plan.level)
                )
                difference = Estimate(value=contrast.value, low=contrast.low, high=contrast.high)
                contrasts.append(Selectivity(edit=edit, skill=skill, control=control, difference=difference))
    return contrasts


def _choice(plan: Plan, complete: Mapping[str, ByEdit]) -> Choice | None:
    """The edit that the validation items choose, and what the test items say of it."""
    skill, share, level = plan.skill, plan.validation, plan.level
    if share is None or skill is None or skill not in complete or plan.tasks[skill] == "score":
        return None
    there = {task: len(by_edit[str(BASELINE)].right) for task, by_edit in complete.items()}
    # One item is not two parts.
    controls = [t for t in complete if t != skill and plan.tasks[t] != "score" and there[t] > 1]
    # Items stand in seeded order, so that the first of them are a random part. Neither part is empty.
    ahead = {task: min(math.ceil(share * there[task]), there[task] - 1) for task in (skill, *controls)}
    candidates = [edit for edit in plan.tried if all(edit.edit in complete[task] for task in (skill, *controls))]
    if not candidates or there[skill] < 2:
        return None

    def validation(edit: EditedModel, task: str) -> Fraction:
        # Exact, so that a tie is one whatever the controls' numbers of items.
        return Fraction(int(complete[task][edit.edit].right[: ahead[task]].sum()), ahead[task])

    def order(edit: EditedModel) -> tuple[Fraction, Fraction, float, float]:
        kept = sum((validation(edit, task) for task in controls), Fraction(0))
        return validation(edit, skill), kept, -abs(edit.factor - 1), -edit.share

    chosen = max(candidates, key=order)
    test = slice(ahead[skill], None)
    baseline, edited = (complete[skill][edit].right for edit in (str(BASELINE), chosen.edit))
    drop = _drop(complete[skill], chosen.edit, level, test)
    drawn = [complete[skill][control].right[test] for control in chosen.randoms if control in complete[skill]]
    drops = {task: _drop(complete[task], chosen.edit, level, slice(ahead[task], None)) for task in controls}
    return Choice(
        skill=skill,
        rule=RULE,
        validation_items=ahead[skill],
        test_items=len(baseline) - ahead[skill],
        candidates=tuple(
            Candidate(
                edit=edit.edit,
                accuracy=float(validation(edit, skill)),
                mean_control=float(np.mean([float(validation(edit, task)) for task in controls])) if controls else None,
            )
            for edit in candidates
        ),
        chosen=chosen.edit,
        baseline_validation=float(baseline[: ahead[skill]].mean()),
        accuracy_validation=float(edited[: ahead[skill]].mean()),
        baseline_test=float(baseline[test].mean()),
        accuracy_test=float(edited[test].mean()),
        gain=_gain(drop.drop, drop.low, drop.high, _p(baseline[test], edited[test])),
        random=_random_gain(edited[test], drawn, level),
        controls=tuple(
            ControlDrop(task=task, drop=Estimate(value=drop.drop, low=drop.low, high=drop.high))
            for task, drop in drops.items()
        ),
    )


def _random_gain(edited: NDArray[np.bool_], drawn: Sequence[NDArray[np.bool_]], level: float) -> RandomGain | None:
    if not drawn:
        return None
    beyond = beyond_random(edited, np.stack(drawn), level)
    gain = _gain(beyond.value, beyond.low, beyond.high)
    return RandomGain(draws=len(drawn), accuracy=float(np.mean(drawn)), gain_beyond=gain)


def _gain(drop: float, low: float, high: float, p: float | None = None) -> Estimate:
    """A drop as a gain; 0.0 − 0.0 is 0.0, and −0.0 would read as a loss of nothing."""
    return Estimate(value=0.0 - drop, low=0.0 - high, high=0.0 - low, p=p)
