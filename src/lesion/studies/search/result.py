"""The result of a search: its candidates, those that were chosen, what luck gives, and what the test items say.

Accuracies and shares are in 0…1, log-probabilities in nats.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.rows import Row, column
from lesion.report.values import CHANGE, NATS, SHARE, Estimate, Number, Value
from lesion.studies.search.study import Family, SearchStudy
from lesion.studies.truncation.result import SearchedModel

Verdict = Literal["no worse", "worse", "cannot be told"]
"""Of a loss and a margin: whether the interval lies within it, beyond it, or about it."""


class TaskSplit(Value):
    """A task or control, and how many of its items screened, chose and tested."""

    name: str
    kind: str
    control: bool
    screen_items: int
    choice_items: int
    test_items: int


class CandidateRow(Row):
    """One candidate, and what became of it.

    Attributes:
        contest: `better`, or `drop 3`: among which it is chosen.
        first: the first block that it changes, of `length`.
        how: what is done, whatever the blocks.
        model, edit: the network in which it was evaluated, and the edit of that network, as the answers name them.
        screen: mean log-probability of the gold answers minus the unedited model's, on so many items of the screen.
        gain: accuracy on the items that choose minus the unedited model's, mean over tasks.
        gold_gain: likewise the log-probability of the gold answers.
    """

    name: str = column("Candidate", label=True)
    family: Family = column("Family")
    contest: str = column()
    first: int = column("First block")
    length: int = column()
    how: str = column()
    model: str = column()
    edit: str = column()
    screen: Number = column("Screen", NATS, default=None)
    screened: int | None = column("Items of the screen", default=None)
    gain: Number = column("Gain", CHANGE, default=None)
    gold_gain: Number = column("Gold", NATS, default=None)
    state: str = column("State")
    chosen: bool = column(default=False)


class Luck(Row):
    """What the best of so many candidates gains by luck: `share` of draws gain at least so much."""

    gain: float = column("Gain at least", CHANGE)
    share: float = column("Share of draws", SHARE)


class ContestChoice(Value):
    """What was chosen in one contest.

    Attributes:
        candidate: the best on the items that choose; None: nothing could be chosen.
        nothing: why nothing was chosen.
        candidates, finalists: how many there were, and how many were left by the screen.
        gain: of the best, on the items that choose; mean over tasks.
        luck: of those that are to be better, the gain of the best of the finalists where none differs: median and
            the ends of the middle 95 %, with the p of the best.
        order, edit: as `lesion apply` takes them; empty: the model's own, none.
    """

    contest: str
    candidate: str | None = None
    nothing: str | None = None
    candidates: int
    finalists: int
    gain: Number = None
    luck: Estimate | None = None
    order: str = ""
    edit: str = ""

    @property
    def length(self) -> int:
        """Of a drop, how many blocks are left out; else 0."""
        return int(self.contest.removeprefix("drop ")) if self.contest.startswith("drop ") else 0


class CandidateTest(Row):
    """A chosen candidate on the test items of a task or control; gains are against the unedited model there.

    Attributes:
        gain: of accuracy, with the p of McNemar's exact test; corrected by Holm where there are several tasks. Of a
            control or a dropped run the interval is corrected for their number (Bonferroni), and `verdict` follows from
            it alone.
    """

    task: str = column("Task", label=True)
    contest: str = column()
    candidate: str = column("Candidate", label=True)
    model: str = column()
    edit: str = column()
    control: bool = column("Control")
    items: int = column("Items")
    baseline: float = column("Unedited", SHARE)
    accuracy: Estimate = column("Accuracy", SHARE)
    gain: Estimate = column("Gain", CHANGE, p="p")
    gold_gain: Estimate | None = column("Gold", NATS, default=None)
    verdict: Verdict | None = column("Within the margin", default=None)
    one_answer: bool = column("One answer", default=False)

    @property
    def shown(self) -> int:
        """The side of 0 on which the gain is shown to lie; 0: it is not shown to differ from 0."""
        p = self.gain.p if self.gain.p_corrected is None else self.gain.p_corrected
        return self.gain.side if (p or 0.0) <= wording.ALPHA and not self.one_answer else 0


class RandomCandidate(Row):
    """A random candidate of the kind of the chosen one, on the test items of one task.

    Attributes:
        beyond: gain of the chosen one minus that of the rival, on the same items.
    """

    task: str = column("Task", label=True)
    contest: str = column()
    name: str = column("Rival", label=True)
    model: str = column()
    edit: str = column()
    items: int = column("Items")
    accuracy: Estimate = column("Accuracy", SHARE)
    gain: Estimate = column("Gain", CHANGE)
    beyond: Estimate = column("The chosen adds", CHANGE, p="p")


class CandidateGain(Row):
    """A bar of the first figure: the chosen candidate, its rivals, and what luck gives.

    Attributes:
        what: `test items`, `random candidates`, `items that chose it` or `luck`.
    """

    task: str = column("Task", label=True)
    name: str = column("Candidate", label=True)
    what: str
    gain: Estimate = column("Gain", CHANGE)


class SearchSummary(Summary):
    """All numbers of a search: what `summary.json` holds.

    Attributes:
        earlier: other searches whose choices were tested in this folder before, on the same items. For them p of tests
            are multiplied and intervals widened (Bonferroni).
    """

    kind: Literal["search"] = "search"
    approximate: str | None = None
    earlier: int = Field(default=0, exclude_if=lambda count: not count)
    study: SearchStudy
    model: SearchedModel
    tasks: tuple[TaskSplit, ...]
    candidates: tuple[CandidateRow, ...]
    choices: tuple[ContestChoice, ...]
    luck: tuple[Luck, ...] = ()
    tests: tuple[CandidateTest, ...] = ()
    rivals: tuple[RandomCandidate, ...] = ()

    def of(self, contest: str, *, control: bool = False) -> list[CandidateTest]:
        """The tests of a contest on tasks, or on controls."""
        return [test for test in self.tests if test.contest == contest and test.control == control]

    def rivals_of(self, test: CandidateTest) -> list[RandomCandidate]:
        """The rivals of a tested candidate on its task."""
        return [each for each in self.rivals if (each.contest, each.task) == (test.contest, test.task)]
