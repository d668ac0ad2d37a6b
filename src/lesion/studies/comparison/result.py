"""The result of a comparison: what changed from one model or study to another, on the same items."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lesion.core.clustered_intervals import OverClusters, Sharing
from lesion.core.values import Summary
from lesion.edits.edit import BASELINE
from lesion.report.values import Estimate, Value
from lesion.studies.comparison.study import ComparisonStudy

UNEDITED = str(BASELINE)


class Side(Value):
    """One model of one folder.

    Attributes:
        label: what tables and charts call it; unique.
        folder: as given.
        place: the folder, relative to that of the comparison.
        engines: what answered, in words.
    """

    label: str
    folder: str
    place: str
    model: str
    fingerprint: str
    engines: tuple[str, ...]


class Counts(Value):
    """Items by what became of them from the first side to the second."""

    gained: int
    lost: int
    both_right: int
    both_wrong: int

    @property
    def changed(self) -> int:
        """Items whose verdict differs."""
        return self.gained + self.lost


class Compared(Value):
    """One task under one edit of each of two sides, a and b, on the items that both answered.

    Attributes:
        edit_a, edit_b: in text form; they differ where two edits of the same blocks are compared.
        items: how many both answered.
        a, b: accuracy with Wilson's interval; of a scored task the mean log-probability of an item, in nats.
        difference: b − a with its paired interval; p by McNemar's exact test (scored: Student's), corrected by Holm
            over all comparisons of unedited models, or of edits, on the task.
        counts: None for a scored task.
        extra_drop: the drop that the edit causes in b minus that in a, on the same items; None for the unedited models
            and where the edits differ. p by the exact sign-flip test, corrected by Holm over all edits of the task.
        shared: what the items share; None where their groups are no clusters, and for a scored task.
        clustered: the interval of the difference over these clusters.
    """

    task: str
    edit_a: str
    edit_b: str
    items: int
    a: Estimate
    b: Estimate
    difference: Estimate
    counts: Counts | None
    extra_drop: Estimate | None = None
    shared: Sharing | None = Field(default=None, exclude_if=lambda shared: shared is None)
    clustered: OverClusters | None = Field(default=None, exclude_if=lambda clustered: clustered is None)

    @property
    def unedited(self) -> bool:
        """Whether both models are as they are."""
        return self.edit_a == self.edit_b == UNEDITED

    @property
    def edit(self) -> str:
        """The edit, or both where they differ."""
        return self.edit_a if self.edit_a == self.edit_b else f"{self.edit_a} → {self.edit_b}"


class Drop(Value):
    """What an edit takes from one side, against the same side unedited, on the items that it answered under both."""

    side: str
    task: str
    edit: str
    items: int
    value: Estimate
    drop: Estimate


class Pair(Value):
    """Two sides by their labels, and all that was compared of them.

    Attributes:
        same_model: whether both are the same weights.
    """

    a: str
    b: str
    same_model: bool
    cells: tuple[Compared, ...]

    def of_task(self, task: str) -> list[Compared]:
        """The comparisons of a task: unedited first, then the edits in the order of their blocks."""
        return [cell for cell in self.cells if cell.task == task]

    def unedited(self, task: str) -> Compared | None:
        """The unedited models on a task."""
        return next((cell for cell in self.of_task(task) if cell.unedited), None)


class TaskItems(Value):
    """A task that is compared.

    Attributes:
        scored: whether its answers are log-probabilities, so that nothing is right or wrong.
        sides: how many sides answered it unedited.
        items: those that every side has.
        answered: those of them that every side answered unedited.
        wrong, right: of these, how many every side gets wrong, or right; None for a scored task.
    """

    name: str
    scored: bool
    sides: int
    items: int
    answered: int
    wrong: int | None
    right: int | None


class ComparisonSummary(Summary):
    """All numbers of a comparison: what `summary.json` holds.

    Attributes:
        study: which folders.
        sides: the models of the folders, in their order.
        tasks: those in common.
        pairs: the first side, or the same model of the first folder, with each of the others.
        drops: every edit of every side.
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
    def compared(self) -> list[str]:
        """The tasks by name."""
        return [task.name for task in self.tasks]

    def task(self, name: str) -> TaskItems:
        """A task by its name."""
        return next(task for task in self.tasks if task.name == name)
