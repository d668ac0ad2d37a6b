"""The result of an evaluation: what each edit changes in each task, beside its matched random controls."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, field_validator

from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.edits.edit import MatchedIn
from lesion.plain import short
from lesion.report import wording
from lesion.report.forms import POINTS, SHARE, Form
from lesion.report.rows import Row, column, derived
from lesion.report.values import Estimate, Number, Value

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
        without: label of the listed weights that were taken away from its selection; empty where none were.
        random_of: text form of the edit whose matched random control it is, or None.
        rival_of: text form of a boost whose most selected block or MLP it enlarges, to be compared with; or None.
        matched_in: of a random control, what it shares with the edit: count, magnitude or importance.
        seed: of the draw, for a random control.
        randoms: text forms of its matched random controls; rivals: of a boost, those of the enlarged blocks and MLPs.
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
    factor: Number = column("Factor", Form(4, significant=True))
    without: str = ""
    random_of: str | None = column(default=None)
    rival_of: str | None = Field(default=None, exclude_if=lambda edit: edit is None)
    seed: int | None = column(default=None)
    randoms: tuple[str, ...] = ()
    rivals: tuple[str, ...] = Field(default=(), exclude_if=lambda rivals: not rivals)
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
        return METHOD_NAMES.get(self.method, self.method) + (f" without {self.without}" if self.without else "")

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


class Rates(Value):
    """How answers ended, as shares in 0…1 (`lesion.core.rates`); None for running text."""

    truncated: Number = None
    looped: Number = None
    unclosed: Number = None
    unparsed: Number = None
    nonfinite: Number = None


class Baseline(Value):
    """The unedited model: its accuracy in 0…1, or its perplexity and on how many tokens."""

    result: Estimate
    rates: Rates = Rates()
    tokens: int | None = None


class RandomControls(Row):
    """The matched random controls of an edit on a task: the mean and range of their accuracies, or perplexities.

    `drop` is their mean drop and `beyond` how much more the edit drops; both are None for running text. `matched_in` is
    what they share with the edit.
    """

    matched_in: MatchedIn = column("Controls matched in", default="count", omitted=True)
    draws: int = column("Draws")
    mean: Number
    lowest: Number = column()
    highest: Number = column()
    drop: Number = column("Their drop", POINTS, default=None, key="control_drop")
    beyond: Estimate = column("Beyond them", POINTS, default=Estimate(value=None))


class BoostRival(Value):
    """The whole block or MLP that holds most of a boost's weights, enlarged by the factor that suits it best here.

    `result` is its accuracy, and `beyond` how much more the boost drops: below 0 where the boost is better.
    """

    edit: str
    result: Estimate
    beyond: Estimate


class TaskUnderEdit(Value):
    """What one edit did to one task.

    Attributes:
        result: accuracy in 0…1, or perplexity; None where that is not a finite number.
        change: drop in accuracy, or ratio of perplexities to the baseline's; p is McNemar's exact test.
        random: the matched random controls of the first kind; matched: those of further kinds.
        rivals: of a boost, the block and the MLP; none of running text.
        clustered: the drop's interval over the clusters that items share; None where there are none.
    """

    edit: str
    result: Estimate
    change: Estimate
    rates: Rates = Rates()
    random: RandomControls | None = None
    matched: tuple[RandomControls, ...] = Field(default=(), exclude_if=lambda controls: not controls)
    rivals: tuple[BoostRival, ...] = Field(default=(), exclude_if=lambda rivals: not rivals)
    clustered: OverClusters | None = Field(default=None, exclude_if=lambda clustered: clustered is None)


class EvaluatedTask(Value):
    """One task: the unedited model and every edit on the same items.

    Attributes:
        kind: `generate`, `choose`, or `score` for running text, which is measured by perplexity.
        chance: the accuracy of guessing in 0…1; None for perplexity or where it is not known.
        shared: what items share; None where their groups are no clusters.
    """

    name: str
    role: Literal["skill", "control"] | None
    kind: str
    items: int
    chance: Number
    baseline: Baseline
    cells: tuple[TaskUnderEdit, ...]
    shared: Sharing | None = Field(default=None, exclude_if=lambda shared: shared is None)

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

    edit: str = column()
    accuracy: float = column("Accuracy on validation items", SHARE)
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

    @property
    def methods(self) -> list[str]:
        """Names of methods in the order of their colours."""
        return list(dict.fromkeys(edit.method_name for edit in self.tried))

    def name_of(self, edit: str) -> str:
        """The name of an edit by its text form, with its number of texts where these differ; else the text form."""
        if edit not in self.by_edit:
            return edit
        known = self.by_edit[edit]
        texts = known.samples if self.several_samples else None
        return known.name + (f", {wording.counted(texts, 'text')}" if texts is not None else "")

    @cached_property
    def several_samples(self) -> bool:
        """Whether selections from different numbers of texts were tried."""
        return len({edit.samples for edit in self.tried if edit.samples is not None}) > 1

    def difference(self, edit: str, skill: str, control: str) -> Estimate | None:
        """The selectivity of an edit against a control; None where it was not measured."""
        place = (edit, skill, control)
        return next((d.difference for d in self.selectivity if (d.edit, d.skill, d.control) == place), None)
