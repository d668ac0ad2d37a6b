"""The numbers of a search: its candidates, its choices, and what test items say of them.

Accuracies and shares are in 0…1, log-probabilities in nats.
"""

from __future__ import annotations

import math
from typing import Literal

from lesion.core.values import Summary
from lesion.report.rows import Row, column, derived
from lesion.report.values import CHANGE, FIGURES, NATS, SHARE, Estimate, Number, Value, decimals, omitted
from lesion.report.wording import counted
from lesion.studies.search.study import Family, SearchStudy
from lesion.studies.truncation.result import GAIN, SearchedModel, Unit, forbidding

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
        first: the first block that it changes, of `length`.
        how: what is done, whatever the blocks.
        model, edit: the network in which it was evaluated, and the edit of that network, as the answers name them.
        screen: mean log-probability of the gold answers minus the unedited model's, on so many items of the screen.
        gain: accuracy on the items that choose minus the unedited model's, mean over tasks; of running text (`unit`
            nats) the mean log-probability of a token.
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
    gain: Number = column("Gain", GAIN, default=None)
    gold_gain: Number = column("Gold", NATS, default=None)
    state: str = column("State")
    chosen: bool = column(default=False)
    unit: Unit = column(default="points", omitted=True)


class ContestChoice(Value):
    """What was chosen in one contest.

    Attributes:
        candidate: the best on the items that choose; nothing: why it was not chosen.
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


class OfChosen(Row):
    """A chosen candidate on a task or control."""

    task: str = column("Task", label=True)
    contest: str = column()
    candidate: str = column("Candidate", label=True)
    model: str = column()
    edit: str = column()


class CandidateTest(OfChosen):
    """A chosen candidate on the test items of a task or control; gains are against the unedited model there.

    Attributes:
        gain: of accuracy, with the p of McNemar's exact test; corrected by Holm where there are several tasks. Of a
            control or a dropped run the interval is corrected for their number (Bonferroni), and `verdict` follows from
            it, where there is more than the margin above guessing to lose.
    """

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
        return 0 if self.one_answer else self.gain.shown


RATIO = decimals(3)


def gain_of(ratio: Estimate) -> Estimate:
    """Of a ratio of perplexities the gain in log-probability of a token, nats."""
    logs = (None if x is None else math.log(x) if x else -math.inf for x in (ratio.value, ratio.low, ratio.high))
    return Estimate(**dict(zip(("value", "low", "high"), logs, strict=True))).negative


class TextTest(OfChosen):
    """A chosen candidate on the test texts of a task or control of running text.

    Attributes:
        texts, tokens: how many were read.
        baseline, perplexity: of the unedited model, and with the candidate.
        ratio: of the second to the first, with an interval that is corrected for the number of such tests, controls and
            dropped runs (Bonferroni); of the last two `verdict` follows from it: no worse where it rises by less than
            the margin, in percent.
        rivals: of a task, the same ratio of random candidates of the kind.
    """

    texts: int = column("Texts")
    tokens: int = column("Tokens")
    baseline: Number = column("Unedited", FIGURES)
    perplexity: Number = column("Perplexity", FIGURES)
    ratio: Estimate = column("Ratio", RATIO)
    verdict: Verdict | None = column("Within the margin", default=None)
    control: bool = omitted(True)
    rivals: tuple[Number, ...] = omitted(())

    @property
    def gain(self) -> Estimate:
        """In log-probability of a token, nats."""
        return gain_of(self.ratio)

    @property
    def size(self) -> str:
        """`12.31 to 11.80: × 0.959 [0.941, 0.977], 100 texts`."""
        ends = f"{FIGURES.text(self.baseline)} to {FIGURES.text(self.perplexity)}"
        return f"{ends}: × {RATIO.text(self.ratio)}, {counted(self.texts, 'text')}"


class RandomCandidate(Row):
    """A random candidate of the kind of the chosen one on a task's test items; `beyond`: what the chosen one adds."""

    task: str = column("Task", label=True)
    contest: str = column()
    name: str = column("Rival", label=True)
    model: str = column()
    edit: str = column()
    items: int = column("Items")
    accuracy: Estimate = column("Accuracy", SHARE)
    gain: Estimate = column("Gain", CHANGE)
    beyond: Estimate = column("The chosen adds", CHANGE, p="p")


class Forbidden(Row):
    """The unedited model with its most frequent wrong first tokens forbidden, on a task's test items.

    It stands beside the gain of a chosen candidate that the test shows.

    Attributes:
        tokens: their texts; so many as are best on the items that screen and choose.
        helps: whether that is better there than to forbid none.
        gain: over the unedited model.
        instead: what the chosen candidate has more, without tokens forbidden.
        both: accuracy of the candidate with these tokens forbidden; beyond: that minus `accuracy`.
    """

    task: str = column("Task", label=True)
    contest: str = column()
    candidate: str = column("Candidate", label=True)
    items: int = column("Items")
    tokens: tuple[str, ...] = ()
    helps: bool = column("Helps where it was chosen")
    accuracy: Estimate = column("Accuracy", SHARE)
    gain: Estimate = column("Gain", CHANGE, p="p_gain")
    instead: Estimate = column("Candidate − forbidding", CHANGE, p="p_instead")
    both: Estimate = column("Both", SHARE)
    beyond: Estimate = column("Candidate adds", CHANGE, p="p")

    @derived.column("Forbidden", label=True)
    def name(self) -> str:
        """In words: `3 wrong first tokens forbidden (“ the”, “ her”, “ a”)`."""
        return forbidding(self.tokens)

    @property
    def takes(self) -> bool:
        """Whether forbidding helps, and the candidate is not shown to add to it."""
        return self.helps and self.beyond.shown != 1


class AtTemperature(OfChosen):
    """A perplexity that falls, beside that of the unedited model at a temperature, on a task's test texts.

    Attributes:
        temperature, own: by which the logits of the unedited model are divided, and those with the candidate: the best
            on the texts that screen and choose.
        perplexity: of the unedited model at its temperature; ratio: that to the one without.
        instead: of the candidate's perplexity to `perplexity`; beyond: the same with the candidate at its own
            temperature.
    """

    texts: int = column("Texts")
    temperature: float = column("Temperature", FIGURES)
    own: float = column("With the candidate", FIGURES)
    perplexity: Number = column("Perplexity at it", FIGURES)
    ratio: Estimate = column("Ratio", RATIO)
    instead: Estimate = column("Candidate ÷ temperature", RATIO)
    beyond: Estimate = column("Both ÷ temperature", RATIO)

    @property
    def helps(self) -> bool:
        """Whether a temperature is better than none on the texts that screen and choose."""
        return self.temperature != 1

    @property
    def takes(self) -> bool:
        """Whether a temperature helps, and the candidate is not shown to add to it."""
        return self.helps and (self.beyond.high is None or self.beyond.high >= 1)


class SearchSummary(Summary):
    """All numbers of a search: what `summary.json` holds.

    Attributes:
        forbidden: for every test that shows a gain on a task whose answers are said, not chosen among texts.
        temperatures: for every test that shows a lower perplexity of a task.
        earlier: other searches whose choices were tested in this folder before, on the same items. For them p of tests
            are multiplied and intervals widened (Bonferroni).
    """

    kind: Literal["search"] = "search"
    approximate: str | None = None
    earlier: int = omitted(0)
    study: SearchStudy
    model: SearchedModel
    tasks: tuple[TaskSplit, ...]
    candidates: tuple[CandidateRow, ...]
    choices: tuple[ContestChoice, ...]
    tests: tuple[CandidateTest, ...] = ()
    texts: tuple[TextTest, ...] = omitted(())
    rivals: tuple[RandomCandidate, ...] = ()
    forbidden: tuple[Forbidden, ...] = omitted(())
    temperatures: tuple[AtTemperature, ...] = omitted(())

    @property
    def every_test(self) -> tuple[CandidateTest | TextTest, ...]:
        """The tests on tasks and controls, of accuracy and then of perplexity."""
        return *self.tests, *self.texts

    def of(self, contest: str, *, control: bool = False) -> list[CandidateTest]:
        """The tests of a contest on tasks, or on controls."""
        return [test for test in self.tests if test.contest == contest and test.control == control]

    def texts_of(self, contest: str) -> list[TextTest]:
        """The tests of a contest on tasks of running text."""
        return [text for text in self.texts if text.contest == contest and not text.control]

    def worse_beside(self, test: CandidateTest | TextTest) -> list[str]:
        """The other tasks and controls that are shown to lose more than the margin with the same candidate."""
        own = [each for each in self.every_test if each.contest == test.contest and each.task != test.task]
        return [each.task for each in own if each.verdict == "worse"]

    def gains_of_rivals(self, test: CandidateTest | TextTest) -> list[float]:
        """What the rivals of a tested candidate gain on its task; of perplexities those that are finite."""
        if isinstance(test, TextTest):
            return [-math.log(rival) for rival in test.rivals if rival]
        own = [each for each in self.rivals if (each.contest, each.task) == (test.contest, test.task)]
        return [rival.gain.value or 0.0 for rival in own]

    def without_tokens(self, test: CandidateTest | TextTest) -> Forbidden | None:
        """Beside the gain of a test, that of forbidding first tokens."""
        own = (row for row in self.forbidden if (row.contest, row.task) == (test.contest, test.task))
        return next(own, None)

    def at_temperature(self, text: OfChosen) -> AtTemperature | None:
        """Beside a perplexity that falls, that of the unedited model at a temperature."""
        own = (row for row in self.temperatures if (row.contest, row.task) == (text.contest, text.task))
        return next(own, None)

    def row(self, candidate: str) -> CandidateRow:
        """A candidate by its name."""
        return next(row for row in self.candidates if row.name == candidate)
