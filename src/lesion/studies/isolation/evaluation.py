"""The result of an evaluation: what each edit changes in each task, beside its matched random controls.

Its lines are a task under an edit, beside the unedited model, random controls and other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.edits.edit import MatchedIn
from lesion.plain import short
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import FIGURES, POINTS, SHARE, Estimate, Form, Number, Value, decimals, omitted

METHOD_NAMES = {
    "mathneuro": "MathNeuro",
    "wanda": "Wanda",
    "wanda-rows": "Wanda per row",
    "lape": "LAPE",
    "magnitude": "magnitude",
    "random": "random",
}
ABOVE_CHANCE = 0.10
"""A control is informative only if the lower limit of its unedited accuracy is at least this far above chance: a task
at the floor before an edit has nothing to lose, and would look spared by every edit."""


class EditedModel(Row):
    """One edit of an evaluation: what was selected, how, and by what it was multiplied.

    Attributes:
        edit: its text form, under which its answers are stored.
        label, digest: of its selection.
        method, keep, samples, repeat: how it came about; None where not known.
        factor: that selected weights, blocks or branches are multiplied by; None where an edit has none or several.
        without: label of the listed weights that were taken away from its selection.
        random_of: the edit whose matched random control it is.
        rival_of: the boost whose most selected block or MLP it enlarges.
        matched_in, seed: of a random control, what it shares with the edit, and its draw.
        randoms: its matched random controls; rivals: of a boost, the enlarged blocks and MLPs.
        selected, total: weights; of scaled blocks and branches and of truncated matrices all that lie in them.
        achieved: the factor that the selected weights really got, after rounding: Σ|w| after ÷ before, signed; None of
            an edit that is no single selection.
        size: the mean |W| of the selected weights, before; None likewise.
    """

    edit: str = column()
    label: str = column()
    digest: str
    method: str = column()
    keep: float | None = column("Share of every matrix", Form(3, 100.0, "%", significant=True), default=None)
    samples: int | None = column()
    repeat: int | None = column()
    factor: Number = column("Factor", FIGURES)
    without: str = ""
    random_of: str | None = column(default=None)
    rival_of: str | None = omitted()
    seed: int | None = column(default=None)
    randoms: tuple[str, ...] = ()
    rivals: tuple[str, ...] = omitted(())
    selected: Annotated[int, Field(ge=0)] = column()
    total: Annotated[int, Field(ge=1)] = column()
    achieved: Number = column(default=None)
    matched_in: MatchedIn = column(default="count", omitted=True)
    size: Number = column(default=None)

    @field_validator("method")
    @classmethod
    def _known(cls, method: str) -> str:
        if method not in (*METHOD_NAMES, "custom"):
            raise ValueError(f"there is no selection method '{short(method)}'")
        return method

    @derived.column()
    def share(self) -> float:
        """Selected of all scored weights, in 0…1."""
        return self.selected / self.total

    @property
    def boosts(self) -> bool:
        """Whether it enlarges the weights: then a gain of the skill is sought."""
        return self.factor is not None and self.factor > 1

    @property
    def direction(self) -> str:
        """Whether weights are cut or enlarged."""
        return "boosting" if self.boosts else "cutting"

    def sought(self, drop: Estimate) -> Estimate:
        """A drop as what is sought: of a boost, a gain."""
        return drop.negative if self.boosts else drop

    @property
    def elsewhere(self) -> str:
        """What its random controls are."""
        return "random weights" if self.selects else "the same change elsewhere"

    @property
    def tried(self) -> bool:
        """Whether it is neither the random control nor the rival of another."""
        return self.random_of is None and self.rival_of is None

    @property
    def selects(self) -> bool:
        """Whether it multiplies one selection of weights; else it changes blocks, branches or spectra."""
        return self.achieved is not None

    @property
    def method_name(self) -> str:
        """`MathNeuro`, `MathNeuro without super-weights-8`; the selection's own label where the method is not known."""
        if self.method == "custom":
            return self.label
        return METHOD_NAMES[self.method] + f" without {self.without}" * bool(self.without)

    @property
    def name(self) -> str:
        """`MathNeuro, share 5 %, ×0`, with the repeat where there are several."""
        parts = [self.method_name]
        if self.keep is not None:
            parts.append(f"share{wording.SPACE}{wording.keep(self.keep)}")
        if self.repeat:
            parts.append(f"repeat{wording.SPACE}{self.repeat}")
        if self.random_of is not None and self.matched_in != "count":
            parts.append(f"matched in {self.matched_in}")
        if self.random_of is not None and self.seed is not None:
            parts.append(f"seed{wording.SPACE}{self.seed}")
        if self.factor is not None and self.method_name != self.edit:  # the text of several edits has their factors
            parts.append(wording.factor(self.factor))
        return ", ".join(parts)


class Rates(Row):
    """How answers ended, as shares in 0…1 (`lesion.core.rates`); None for running text."""

    truncated: Number = column("Truncated", SHARE, default=None)
    looped: Number = column("Looped", SHARE, default=None)
    unclosed: Number = column("Unclosed", SHARE, default=None)
    unparsed: Number = column("Unparsed", SHARE, default=None)
    nonfinite: Number = column("Not finite", SHARE, default=None)


class Baseline(Value):
    """The unedited model: its accuracy in 0…1, or its perplexity and on how many tokens."""

    result: Estimate
    rates: Rates = Rates()
    tokens: int | None = None


class RandomControls(Row):
    """The matched random controls of an edit on a task: the mean and range of their accuracies, or perplexities."""

    matched_in: MatchedIn = column("Controls matched in", default="count", omitted=True)
    draws: int = column("Draws")
    mean: Number
    lowest: Number = column()
    highest: Number = column()
    drop: Number = column("Their drop", POINTS, default=None, key="control_drop")
    beyond: Estimate = column("Beyond them", POINTS, default=Estimate(value=None))


class BoostRival(Value):
    """The whole block or MLP that holds most of a boost's weights; `beyond`: how much more the boost drops."""

    edit: str
    result: Estimate
    beyond: Estimate


class TaskUnderEdit(Value):
    """What one edit did to one task.

    Attributes:
        result: accuracy in 0…1, or perplexity; None where that is not a finite number.
        change: drop in accuracy, or ratio of perplexities to the baseline's; p is McNemar's exact test.
        random: the matched random controls of the first kind; matched: those of further kinds.
        clustered: the drop's interval over the clusters that items share.
    """

    edit: str
    result: Estimate
    change: Estimate
    rates: Rates = Rates()
    random: RandomControls | None = None
    matched: tuple[RandomControls, ...] = omitted(())
    rivals: tuple[BoostRival, ...] = omitted(())
    clustered: OverClusters | None = omitted()


class EvaluatedTask(Value):
    """One task: the unedited model and every edit on the same items.

    Attributes:
        kind: `generate`, `choose`, or `score` for running text, which is measured by perplexity.
        chance: the accuracy of guessing in 0…1; None for perplexity or where it is not known.
    """

    name: str
    role: Literal["skill", "control"] | None
    kind: str
    items: int
    chance: Number
    baseline: Baseline
    cells: tuple[TaskUnderEdit, ...]
    shared: Sharing | None = omitted()

    @cached_property
    def effects(self) -> dict[str, TaskUnderEdit]:
        """By edit, those with a finite result."""
        return {cell.edit: cell for cell in self.cells if cell.result.value is not None}

    @property
    def scored(self) -> bool:
        """Whether it is measured by perplexity, of which less is better."""
        return self.kind == "score"

    @property
    def informative(self) -> bool:
        """Whether the unedited model is surely above chance (by `ABOVE_CHANCE`), so that a loss could show."""
        low = self.baseline.result.low
        if self.scored or low is None or self.chance is None:
            return False
        return low - self.chance >= ABOVE_CHANCE - 1e-9

    @property
    def near_guessing(self) -> bool:
        """Whether the interval of the unedited accuracy holds that of guessing, or lies below it."""
        low = self.baseline.result.low
        return bool(self.chance) and low is not None and low <= (self.chance or 0.0)


class Selectivity(Value):
    """How much more an edit takes from the skill than from a control: the difference of their drops."""

    edit: str
    skill: str
    control: str
    difference: Estimate


class Candidate(Row):
    """An edit among which one is chosen: its accuracy on validation items, and the mean over the controls'."""

    edit: str = column("Edit", label=True)
    accuracy: float = column("Validation accuracy", SHARE)
    mean_control: Number = column("Mean of controls", SHARE)


class RandomGain(Value):
    """The chosen edit against its random controls on test items: their accuracy, and how much more it gains."""

    draws: int
    accuracy: float
    gain_beyond: Estimate


class ControlDrop(Value):
    """What the chosen edit costs a control on its test items."""

    task: str
    drop: Estimate


class ChosenEdit(Value):
    """The edit chosen on validation items, and what it did on test items that had no part in choosing it."""

    skill: str
    rule: str
    validation_items: int
    test_items: int
    candidates: tuple[Candidate, ...]
    chosen: str
    baseline_validation: float
    accuracy_validation: float
    baseline_test: float
    accuracy_test: float
    gain: Estimate
    random: RandomGain | None
    controls: tuple[ControlDrop, ...]


class Evaluation(Value):
    """Everything that an evaluation measured."""

    model: str
    dtype: str
    edits: tuple[EditedModel, ...]
    tasks: tuple[EvaluatedTask, ...]
    selectivity: tuple[Selectivity, ...]
    choice: ChosenEdit | None
    notes: tuple[str, ...] = ()

    @cached_property
    def by_edit(self) -> dict[str, EditedModel]:
        """The edits by their text form."""
        return {edit.edit: edit for edit in self.edits}

    @cached_property
    def tried(self) -> tuple[EditedModel, ...]:
        """The edits that are neither the random control nor the rival of another."""
        return tuple(edit for edit in self.edits if edit.tried)

    @property
    def skills(self) -> list[EvaluatedTask]:
        """The tasks whose place was sought."""
        return [task for task in self.tasks if task.role == "skill"]

    @property
    def controls(self) -> list[EvaluatedTask]:
        """The tasks that must survive."""
        return [task for task in self.tasks if task.role == "control"]

    def name_of(self, edit: str) -> str:
        """The name of an edit by its text form, with its number of texts where these differ."""
        known = self.by_edit[edit]
        if not self.several_samples or known.samples is None:
            return known.name
        return f"{known.name}, {wording.counted(known.samples, 'text')}"

    @cached_property
    def several_samples(self) -> bool:
        """Whether selections from different numbers of texts were tried."""
        return len({edit.samples for edit in self.tried if edit.samples is not None}) > 1

    def difference(self, edit: str, skill: str, control: str) -> Estimate | None:
        """The selectivity of an edit against a control; None where it was not measured."""
        place = (edit, skill, control)
        return next((d.difference for d in self.selectivity if (d.edit, d.skill, d.control) == place), None)


MOST_DRAWN = 4
"""Edits in the first figure, without the rivals of boosts."""
NOTHING = Estimate(value=None)


class UnderEdit(Row):
    """What tells the lines of an evaluation apart: a task and an edit; `edit` is its text form, `under` its name."""

    model: str
    task: str = column("Task", label=True)
    edit: str = column()
    under: str = column("Edit", label=True, key="name")
    drop: Estimate = column("Drop", POINTS, p="p")


class Measured(UnderEdit, Rates):
    """One task under one edit: a line of `evaluation.csv`. Accuracies, drops and rates in 0…1.

    Attributes:
        tried: whether the edit is neither the random control nor the rival of another.
        drawn: whether it stands in the first figure.
        by_share, by_factor: what tells its line from others where the share varies, and where the factor does.
        random_lowest, random_highest: of the accuracies (perplexities) under the random controls.
    """

    role: str | None = column()
    kind: str = column()
    items: int = column()
    chance: Number = column()
    baseline: Estimate = column("", SHARE, key="baseline_accuracy", ends=("baseline_low", "baseline_high"))
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))
    baseline_perplexity: Number = column(default=None)
    perplexity: Number = column("Perplexity", FIGURES, default=None)
    ratio: Estimate = column("Ratio", decimals(3), default=NOTHING)
    random_draws: int | None = column(default=None)
    random_accuracy: Number = column(default=None)
    random_perplexity: Number = column(default=None)
    random_lowest: Number = column(default=None)
    random_highest: Number = column(default=None)
    random_drop: Number = column(default=None)
    random_beyond: Estimate = column("Beyond random", POINTS, default=NOTHING)
    baseline_truncated: Number = column(default=None)
    baseline_looped: Number = column(default=None)
    baseline_unclosed: Number = column(default=None)
    baseline_unparsed: Number = column(default=None)
    baseline_nonfinite: Number = column(default=None)
    clustered: OverClusters | None = None
    by_share: str
    by_factor: str
    tried: bool
    drawn: bool

    @derived.column()
    def changed(self) -> bool:
        """Whether a change is shown: its interval excludes 0, and its corrected p is small."""
        return self.drop.is_shown and self.drop.side != 0

    @property
    def strength(self) -> float:
        """The change without its sign; edits tried come before random controls and rivals."""
        return abs(self.drop.value or 0.0) if self.tried else -1.0

    @property
    def random_drops(self) -> tuple[float, ...]:
        """The least, the mean and the largest drop under the random controls."""
        base, ends = self.baseline.value, (self.random_lowest, self.random_accuracy, self.random_highest)
        return () if base is None else tuple(base - end for end in ends if end is not None)


class Sizes(Row):
    """The mean |W| of the weights of an edit, and of those of its random controls of one kind."""

    size: Number = column("Mean |W|", Form(3, significant=True))
    control_size: Number = column("Theirs", Form(3, significant=True))


class AgainstControl(Row):
    """What an edit takes from a control, and how much more it takes from the skill."""

    control: str = column("Control", label=True)
    control_drop: Estimate = column("Drop of the control", POINTS)
    difference: Estimate = column("Difference", POINTS)


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
    numbers: dict[str, Any] = dict(cell.rates)
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
    numbers |= task.model_dump(include={"role", "kind", "items", "chance"}) | _series(evaluation, edit)
    return Measured(
        model=evaluation.model,
        task=task.name,
        edit=cell.edit,
        under=under,
        tried=edit.tried,
        drawn=drawn,
        clustered=cell.clustered,
        **numbers,
    )


def _series(evaluation: Evaluation, edit: EditedModel) -> dict[str, str]:
    """What tells an edit's line from others along the share, and along the factor: what differs among all tried."""
    same = [each for each in evaluation.tried if each.method_name == edit.method_name]
    parts = [edit.method_name] if len(same) < len(evaluation.tried) else []
    if evaluation.several_samples and edit.samples is not None:
        parts.append(wording.counted(edit.samples, "text"))
    if edit.repeat is not None and len({each.repeat for each in same}) > 1:
        parts.append(f"repeat{wording.SPACE}{edit.repeat}")
    factor = [wording.factor(edit.factor)] if edit.factor is not None and len({e.factor for e in same}) > 1 else []
    share = [wording.keep(edit.keep)] if edit.keep is not None and len({each.keep for each in same}) > 1 else []
    return {"by_share": ", ".join([*parts, *factor]), "by_factor": ", ".join([*parts, *share])}


def _drawn(evaluation: Evaluation) -> set[str]:
    """The edits of the first figure: those that change most, and the rivals of boosts among them."""
    main = [*evaluation.skills, *(task for task in evaluation.tasks if not task.scored)][:1]
    tried = [task.effects[edit.edit] for task in main for edit in evaluation.tried if edit.edit in task.effects]
    drawn = sorted(tried, key=lambda effect: -abs(effect.change.value or 0.0))[:MOST_DRAWN]
    return {edit for effect in drawn for edit in (effect.edit, *(rival.edit for rival in effect.rivals))}


def matched(evaluation: Evaluation, lines: Sequence[Line]) -> list[tuple[Measured, RandomControls, Sizes]]:
    """Every edit beside its random controls of every kind; empty where there is one kind."""
    effects = {(task.name, cell.edit): cell for task in evaluation.tasks if not task.scored for cell in task.cells}
    beside = []
    for line, edit in lines:
        cell, own = effects.get((line.task, line.edit)), [evaluation.by_edit[each] for each in edit.randoms]
        if cell is None or cell.random is None or not cell.matched:
            continue
        for controls in (cell.random, *cell.matched):
            sizes = [each.size for each in own if each.matched_in == controls.matched_in and each.size is not None]
            size = math.fsum(sizes) / (len(sizes) or math.nan)
            beside.append((line, controls, Sizes(size=edit.size, control_size=size)))
    return beside


def against_controls(
    evaluation: Evaluation, lines: Sequence[Line]
) -> list[tuple[Measured, AgainstControl, EditedModel]]:
    """The skill beside every control, under every edit tried."""
    of = {(line.task, line.edit): (line, edit) for line, edit in lines if edit.tried}
    beside = []
    for each in evaluation.selectivity:
        if each.edit in {edit.edit for edit in evaluation.tried}:
            (line, edit), (control, _) = of[each.skill, each.edit], of[each.control, each.edit]
            against = AgainstControl(control=each.control, control_drop=control.drop, difference=each.difference)
            beside.append((line, against, edit))
    return beside
