"""The result of a comparison: what changed from one model or study to another, on the same items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.core.values import Summary
from lesion.edits.edit import BASELINE
from lesion.report.rows import Row, column, derived
from lesion.report.values import CHANGE, POINTS, SHARE, ByUnit, Estimate, Value, decimals, omitted
from lesion.studies.comparison.study import ComparisonStudy

UNEDITED = str(BASELINE)
Unit = Literal["points", "nats", "score"]
"""Of differences: points of accuracy, log-probabilities, or whatever scores a log has."""
LEVEL = ByUnit({"points": SHARE, "nats": decimals(3, "nats"), "score": decimals(3)})
DIFFERENCE = ByUnit({"points": CHANGE, "nats": decimals(3, "nats", signed=True), "score": decimals(3, signed=True)})
DROP = ByUnit({"points": POINTS, "nats": decimals(3, "nats"), "score": decimals(3)})


class Side(Value):
    """One model of one folder.

    Attributes:
        label: what tables and charts call it; unique.
        place: the folder, relative to that of the comparison.
        engines: what answered, in words.
    """

    label: str
    folder: str
    place: str
    model: str
    fingerprint: str
    engines: tuple[str, ...]


class Counts(Row):
    """Items by what became of them from the first side to the second."""

    gained: int = column()
    lost: int = column()
    both_right: int = column()
    both_wrong: int = column("Wrong in both")

    @derived.column("Changed", key="gained_lost")
    def gains_and_losses(self) -> str:
        """Items that only the second side has right, and that only the first has."""
        return f"{self.gained} gained, {self.lost} lost"

    @property
    def changed(self) -> int:
        """Items whose verdict differs."""
        return self.gained + self.lost


class Clustered(OverClusters):
    """The interval of a difference over the clusters that items share."""

    low: float = column(key="low_clustered")
    high: float = column(key="high_clustered")


class Unscored(Value):
    """What a difference is where answers without a score count as wrong.

    Attributes:
        items: how many items of the first side the second has no answer with a score to, or not every one.
        of: items of the first side.
        low, high: the widest of the intervals, paired and over clusters.
    """

    items: int
    of: int
    value: float
    low: float
    high: float


class Compared(Row):
    """One task under one edit of each of two sides, a and b, on the items that both answered.

    Attributes:
        edit_a, edit_b: in text form; they differ where two edits of the same blocks are compared.
        a, b: accuracy with Wilson's interval; of a scored task the mean score of an item, such as its log-probability.
        difference: b − a with its paired interval; p by McNemar's exact test (log-probabilities: Student's; other
            scores: sign flips), corrected by Holm over all comparisons of unedited models, or of edits, on the task.
        counts: None for a scored task.
        score_unit: of a scored task, what its scores are in; points for shares of several answers to an item.
        extra_drop: the drop that the edit causes in b minus that in a, on the same items; None for the unedited models
            and where the edits differ. p by the exact sign-flip test, corrected by Holm over all edits of the task.
        shared: what the items share; None where their groups are no clusters, and for a scored task.
        clustered: the interval of the difference over these clusters.
        unscored: of the unedited models, where answers of b to items of a have no score.
    """

    task: str = column("Task", label=True)
    edit_a: str = column(key="edit")
    edit_b: str = column()
    difference: Estimate = column("Difference", DIFFERENCE, ends=("low", "high"), p="p")
    extra_drop: Estimate | None = column(
        "Extra drop", DIFFERENCE, default=None, ends=("extra_low", "extra_high"), p="extra_p"
    )
    a: Estimate = column("First", LEVEL, key="value_a", ends=("low_a", "high_a"))
    b: Estimate = column("Second", LEVEL, key="value_b", ends=("low_b", "high_b"))
    items: int = column("Items")
    counts: Counts | None
    score_unit: Unit = omitted("nats")
    shared: Sharing | None = omitted()
    clustered: Clustered | None = omitted()
    unscored: Unscored | None = omitted()

    @derived.column()
    def unit(self) -> Unit:
        """What differences are in."""
        return self.score_unit if self.counts is None else "points"

    @property
    def unedited(self) -> bool:
        """Whether both models are as they are."""
        return self.edit_a == self.edit_b == UNEDITED

    @property
    def edit(self) -> str:
        """The edit, or both where they differ."""
        return self.edit_a if self.edit_a == self.edit_b else f"{self.edit_a} → {self.edit_b}"

    @derived.column("Edit", label=True, key="compared")
    def edit_name(self) -> str:
        """The edit in words."""
        return "unedited" if self.unedited else self.edit

    @derived.column()
    def is_shown(self) -> bool:
        """Whether the difference stands after correction."""
        return self.difference.is_shown

    @property
    def size(self) -> float:
        """How much the sides differ; the unedited models come first."""
        return math.inf if self.unedited else abs(self.difference.value or 0.0)

    @property
    def outcome(self) -> str:
        """What the colour of its bar says."""
        return _outcome(self.difference, "second higher", "first higher")

    @property
    def extra_outcome(self) -> str:
        """The same of the extra drop."""
        return _outcome(self.extra_drop or Estimate(value=None), "larger drop in the second", "in the first")


def _outcome(estimate: Estimate, more: str, less: str) -> str:
    if not estimate.is_shown:
        return "no difference shown"
    return more if (estimate.value or 0.0) > 0 else less


class Drop(Row):
    """What an edit takes from one side, against the same side unedited, on the items that it answered under both."""

    side: str = column("Side", label=True)
    task: str = column("Task", label=True)
    edit: str = column("Edit", label=True)
    items: int = column("Items")
    value: Estimate = column("Under the edit", LEVEL)
    drop: Estimate = column("Drop", DROP, ends=("low", "high"))


class Pair(Row):
    """Two sides by their labels, and all that was compared of them.

    Attributes:
        same_model: whether both are the same weights.
        unanswered: tasks in points that only the first answered, unedited.
    """

    a: str = column("First side", label=True)
    b: str = column("Second side", label=True)
    same_model: bool
    cells: tuple[Compared, ...]
    unanswered: Mapping[str, Unscored] = omitted({})

    def of_task(self, task: str) -> list[Compared]:
        """The comparisons of a task: unedited first, then the edits in the order of their blocks."""
        return [cell for cell in self.cells if cell.task == task]

    @property
    def pair(self) -> str:
        """Both sides."""
        return f"{self.b} against {self.a}"


class Opened(Row):
    """Under which edit and against which side a click opens the answers in the browser of the page."""

    model: str
    edit: str


class TaskItems(Row):
    """A task that is compared.

    Attributes:
        scored: whether its answers have scores, such as log-probabilities, so that nothing is right or wrong.
        sides: how many sides answered it unedited.
        items: those that every side has.
        answered: those of them that every side answered unedited.
        wrong, right: of these, how many every side gets wrong, or right; None for a scored task.
    """

    name: str
    scored: bool
    score_unit: Unit = omitted("nats")
    sides: int
    items: int
    answered: int
    wrong: int | None = None
    right: int | None = None

    @derived.column()
    def unit(self) -> Unit:
        """What its drops are in."""
        return self.score_unit if self.scored else "points"


class ComparisonSummary(Summary):
    """All numbers of a comparison: what `summary.json` holds.

    Attributes:
        pairs: the first side, or the same model of the first folder, with each of the others.
        digest: of the answers that were compared, by which a report knows that a folder has not changed since.
    """

    kind: Literal["comparison"] = "comparison"
    study: ComparisonStudy
    sides: tuple[Side, ...]
    tasks: tuple[TaskItems, ...]
    pairs: tuple[Pair, ...]
    drops: tuple[Drop, ...]
    digest: str

    @property
    def leading(self) -> tuple[Pair, Compared] | None:
        """The largest difference of unedited models that is shown, of the first task that has one."""
        rows = [(pair, cell) for pair in self.pairs for cell in pair.cells if cell.unedited and cell.is_shown]
        of_task = [row for task in self.tasks for row in rows if row[1].task == task.name]
        first = [row for row in of_task if row[1].task == of_task[0][1].task]
        return max(first, key=lambda row: abs(row[1].difference.value or 0.0), default=None)

    def task(self, name: str) -> TaskItems:
        """A task by its name."""
        return next(task for task in self.tasks if task.name == name)
