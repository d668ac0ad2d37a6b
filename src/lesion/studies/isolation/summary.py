"""From stored answers to the numbers of an evaluation, and an isolation or evaluation read from its folder."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from lesion.core.apart import chosen_and_tested
from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.core.rates import approximate, complete, first_scores, rates, verdicts
from lesion.core.store import Store
from lesion.core.values import read_summary, summary_kind
from lesion.edits.edit import BASELINE, MatchedIn
from lesion.errors import LesionError
from lesion.outputs import kind_of
from lesion.report.values import Estimate
from lesion.statistics.contrasts import beyond_random, difference_of_drops, perplexity, perplexity_ratio
from lesion.statistics.paired import Contrast, accuracy, holm, paired_drop, paired_p
from lesion.studies.isolation.evaluation import (
    Baseline,
    BoostRival,
    Candidate,
    ChosenEdit,
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
from lesion.studies.isolation.plan import EvaluationPlan, read_plan
from lesion.studies.isolation.result import Isolation, IsolationSummary
from lesion.studies.isolation.selections import FILE as STATISTICS
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.tasks.item_clusters import Shared, shared
from lesion.tasks.task import Item

RULE = (
    "Of all edits, the one with the highest accuracy on the skill's validation items; of several, the one that costs"
    " the controls least there, then the factor nearest to 1, then the smallest share."
)
Right = Bool[np.ndarray, " items"]


@dataclass(frozen=True)
class _Answers:
    """The complete answers of one edit to a task, in the order of the items."""

    right: Right
    scores: Float[np.ndarray, " items"]
    tokens: Int[np.ndarray, " items"]
    rates: Rates

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Answers:
        """Those of a frame."""
        return cls(verdicts(rows), first_scores(rows), rows["tokens"].to_numpy(dtype=np.int64), Rates(**rates(rows)))


@dataclass(frozen=True)
class _Task:
    """The complete answers to a task by edit, the baseline's among them."""

    name: str
    level: float
    by_edit: Mapping[str, _Answers]
    scored: bool
    shared: Shared | None
    items: Sequence[Item]

    @property
    def baseline(self) -> _Answers:
        return self.by_edit[str(BASELINE)]

    def result(self, answers: _Answers) -> Contrast:
        """The accuracy, or of running text the perplexity."""
        if self.scored:
            return perplexity(answers.scores, answers.tokens, self.level)
        return accuracy(answers.right, self.level)

    def drop(self, edit: str, part: slice | list[int] = slice(None)) -> Contrast:
        """The drop in accuracy under an edit on a part of the items."""
        return paired_drop(self.baseline.right[part], self.by_edit[edit].right[part], self.level)


def summarise(plan: EvaluationPlan, answers: pd.DataFrame, items: pd.DataFrame) -> Evaluation:
    """The numbers of an evaluation, as far as it has got; a task without a whole baseline is left out with a note."""
    notes = list(plan.notes)
    tasks = []
    answered: dict[str, _Task] = {}
    for name, kind in plan.tasks.items():
        own, scored = items[items["task"] == name], kind == "score"
        drawn, of_items = list(own["item"]), None if scored else shared(name, own)
        asked = [Item(*each, "") for each in zip(drawn, own.get("question", own["item"]), strict=True)]
        frames = complete(answers[answers["task"] == name], drawn)
        by_edit = {edit: _Answers.of(rows) for edit, rows in frames.items()}
        task = _Task(name, plan.level, by_edit, scored, of_items, asked)
        if str(BASELINE) not in task.by_edit:
            notes.append(f"{plan.model} has not answered all items of {name} without an edit yet.")
            continue
        answered[name] = task
        if missing := ", ".join(edit.name for edit in plan.tried if edit.edit not in task.by_edit):
            left_out = f"{name}: left out, not all items being answered: {missing}"
            notes.append(f"{left_out}; evaluate again with every edit wanted.")
        baseline, cells = task.baseline, tuple(_cells(plan, task))
        known: dict[str, Any] = {"tokens": int(baseline.tokens.sum())} if scored else {"rates": baseline.rates}
        base = Baseline(result=Estimate.of(task.result(baseline)), **known)
        about: dict[str, Any] = {"role": plan.role(name), "kind": kind, "chance": plan.chance.get(name)}
        about |= {"items": len(drawn), "baseline": base, "cells": cells, "shared": Sharing.of(of_items)}
        tasks.append(EvaluatedTask(name=name, **about))
    choice = _choice(plan, answered)
    if plan.validation is not None and choice is None and len(answered) == len(plan.tasks):
        notes.append(
            "No edit is chosen: that needs a task known to be the skill (--skill), two of its items that ask different"
            " things, and an edit answered in full."
        )
    return Evaluation(
        model=plan.model,
        dtype=plan.dtype,
        edits=plan.edits,
        tasks=tuple(tasks),
        selectivity=tuple(_selectivity(plan, answered)),
        choice=choice,
        notes=tuple(notes),
    )


def _cells(plan: EvaluationPlan, task: _Task) -> Iterator[TaskUnderEdit]:
    """The task under every edit that has answered all its items."""
    baseline, scored = task.baseline, task.scored
    answered = [edit for edit in plan.edits if edit.edit in task.by_edit]
    tests = {edit.edit: paired_p(baseline.right, task.by_edit[edit.edit].right) for edit in answered if not scored}
    # The random controls are no hypotheses of the study: what is corrected for is how many edits were tried. An edit
    # that is still missing answers counts too, so that the correction is that of the finished evaluation.
    own = [edit.edit for edit in answered if edit.tried and not scored]
    corrected = dict(zip(own, holm([tests[edit] for edit in own], len(plan.tried)), strict=True))
    for edit in answered:
        edited, known = task.by_edit[edit.edit], dict[str, Any]()
        if scored:
            ratio = perplexity_ratio(baseline.scores, edited.scores, baseline.tokens, task.level)
            known |= {"change": Estimate.of(ratio), "rates": Rates(nonfinite=edited.rates.nonfinite)}
        else:
            drop, differences = task.drop(edit.edit), baseline.right.astype(float) - edited.right
            known |= {"change": Estimate.of(drop, tests[edit.edit], corrected.get(edit.edit)), "rates": edited.rates}
            known |= {"clustered": OverClusters.of(differences, task.shared, drop, task.level)}
            known |= {"rivals": tuple(_rivals(plan, task, edit))}
        if controls := [_random(task, edit, *each) for each in _kinds(plan, task, edit).items()]:
            known |= {"random": controls[0], "matched": tuple(controls[1:])}
        yield TaskUnderEdit(edit=edit.edit, result=Estimate.of(task.result(edited)), **known)


def _rivals(plan: EvaluationPlan, task: _Task, edit: EditedModel) -> Iterator[BoostRival]:
    """The block and the MLP that a boost is compared with, by the factor best on validation items, or else on all."""
    by_unit: dict[str, list[EditedModel]] = {}
    for rival in plan.edits:
        if rival.edit in edit.rivals and rival.edit in task.by_edit:
            by_unit.setdefault(rival.label, []).append(rival)
    ahead = math.ceil((plan.validation or 1.0) * len(task.baseline.right))
    boosted = task.by_edit[edit.edit].right
    for rivals in by_unit.values():
        best = max(rivals, key=lambda rival: int(task.by_edit[rival.edit].right[:ahead].sum()))
        right = task.by_edit[best.edit].right
        result = Estimate.of(task.result(task.by_edit[best.edit]))
        yield BoostRival(edit=best.edit, result=result, beyond=Estimate.dropped(right, boosted, task.level))


def _kinds(plan: EvaluationPlan, task: _Task, edit: EditedModel) -> dict[MatchedIn, list[_Answers]]:
    """The answers under the random controls of an edit by what these share with it, in the order planned."""
    matched_in = {each.edit: each.matched_in for each in plan.edits}
    kinds: dict[MatchedIn, list[_Answers]] = {}
    for control in edit.randoms:
        if control in task.by_edit:
            kinds.setdefault(matched_in.get(control, "count"), []).append(task.by_edit[control])
    return kinds


def _random(task: _Task, edit: EditedModel, kind: MatchedIn, drawn: Sequence[_Answers]) -> RandomControls:
    values = [task.result(answers).value for answers in drawn]
    mean, ends = float(np.mean(values)), {"lowest": min(values), "highest": max(values)}
    if task.scored:
        return RandomControls(draws=len(drawn), mean=mean, **ends, matched_in=kind)
    beyond = beyond_random(task.by_edit[edit.edit].right, np.stack([answers.right for answers in drawn]), task.level)
    drop = float(task.baseline.right.mean() - np.mean(values))
    return RandomControls(draws=len(drawn), mean=mean, **ends, drop=drop, beyond=Estimate.of(beyond), matched_in=kind)


def _with_skill(plan: EvaluationPlan, answered: Mapping[str, _Task]) -> tuple[_Task, list[_Task]] | None:
    """The skill and the controls that are answered; None where the skill has no accuracy yet."""
    skill = answered.get(plan.skill or "")
    if skill is None or skill.scored:
        return None
    return skill, [task for task in answered.values() if task is not skill and not task.scored]


def _selectivity(plan: EvaluationPlan, answered: Mapping[str, _Task]) -> list[Selectivity]:
    """The drop on the skill minus the drop on every control, for every edit and random control."""
    if (tasks := _with_skill(plan, answered)) is None:
        return []
    skill, controls = tasks
    return [
        Selectivity(
            edit=edit.edit,
            skill=skill.name,
            control=control.name,
            difference=Estimate.of(difference_of_drops(skill.drop(edit.edit), control.drop(edit.edit))),
        )
        for control in controls
        for edit in plan.edits
        if edit.edit in control.by_edit and edit.edit in skill.by_edit
    ]


def _choice(plan: EvaluationPlan, answered: Mapping[str, _Task]) -> ChosenEdit | None:
    """The edit that the validation items choose, and what the test items say of it."""
    share = plan.validation
    if share is None or (tasks := _with_skill(plan, answered)) is None:
        return None
    skill, controls = tasks
    several = [task for task in (skill, *controls) if len(task.items) > 1]  # one item is not two parts
    parts = {task.name: chosen_and_tested(task.name, task.items, share) for task in several}
    parts = {name: (first, test) for name, (first, test) in parts.items() if test}
    controls = [control for control in controls if control.name in parts]
    candidates = [edit for edit in plan.tried if all(edit.edit in task.by_edit for task in (skill, *controls))]
    if not candidates or skill.name not in parts:
        return None

    def validation(edit: EditedModel, task: _Task) -> Fraction:
        # Exact, so that a tie is one whatever the controls' numbers of items.
        first, _ = parts[task.name]
        return Fraction(int(task.by_edit[edit.edit].right[first].sum()), len(first))

    def order(edit: EditedModel) -> tuple[Fraction, Fraction, float, float]:
        kept = sum((validation(edit, task) for task in controls), Fraction(0))
        return validation(edit, skill), kept, -abs((edit.factor or 0.0) - 1), -edit.share

    chosen = max(candidates, key=order)
    first, test = parts[skill.name]
    baseline, edited = skill.baseline.right, skill.by_edit[chosen.edit].right
    random = None
    if drawn := [answers.right[test] for answers in next(iter(_kinds(plan, skill, chosen).values()), [])]:
        beyond = beyond_random(edited[test], np.stack(drawn), plan.level)
        random = RandomGain(draws=len(drawn), accuracy=float(np.mean(drawn)), gain_beyond=Estimate.of(beyond).negative)
    return ChosenEdit(
        skill=skill.name,
        rule=RULE,
        validation_items=len(first),
        test_items=len(test),
        candidates=tuple(
            Candidate(
                edit=edit.edit,
                accuracy=float(validation(edit, skill)),
                mean_control=float(np.mean([float(validation(edit, task)) for task in controls])) if controls else None,
            )
            for edit in candidates
        ),
        chosen=chosen.edit,
        baseline_validation=float(baseline[first].mean()),
        accuracy_validation=float(edited[first].mean()),
        baseline_test=float(baseline[test].mean()),
        accuracy_test=float(edited[test].mean()),
        gain=Estimate.dropped(baseline[test], edited[test], plan.level).negative,
        random=random,
        controls=tuple(
            ControlDrop(task=task.name, drop=Estimate.of(task.drop(chosen.edit, parts[task.name][1])))
            for task in controls
        ),
    )


def recall_isolation(folder: Path) -> IsolationSummary | None:
    """An isolation or evaluation as far as it has got; None: the folder has none."""
    isolation, planned = stored(folder), read_plan(folder)
    if planned is None:
        return None if isolation is None else summarised(isolation.study, isolation, None)
    with Store.read(folder) as store:
        evaluation, text = summarise(planned, store.answers(), store.items()), store.study[1]
    kind = EvaluationStudy if tomllib.loads(text).get("kind") == "evaluation" else IsolationStudy
    return summarised(kind.parse(text, "The stored study"), isolation, evaluation)


def stored(folder: Path) -> Isolation | None:
    """The isolation in a folder; None where none was made there."""
    try:
        if (kind_of(folder) or summary_kind(folder)) != "isolation":
            return None
        summary = read_summary(IsolationSummary, folder, "run `lesion isolate` again")
    except LesionError:
        if (folder / STATISTICS).exists():
            raise
        return None  # of an evaluation alone everything is in the store and the plan
    return None if summary is None else summary.isolation


def summarised(
    study: IsolationStudy | EvaluationStudy, isolation: Isolation | None, evaluation: Evaluation | None
) -> IsolationSummary:
    """All numbers of what was isolated and evaluated."""
    notes = [note for part in (isolation, evaluation) if part is not None for note in part.notes]
    if isolation is not None and evaluation is not None:
        own = {selection.digest for selection in (*isolation.selections, isolation.excluded) if selection is not None}
        if others := {edit.label for edit in evaluation.tried if edit.digest not in own}:
            notes.append(f"Not among the selections that were isolated in this folder: {', '.join(sorted(others))}.")
    return IsolationSummary(
        approximate=None if evaluation is None else approximate(study.decoding.stop_loops),
        study=study,
        isolation=isolation,
        evaluation=evaluation,
        notes=tuple(dict.fromkeys(notes)),
    )
