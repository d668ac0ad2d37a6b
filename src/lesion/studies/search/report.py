"""The result of a search: how its rows are drawn, and what is claimed of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from lesion.report import wording
from lesion.report.blocks import Check, Folded, Prose
from lesion.report.checks import FEW, GAIN
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text
from lesion.report.table import Table
from lesion.report.values import CHANGE, SHARE, Estimate
from lesion.report.wording import counted
from lesion.studies.search.candidates import BETTER
from lesion.studies.search.result import (
    CandidateGain,
    CandidateRow,
    CandidateTest,
    ContestChoice,
    Luck,
    RandomCandidate,
    SearchSummary,
)
from lesion.studies.truncation.report import SearchedResult

VERBS = {1: "rises", -1: "falls", 0: "goes"}


def _margin(summary: SearchSummary) -> str:
    return f"{summary.study.margin:g} points"


def _moves(test: CandidateTest) -> str:
    ends = f"from {SHARE.text(test.baseline)} to {SHARE.text(test.accuracy.value)}"
    return f"With {test.candidate}, {test.task} {VERBS[test.shown]} {ends} on test items"


@rule
def what_the_test_shows(summary: SearchSummary) -> Iterable[Claim]:
    """The candidate that was to make the model better, on the test items of every task, beside random ones of its kind.

    Says: With C, T rises from A to B on test items. | With C, T falls from A to B on test items. | With C, T goes from
    A to B on test items: not shown to be a change. | With C the model gives nearly always one answer to T. | No
    candidate has more items right than the unedited model on the items that choose.
    Needs: an interval that excludes 0 and an exact paired p of at most .05, corrected over tasks by Holm
    """
    for choice in summary.choices:
        if choice.contest == BETTER and choice.nothing is not None:
            yield Claim((choice.nothing,))
    for test in sorted(summary.of(BETTER), key=lambda test: (-test.shown % 3, test.task)):
        if test.one_answer:
            yield Claim((f"With {test.candidate} the model gives nearly always one answer to {test.task}.",), (test,))
            continue
        unshown = ": not shown to be a change" * (test.shown == 0)
        size = (
            f"Accuracy changes by {CHANGE.text(test.gain)} ({p_text(test.gain)}, {counted(test.items, 'test item')})."
        )
        yield Claim((f"{_moves(test)}{unshown}.", size, *_beside_rivals(summary, test)), (test,))


def _beside_rivals(summary: SearchSummary, test: CandidateTest) -> Iterator[str]:
    gains = [rival.gain.value or 0.0 for rival in summary.rivals_of(test)]
    if gains:
        kind = f"{counted(len(gains), 'random candidate')} of the kind, {_how(summary, test)},"
        yield f"{kind} change it by {_mean(gains)} on average."


def _how(summary: SearchSummary, test: CandidateTest) -> str:
    return next(row.how for row in summary.candidates if row.name == test.candidate)


def _mean(gains: list[float]) -> str:
    return CHANGE.text(float(np.mean(gains)))


@rule
def what_can_be_left_out(summary: SearchSummary) -> Iterable[Claim]:
    """The cheapest run of blocks of every length, against a margin, on the test items of every task.

    Says: With C left out, the model loses less than the margin on T. | No run left out is shown to cost less than the
    margin on T.
    Needs: an interval on test items, corrected for the number of tests (Bonferroni), that lies above the loss of the
    margin
    """
    drops = [(choice, test) for choice in summary.choices if choice.length for test in summary.of(choice.contest)]
    for task in dict.fromkeys(test.task for _, test in drops):
        own = [(choice, test) for choice, test in drops if test.task == task]
        kept = [(choice, test) for choice, test in own if test.verdict == "no worse" and not test.one_answer]
        if kept:
            choice, test = max(kept, key=lambda pair: pair[0].length)
            first = f"With {test.candidate}, {summary.model.name} loses less than {_margin(summary)} on {task}"
        else:
            choice, test = max(own, key=lambda pair: pair[1].gain.value or 0.0)
            first = f"No run left out is shown to cost less than {_margin(summary)} on {task}"
        sentences = [f"{first}.", f"{_moves(test)}: {CHANGE.text(test.gain)} ({counted(test.items, 'test item')})."]
        gains = [rival.gain.value or 0.0 for rival in summary.rivals_of(test)]
        if gains:
            runs = counted(len(gains), "random run")
            sentences.append(f"{runs} of {counted(choice.length, 'block')} left out: {_mean(gains)} on average.")
        yield Claim(tuple(sentences), tuple(test for _, test in own))


@rule
def whether_controls_are_worse(summary: SearchSummary) -> Iterable[Claim]:
    """Whether a chosen candidate leaves the controls no worse than a margin.

    Says: T is no worse with C: it loses less than the margin. | T is worse with C: it loses more than the margin. |
    Whether T loses the margin with C cannot be told.
    Needs: an interval, corrected for the number of such tests (Bonferroni), that lies on one side of the margin's loss
    """
    for test in (test for test in summary.tests if test.control and test.verdict):
        change = f"{CHANGE.text(test.gain)}, {counted(test.items, 'item')}"
        if test.verdict == "cannot be told":
            text = f"Whether {test.task} loses {_margin(summary)} with {test.candidate} cannot be told ({change})."
        else:
            than = "less" if test.verdict == "no worse" else "more"
            loses = f"it loses {than} than {_margin(summary)} ({change})"
            text = f"{test.task} is {test.verdict} with {test.candidate}: {loses}."
        yield Claim((text,), (test,))


@rule
def what_luck_gives(summary: SearchSummary) -> Iterable[Claim]:
    """The gain of the chosen candidate where it was chosen, beside that of the best of so many by luck.

    Says: On the items that chose it, C gains X, partly by luck: by luck alone the best of N gains Y.
    Needs: signs of the paired gains drawn anew item by item, the same for all candidates, and the choice repeated; the
    screen looked at other items
    """
    for choice in summary.choices:
        if choice.luck is not None and choice.nothing is None:
            first = f"On the items that chose it, {choice.candidate} gains {CHANGE.text(choice.gain)}"
            luck = (
                f"by luck alone the best of {counted(choice.finalists, 'candidate')} gains {CHANGE.text(choice.luck)}"
            )
            row = next(row for row in summary.candidates if row.name == choice.candidate)
            yield Claim((f"{first}; {luck} (p {wording.p_value(choice.luck.p)}).",), (row,))


READING = (
    "A screen by the log-probability of the gold answers halves the candidates on items of its own; accuracy on other"
    " items chooses; the test items are seen by neither. A gain on the items that chose is what the best of many gives"
    " also where there is nothing to find.",
    "By luck: the sign of what an item gains is drawn anew, the same for all candidates, and the choice is repeated.",
    "Cheapest: of every length the run whose loss is smallest on the items that choose. That it is no worse than a"
    " margin says nothing of other tasks; give them as controls.",
)


@dataclass(frozen=True)
class SearchResult(SearchedResult[SearchSummary]):
    """A search over layouts: its numbers, and how what it chose is written as a checkpoint."""

    SUMMARY = SearchSummary
    EYEBROW = "search of layouts"
    READING = READING
    TESTED = (
        "Candidates were chosen on other items than they are tested on; gains by McNemar's exact test, p corrected over"
        " tasks (Holm); losses within a margin by intervals corrected for their number (Bonferroni). Brackets: {level}"
        " intervals; of random candidates the range, of luck the middle part of the draws."
    )

    @override
    def parts(self) -> list[Part]:
        return list(_parts(self.summary, tuple(self.written.values())))

    @override
    def _with_proof(self, parts: Sequence[Part]) -> Iterator[Part]:
        """As they are: a block that can be left out may well be one without which nothing is seen to change."""
        yield from parts

    @override
    def split(self) -> list[tuple[str, int, int]]:
        tasks = [task for task in self.summary.tasks if not task.control]
        return [(task.name, task.screen_items + task.choice_items, task.test_items) for task in tasks]

    @override
    def checks(self) -> list[Check]:
        checks = list(_checks(self.summary))
        unproved = self._proofs.unproved() if self._proofs else ()
        if unseen := sorted({test.edit for test in self.summary.tests}.intersection(unproved)):
            checks.append(Check("open", f"Nothing is seen to change while decoding under {wording.listed(unseen)}."))
        return checks

    @property
    def written(self) -> dict[str, str]:
        """By the name of every chosen candidate, the command that writes it as an ordinary checkpoint."""
        model = self.summary.model.name
        chosen = [choice for choice in self.summary.choices if choice.nothing is None]
        return {str(each.candidate): f"lesion apply {shlex.quote(model)} {options_of(each)}" for each in chosen}


def options_of(choice: ContestChoice) -> str:
    """Of a choice, the options of `lesion apply`."""
    words = [*(["--order", choice.order] if choice.order else []), *(["--edit", choice.edit] if choice.edit else [])]
    return shlex.join([*words, "--out", "best"])


def _parts(summary: SearchSummary, commands: tuple[str, ...]) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks if not task.control])
    better = any(choice.contest == BETTER for choice in summary.choices)
    drops = any(choice.length for choice in summary.choices)
    asked = [f"make {summary.model.name} better at {tasks}"] * better
    title = f"Does another layout {asked[0]}?" if asked else f"Which blocks can {summary.model.name} do without?"
    tests = Rows("test", summary.tests, (CandidateTest,), "On test items", "p: McNemar's exact test.", marked="control")
    rivals = Rows("rivals", summary.rivals, (RandomCandidate,), "Random candidates of the kind, on test items")
    yield Part(
        title,
        Rows(
            "compared", list(_compared(summary)), (CandidateGain,),
            f"Gains over the unedited model{', of random candidates with their range' * bool(summary.rivals)}",
        ),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="gains",
                caption="Gain in accuracy over the unedited model. Of random candidates the mean and range, of luck the"
                " median and the middle part of the draws.",
            ),
        ),
        (*what_the_test_shows(summary), *what_can_be_left_out(summary)),
        own=(
            *(Folded(rows.title, (Table.of(rows),)) for rows in (tests, rivals) if rows.records),
            *([Folded("Write it as a checkpoint", (Prose(items=commands),))] if commands else []),
        ),
        wide=True,
    )  # fmt: skip
    if any(test.control for test in summary.tests):
        yield Part(
            "Are the controls no worse?", None, (), whether_controls_are_worse(summary), short="Controls", wide=True
        )
    rows = Rows(
        "candidates", summary.candidates, (CandidateRow,), "All candidates",
        "Screen: log-probability of gold answers. Gain: on the items that choose.", marked="chosen",
    )  # fmt: skip
    look: dict[str, object] = {"over": "first", "up": "how", "panel": "family", "boxed": "chosen", "hue": "gain"}
    seen = any(row.screen is not None for row in summary.candidates)
    maps = (
        Map("screen", full=1.0 if better else None, name="screen", caption="What the screen saw, in nats.", **look),  # type: ignore[arg-type]
        Map("gain", full=0.2, name="choice", caption="Gains on the items that choose; full at 20 points.", **look),  # type: ignore[arg-type]
    )
    yield Part(
        "Which candidates?",
        rows,
        maps if seen else maps[1:],
        what_luck_gives(summary),
        short="Candidates",
        wide=drops or better,
    )
    if summary.luck:
        yield Part(
            "What does the best of so many gain by luck?",
            Rows("luck", summary.luck, (Luck,), "By luck"), (Curves("share", over="gain", name="luck"),), short="Luck",
        )  # fmt: skip


def _compared(summary: SearchSummary) -> Iterator[CandidateGain]:
    """The chosen candidates on test items, their rivals, where they were chosen, and what luck gives there."""
    chosen = {choice.contest: choice for choice in summary.choices}
    for test in (test for test in summary.tests if not test.control):
        choice, rivals = chosen[test.contest], summary.rivals_of(test)
        yield CandidateGain(task=test.task, name=test.candidate, what="test items", gain=test.gain)
        if rivals:
            gains = [rival.gain.value or 0.0 for rival in rivals]
            name = f"{len(gains)} random: {_how(summary, test)}"
            mean = Estimate(value=float(np.mean(gains)), low=min(gains), high=max(gains))
            yield CandidateGain(task=test.task, name=name, what="random candidates", gain=mean)
        if choice.contest == BETTER:
            where = "items that chose it"
            gain = Estimate(value=choice.gain)
            yield CandidateGain(task=test.task, name=f"{test.candidate}, chosen on these", what=where, gain=gain)
            if choice.luck is not None:
                name = f"best of {choice.finalists} by luck alone"
                yield CandidateGain(task=test.task, name=name, what="luck", gain=choice.luck)


def _checks(summary: SearchSummary) -> Iterator[Check]:
    tests = list({test.task: test for test in summary.tests if not test.control}.values())
    better = any(test.contest == BETTER for test in tests)
    if full := [test.task for test in tests if better and (1 - test.baseline) * test.items < GAIN - 0.5]:
        yield Check("bad", f"Fewer than {GAIN} test items are wrong, so that no gain can show: {wording.listed(full)}.")
    if none := [test.task for test in tests if test.baseline == 0]:
        yield Check("bad", f"The unedited model has no test item right: {wording.listed(none)}.")
    if few := [test.task for test in tests if test.items < FEW]:
        yield Check("bad", f"Fewer than {FEW} test items, so that chance decides much: {wording.listed(few)}.")
    if collapsed := [f"{test.task} ({test.candidate})" for test in summary.tests if test.one_answer]:
        yield Check("bad", f"Nearly always one answer: {wording.listed(collapsed)}.")
    if summary.tests and summary.earlier:
        times = "once" if summary.earlier == 1 else f"{summary.earlier} times"
        yield Check("open", f"Other searches were tested on these items {times} before: p and intervals allow for it.")
    elif summary.tests:
        yield Check("good", "Chosen on other items than it is tested on.")
    if held := [choice for choice in summary.choices if choice.nothing is None and _held(summary, choice)]:
        yield Check(
            "open", f"{wording.capital(held[-1].candidate or '')} as a checkpoint:", "apply", options_of(held[-1])
        )


def _held(summary: SearchSummary, choice: ContestChoice) -> bool:
    """Whether the test bears a choice out: better on a task and worse on none, or no worse on all; no control worse."""
    tests, controls = summary.of(choice.contest), summary.of(choice.contest, control=True)
    sides = {test.shown for test in tests}
    better = choice.contest == BETTER and 1 in sides and -1 not in sides
    cheap = choice.contest != BETTER and all(test.verdict == "no worse" for test in tests)
    if any(test.verdict == "worse" for test in controls):
        return False
    return bool(tests) and not any(test.one_answer for test in tests) and (better or cheap)
