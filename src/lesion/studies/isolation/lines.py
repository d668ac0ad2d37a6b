"""Lines of an evaluation: a task under an edit, beside the unedited model, random controls and other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.forms import POINTS, SHARE, Form, decimals
from lesion.report.rows import Row, column, derived
from lesion.report.values import Estimate, Number
from lesion.report.wording import ALPHA
from lesion.studies.isolation.evaluation import (
    EditedModel,
    EvaluatedTask,
    Evaluation,
    RandomControls,
    TaskUnderEdit,
)

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
    baseline_perplexity: Number = column(default=None)
    perplexity: Number = column("Perplexity", PERPLEXITY, default=None)
    ratio: Estimate = column("Ratio", decimals(3), default=NOTHING)
    random_draws: int | None = column(default=None)
    random_accuracy: Number = column(default=None)
    random_perplexity: Number = column(default=None)
    random_lowest: Number = column(default=None)
    random_highest: Number = column(default=None)
    random_drop: Number = column(default=None)
    random_beyond: Estimate = column("Beyond random", POINTS, default=NOTHING)
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


class Sizes(Row):
    """The mean |W| of the weights of an edit, and of those of its random controls of one kind."""

    size: Number = column("Mean |W|", Form(3, significant=True))
    control_size: Number = column("Theirs", Form(3, significant=True))


class AgainstControl(Row):
    """What an edit takes from a control, and how much more it takes from the skill."""

    control: str = column("Control", label=True)
    control_drop: Estimate = column("Drop of the control", POINTS)
    difference: Estimate = column("Difference", POINTS)


class EditName(Row):
    """The name of an edit."""

    under: str = column("Edit", label=True)


Line = tuple[Measured, EditedModel]


def measured(evaluation: Evaluation) -> list[Line]:
    """A line per task and edit, random controls among them."""
    drawn = _drawn(evaluation)
    return [
        (_measured(evaluation, task, cell, drawn=cell.edit in drawn), evaluation.by_edit[cell.edit])
        for task in evaluation.tasks
        for cell in task.cells
    ]


def _measured(evaluation: Evaluation, task: EvaluatedTask, cell: TaskUnderEdit, *, drawn: bool) -> Measured:
    edit, baseline = evaluation.by_edit[cell.edit], task.baseline.result
    under, reached = evaluation.name_of(cell.edit), edit.achieved
    if reached is not None and edit.factor is not None and abs(reached - edit.factor) > 1e-6:
        under += f" ({reached:.6g} reached)"
    numbers: dict[str, Any] = dict(cell.rates) | clustered_intervals.columns(cell.clustered)
    numbers |= {f"baseline_{name}": rate for name, rate in task.baseline.rates}
    if random := cell.random:
        numbers |= {
            f"random_{name}": getattr(random, name) for name in ("draws", "lowest", "highest", "drop", "beyond")
        }
        numbers["random_perplexity" if task.scored else "random_accuracy"] = random.mean
    if task.scored:  # the interval is that of the perplexity
        nothing = {"value": None}
        numbers |= {"baseline_perplexity": baseline.value, "baseline": baseline.model_copy(update=nothing)}
        numbers |= {"perplexity": cell.result.value, "ratio": cell.change, "drop": NOTHING}
        numbers["accuracy"] = Estimate(value=None, low=cell.result.low, high=cell.result.high)
    else:
        numbers |= {"baseline": baseline, "accuracy": cell.result, "drop": cell.change}
    return Measured(
        model=evaluation.model,
        task=task.name,
        edit=cell.edit,
        under=under,
        role=task.role,
        kind=task.kind,
        items=task.items,
        chance=task.chance,
        series=_series(evaluation, edit),
        tried=edit.tried,
        drawn=drawn,
        **numbers,
    )


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


def matched(evaluation: Evaluation, lines: Sequence[Line]) -> list[tuple[Measured, RandomControls, Sizes]]:
    """Every edit beside its random controls of every kind; empty where there is one kind."""
    effects = {(task.name, cell.edit): cell for task in evaluation.tasks if not task.scored for cell in task.cells}
    beside = []
    for line, edit in lines:
        cell = effects.get((line.task, line.edit))
        if cell is None or cell.random is None or not cell.matched:
            continue
        for controls in (cell.random, *cell.matched):
            own = [evaluation.by_edit[each] for each in edit.randoms]
            sizes = [each.size for each in own if each.matched_in == controls.matched_in and each.size is not None]
            mean = float(np.mean(sizes)) if sizes else None
            beside.append((line, controls, Sizes(size=edit.size, control_size=mean)))
    return beside


def against_controls(
    evaluation: Evaluation, lines: Sequence[Line]
) -> list[tuple[Measured, AgainstControl, EditedModel]]:
    """The skill beside every control, under every edit tried."""
    of = {(line.task, line.edit): (line, edit) for line, edit in lines if edit.tried}
    beside = []
    for each in evaluation.selectivity:
        if (each.skill, each.edit) in of and (each.control, each.edit) in of:
            (line, edit), (control, _) = of[each.skill, each.edit], of[each.control, each.edit]
            against = AgainstControl(control=each.control, control_drop=control.drop, difference=each.difference)
            beside.append((line, against, edit))
    return beside


FEWEST_PLACES = 3
"""Of a curve along the share, or the factor."""


def several_places(lines: Sequence[Line], name: str) -> bool:
    """Whether a share or factor has so many places among the edits tried that a curve shows more than bars do."""
    places = {getattr(edit, name) for _, edit in lines if edit.tried}
    return len(places - {None}) >= FEWEST_PLACES
