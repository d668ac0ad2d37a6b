"""Lines of an evaluation: a task under an edit, beside the unedited model, random controls and other tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.forms import POINTS, SHARE, Form, decimals
from lesion.report.rows import Row, column, derived
from lesion.report.values import Estimate, Number
from lesion.report.wording import ALPHA
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation, TaskUnderEdit

MOST_DRAWN = 4
"""Edits in the first figure, without the rivals of boosts."""
PERPLEXITY = Form(4, significant=True)
NOTHING = Estimate(value=None)


class UnderEdit(Row):
    """What tells the lines of an evaluation apart: a task and an edit; `edit` is its text form, `under` its name."""

    model: str
    task: str = column("Task", label=True)
    edit: str = column()
    under: str = column("Edit", label=True, key="name")
    drop: Estimate = column("Drop", POINTS, p="p")


class Measured(UnderEdit):
    """One task under one edit: a line of `evaluation.csv`. Accuracies, drops and rates in 0…1.

    Attributes:
        tried: whether the edit is neither the random control nor the rival of another.
        drawn: whether it stands in the first figure.
        series: what tells its line from others where the share varies, and where the factor does.
        random_lowest, random_highest: of the accuracies (perplexities) under the random controls.
    """

    role: str | None = column()
    kind: str = column()
    items: int = column()
    chance: Number = column()
    baseline: Estimate = column("", SHARE, key="baseline_accuracy", ends=("baseline_low", "baseline_high"))
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))
    baseline_perplexity: Number = column()
    perplexity: Number = column("Perplexity", PERPLEXITY)
    ratio: Estimate = column("Ratio", decimals(3))
    random_draws: int | None = column()
    random_accuracy: Number = column()
    random_perplexity: Number = column()
    random_lowest: Number = column(default=None)
    random_highest: Number = column(default=None)
    random_drop: Number = column(default=None)
    random_beyond: Estimate = column("Beyond random", POINTS)
    truncated: Number = column("Truncated", SHARE, default=None)
    looped: Number = column("Looped", SHARE, default=None)
    unclosed: Number = column("Unclosed", SHARE, default=None)
    unparsed: Number = column("Unparsed", SHARE, default=None)
    nonfinite: Number = column("Not finite", SHARE, default=None)
    baseline_truncated: Number = column(default=None)
    baseline_looped: Number = column(default=None)
    baseline_unclosed: Number = column(default=None)
    baseline_unparsed: Number = column(default=None)
    baseline_nonfinite: Number = column(default=None)
    drop_low_clustered: Number = column(default=None)
    drop_high_clustered: Number = column(default=None)
    design_effect: Number = column(default=None)
    clusters: int | None = column(default=None)
    series: tuple[str, str]
    tried: bool
    drawn: bool

    @derived.column()
    def changed(self) -> bool:
        """Whether a change is shown: its interval excludes 0, and its corrected p is small."""
        p = self.drop.p_corrected
        return p is not None and p <= ALPHA and self.drop.side != 0

    @property
    def strength(self) -> float:
        """The change without its sign; edits tried come before random controls and rivals."""
        return abs(self.drop.value or 0.0) if self.tried else -1.0

    @property
    def random_drops(self) -> tuple[float, ...]:
        """The least, the mean and the largest drop under the random controls."""
        base, ends = self.baseline.value, (self.random_lowest, self.random_accuracy, self.random_highest)
        return () if base is None else tuple(base - end for end in ends if end is not None)

    @property
    def by_share(self) -> str:
        """Its line where the share of weights varies."""
        return self.series[0]

    @property
    def by_factor(self) -> str:
        """Its line where the factor varies."""
        return self.series[1]


class MatchedControls(UnderEdit):
    """An edit beside its random controls of one kind: a line of `matched-controls.csv`."""

    matched_in: str = column("Controls matched in")
    draws: int = column("Draws")
    control_drop: Number = column("Their drop", POINTS)
    lowest: Number = column()
    highest: Number = column()
    beyond: Estimate = column("Beyond them", POINTS)
    size: Number = column("Mean |W|", Form(3, significant=True))
    control_size: Number = column("Theirs", Form(3, significant=True))


class SkillAgainstControl(UnderEdit):
    """What an edit takes from the skill beside what it takes from a control; `drop` is that of the skill."""

    control: str = column("Control", label=True)
    control_drop: Estimate = column("Drop of the control", POINTS)
    difference: Estimate = column("Difference", POINTS)
    method: str
    boosts: bool

    @property
    def direction(self) -> str:
        """Whether weights are cut or enlarged."""
        return "boosting" if self.boosts else "cutting"


class CandidateLine(Row):
    """An edit among which one was chosen."""

    under: str = column("Edit", label=True)
    accuracy: float = column("Accuracy on validation items", SHARE)
    mean_control: Number = column("Mean of controls", SHARE)


def measured(evaluation: Evaluation) -> list[tuple[Measured, EditedModel]]:
    """A line per task and edit, random controls among them."""
    drawn = _drawn(evaluation)
    return [
        (_measured(evaluation, task, cell, drawn=cell.edit in drawn), evaluation.by_edit[cell.edit])
        for task in evaluation.tasks
        for cell in task.cells
    ]


def _measured(evaluation: Evaluation, task: EvaluatedTask, cell: TaskUnderEdit, *, drawn: bool) -> Measured:
    edit, random, baseline = evaluation.by_edit[cell.edit], cell.random, task.baseline.result
    numbers: dict[str, Any] = dict(cell.rates) | clustered_intervals.columns(cell.clustered)
    numbers |= {f"baseline_{name}": rate for name, rate in task.baseline.rates}
    if random is not None:
        numbers |= {"random_lowest": random.lowest, "random_highest": random.highest, "random_drop": random.drop}
    mean = None if random is None else random.mean
    ends = {"low": cell.result.low, "high": cell.result.high}
    return Measured(
        **_names(evaluation, task, edit),
        drop=NOTHING if task.scored else cell.change,
        role=task.role,
        kind=task.kind,
        items=task.items,
        chance=task.chance,
        baseline=baseline.model_copy(update={"value": None}) if task.scored else baseline,
        accuracy=Estimate(value=None, **ends) if task.scored else cell.result,
        baseline_perplexity=baseline.value if task.scored else None,
        perplexity=cell.result.value if task.scored else None,
        ratio=cell.change if task.scored else NOTHING,
        random_draws=None if random is None else random.draws,
        random_accuracy=None if task.scored else mean,
        random_perplexity=mean if task.scored else None,
        random_beyond=NOTHING if random is None else random.beyond,
        series=_series(evaluation, edit),
        tried=edit.tried,
        drawn=drawn,
        **numbers,
    )


def _names(evaluation: Evaluation, task: EvaluatedTask, edit: EditedModel) -> dict[str, Any]:
    reached = edit.achieved
    rounded = reached is not None and edit.factor is not None and abs(reached - edit.factor) > 1e-6
    under = f"{evaluation.name_of(edit.edit)}{f' ({reached:.6g} reached)' if rounded else ''}"
    return {"model": evaluation.model, "task": task.name, "edit": edit.edit, "under": under}


def _series(evaluation: Evaluation, edit: EditedModel) -> tuple[str, str]:
    """What tells an edit's line from others along the share, and along the factor: what differs among all tried."""
    same = [each for each in evaluation.tried if each.method_name == edit.method_name]
    parts = [edit.method_name] if len(evaluation.methods) > 1 else []
    if evaluation.several_samples and edit.samples is not None:
        parts.append(wording.counted(edit.samples, "text"))
    if edit.repeat is not None and len({each.repeat for each in same}) > 1:
        parts.append(f"repeat{wording.SPACE}{edit.repeat}")
    factor = [wording.factor(edit.factor)] if edit.factor is not None and len({e.factor for e in same}) > 1 else []
    share = [wording.keep(edit.keep)] if edit.keep is not None and len({each.keep for each in same}) > 1 else []
    return ", ".join([*parts, *factor]), ", ".join([*parts, *share])


def _drawn(evaluation: Evaluation) -> set[str]:
    """The edits of the first figure: those that change most, and the rivals of boosts among them."""
    main = next(iter([*evaluation.skills, *(task for task in evaluation.tasks if not task.scored)]), None)
    if main is None:
        return set()

    def size(edit: EditedModel) -> float:
        return abs(main.effects[edit.edit].change.value or 0.0)

    tried = sorted((edit for edit in evaluation.tried if edit.edit in main.effects), key=size, reverse=True)
    drawn = [edit.edit for edit in tried[:MOST_DRAWN]]
    return {*drawn, *(rival.edit for edit in drawn for rival in main.effects[edit].rivals)}


def matched(evaluation: Evaluation) -> list[MatchedControls]:
    """Every edit beside its random controls of every kind; empty where there is one kind."""
    return [
        MatchedControls(
            **_names(evaluation, task, evaluation.by_edit[cell.edit]),
            drop=cell.change,
            matched_in=controls.matched_in,
            **controls.model_dump(include={"draws", "lowest", "highest", "beyond"}),
            control_drop=controls.drop,
            size=evaluation.by_edit[cell.edit].size,
            control_size=_mean_size(evaluation, evaluation.by_edit[cell.edit].randoms, controls.matched_in),
        )
        for task in evaluation.tasks
        if not task.scored
        for cell in task.cells
        if cell.matched and cell.random is not None
        for controls in (cell.random, *cell.matched)
    ]


def _mean_size(evaluation: Evaluation, randoms: Iterable[str], kind: str) -> float | None:
    own = [evaluation.by_edit[each] for each in randoms]
    sizes = [each.size for each in own if each.matched_in == kind and each.size is not None]
    return float(np.mean(sizes)) if sizes else None


def against_controls(evaluation: Evaluation) -> list[SkillAgainstControl]:
    """The skill beside every control, under every edit tried."""
    by_name = {task.name: task for task in evaluation.tasks}
    return [
        SkillAgainstControl(
            **_names(evaluation, by_name[each.skill], edit),
            drop=by_name[each.skill].effects[each.edit].change,
            control=each.control,
            control_drop=by_name[each.control].effects[each.edit].change,
            difference=each.difference,
            method=edit.method_name,
            boosts=edit.boosts,
        )
        for each in evaluation.selectivity
        if (edit := evaluation.by_edit[each.edit]).tried
        and all(name in by_name and each.edit in by_name[name].effects for name in (each.skill, each.control))
    ]


def candidates(evaluation: Evaluation) -> list[CandidateLine]:
    """The edits among which one was chosen."""
    return [
        CandidateLine(under=evaluation.name_of(each.edit), **each.model_dump(exclude={"edit"}))
        for each in (evaluation.choice.candidates if evaluation.choice else ())
    ]


FEWEST_PLACES = 3
"""Of a curve along the share, or the factor."""


def several_places(lines: Sequence[tuple[Measured, EditedModel]], name: str) -> bool:
    """Whether a share or factor has so many places among the edits tried that a curve shows more than bars do."""
    places = {getattr(edit, name) for _, edit in lines if edit.tried}
    return len(places - {None}) >= FEWEST_PLACES
