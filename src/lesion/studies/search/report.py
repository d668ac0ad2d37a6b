"""The page of a search: what is claimed of its numbers, and how they are drawn."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.blocks import Check, Facts, Folded
from lesion.report.checks import FEW
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text
from lesion.report.table import Table
from lesion.report.values import CHANGE, FIGURES, SHARE, Estimate
from lesion.report.wording import counted
from lesion.studies.search.result import (
    RATIO,
    AtTemperature,
    CandidateRow,
    CandidateTest,
    ContestChoice,
    Forbidden,
    RandomCandidate,
    SearchSummary,
    TextTest,
    gain_of,
)
from lesion.studies.search.search import BETTER
from lesion.studies.truncation.report import (
    CHOSEN_APART,
    GAINS_FIRST,
    NO_HELP,
    UNSHOWN,
    VERBS,
    SearchedResult,
    but_forbidding,
    ends,
    grounds,
    moves,
    one_answer,
    size,
)
from lesion.studies.truncation.result import GAIN, Gained, Unit


def _margin(summary: SearchSummary) -> str:
    return f"{summary.study.margin:g} points"


def _moves(test: CandidateTest) -> str:
    return moves(test.candidate, test.task, test.shown, ends(test.baseline, test.accuracy.value))


def _taken(summary: SearchSummary, test: CandidateTest) -> str:
    """That forbidding first tokens takes a gain, where it does."""
    forbidden = summary.without_tokens(test)
    if forbidden is None or not forbidden.takes:
        return ""
    level = forbidden.accuracy.value or 0.0
    return but_forbidding(len(forbidden.tokens), level, as_much=level >= (test.accuracy.value or 0.0))


@rule
def what_the_test_shows(summary: SearchSummary) -> Iterable[Claim]:
    """The candidate that was to make the model better, on the test items of every task, beside random ones of its kind
    and, where it gains, beside forbidding the unedited model's frequent wrong first tokens.

    Says: With C, T rises from A to B on test items. | With C, T rises from A to B on test items, at a loss of more than
    the margin on K. | With C, T rises from A to B on test items, but forbidding N first tokens does as much (D). | With
    C, T rises from A to B on test items, but not shown to add to forbidding N first tokens (D). | With C, T falls from
    A to B on test items. | With C, T goes from A to B on test items: not shown to be a change. | With C the model gives
    nearly always one answer to T. | No candidate evaluated in full has more items right than the unedited model on the
    items that choose. | With C, the perplexity of T falls from A to B. | With C, the perplexity of T falls
    from A to B, but a temperature of D does as much (E). | With C, the perplexity of T falls from A to B, but not shown
    to add to a temperature of D (E). | No candidate evaluated in full has a lower perplexity than the unedited model on
    the texts that choose.
    Needs: an interval that excludes 0 and an exact paired p of at most .05, corrected over tasks by Holm; what a gain
    adds to forbidding tokens, by the same test, not corrected; of perplexity, and of what it adds to a temperature, an
    interval that excludes 1, corrected for the number of such tests (Bonferroni)
    """
    for choice in summary.choices:
        if choice.contest == BETTER and choice.nothing is not None:
            yield Claim((choice.nothing,))
    for test in sorted(summary.of(BETTER), key=lambda test: (GAINS_FIRST[test.shown], test.task)):
        if test.one_answer:
            yield Claim((one_answer(test.candidate, test.task),), (test,))
            continue
        further = UNSHOWN.get(test.shown, _at_a_loss(summary, test))
        first = f"{_moves(test)}{further}{_taken(summary, test)}."
        yield Claim((first, size(test.gain, test.items), *_beside_rivals(summary, test)), (test,))
    for text in sorted(summary.texts_of(BETTER), key=lambda text: (GAINS_FIRST[text.gain.side], text.task)):
        further = UNSHOWN.get(text.gain.side, _at_a_loss(summary, text))
        first = f"{_perplexity_moves(text)}{further}{_taken_by_temperature(summary, text)}."
        yield Claim((first, *_beside_temperature(summary, text), *_beside_other_runs(summary, text)), (text,))


def _at_a_loss(summary: SearchSummary, test: CandidateTest | TextTest) -> str:
    """Of which other tasks and controls more than the margin is lost; nothing where it is of none."""
    worse = summary.worse_beside(test)
    margin = "the margin" if any(text.task in worse for text in summary.texts) else _margin(summary)
    return f", at a loss of more than {margin} on {wording.listed(worse)}" if worse else ""


def _perplexity_moves(text: TextTest) -> str:
    return f"With {text.candidate}, the perplexity of {text.task} {VERBS[-text.gain.side]} from {text.size}"


def _taken_by_temperature(summary: SearchSummary, text: TextTest) -> str:
    """That a temperature takes the fall of a perplexity, where it does."""
    rival = summary.at_temperature(text)
    if rival is None or not rival.takes:
        return ""
    instead = f"a temperature of {FIGURES.text(rival.temperature)}"
    as_much = (rival.perplexity or math.inf) <= (text.perplexity or math.inf)
    how = f"{instead} does as much" if as_much else f"not shown to add to {instead}"
    return f", but {how} ({FIGURES.text(rival.perplexity)})"


def _beside_temperature(summary: SearchSummary, text: TextTest) -> Iterator[str]:
    """What a temperature does to the unedited model, and the candidate to that; a sentence."""
    rival = summary.at_temperature(text)
    if rival is None:
        return
    if not rival.helps:
        yield "A simple rival, a temperature, gains nothing on the texts that screen and choose."
        return
    alone = f"The unedited model at a temperature of {FIGURES.text(rival.temperature)}: × {RATIO.text(rival.ratio)}"
    own = "" if rival.own == 1 else f" at {FIGURES.text(rival.own)}"
    yield f"{alone}; the layout{own} multiplies that by {RATIO.text(rival.beyond)}."


def _beside_other_runs(summary: SearchSummary, text: TextTest) -> Iterator[str]:
    """What random candidates multiply a perplexity by; a sentence."""
    rivals = [math.inf if rival is None else rival for rival in text.rivals]
    if rivals:
        kind, ends = summary.row(text.candidate).how, dict.fromkeys(map(FIGURES.text, (min(rivals), max(rivals))))
        count, verb = counted(len(rivals), "random candidate"), "multiplies" if len(rivals) == 1 else "multiply"
        yield f"{wording.capital(count)} of the kind, {kind}, {verb} it by {' to '.join(ends)}."


def _beside_rivals(summary: SearchSummary, test: CandidateTest) -> Iterator[str]:
    """What random candidates gain, and forbidding first tokens; a sentence."""
    texts = []
    if gains := summary.gains_of_rivals(test):
        kind = f"{counted(len(gains), 'random candidate')} of the kind, {summary.row(test.candidate).how},"
        texts.append(f"{kind} change it by {CHANGE.text(float(np.mean(gains)))} on average")
    if test.shown == 1:
        texts.append(_beside_forbidding(summary, test))
    if texts:
        yield f"{wording.capital('; '.join(texts))}."


def _beside_forbidding(summary: SearchSummary, test: CandidateTest) -> str:
    forbidden = summary.without_tokens(test)
    if forbidden is None:
        chosen = any(task.kind == "choose" for task in summary.tasks if task.name == test.task)
        why = "its answers are chosen among texts" if chosen else "the unedited model says nothing wrong"
        return f"no first token can be forbidden: {why}"
    if not forbidden.helps:
        return NO_HELP
    alone = f"forbidding {counted(len(forbidden.tokens), 'first token')} gives {SHARE.text(forbidden.accuracy.value)}"
    beyond = f"{CHANGE.text(forbidden.beyond)} ({p_text(forbidden.beyond)})".removesuffix(" ()")
    return f"{alone}, and the layout adds {beyond}"


@rule
def what_can_be_left_out(summary: SearchSummary) -> Iterable[Claim]:
    """The cheapest run of blocks of every length, against a margin, on the test items of every task.

    Says: With C left out, the model loses less than the margin on T. | With C left out, the model loses less than the
    margin on T, but more on K. | No run left out is shown to cost less than the margin on T. | With C left out, the
    perplexity of T falls from A to B. | With C left out, the perplexity of T rises by less than the margin. | With C
    left out, the perplexity of T rises by less than the margin, but K loses more. | No run left out is shown to raise
    the perplexity of T by less than the margin.
    Needs: an interval on test items, corrected for the number of tests (Bonferroni), that lies above the loss of the
    margin, of which there is more above guessing
    """
    drops = [test for test in summary.tests if test.contest != BETTER and not test.control]
    for own in alike(drops, "task"):
        task = own[0].task
        kept = [test for test in own if test.verdict == "no worse" and not test.one_answer]
        if kept:
            harmless = [test for test in kept if not summary.worse_beside(test)]
            test = max(harmless or kept, key=lambda test: summary.row(test.candidate).length)
            first = f"With {test.candidate}, {summary.model.name} loses less than {_margin(summary)} on {task}"
            if worse := summary.worse_beside(test):
                first += f", but more on {wording.listed(worse)}"
        else:
            test = max(own, key=lambda test: test.gain.value or 0.0)
            first = f"No run left out is shown to cost less than {_margin(summary)} on {task}"
        change = f"{CHANGE.text(test.gain)} ({counted(test.items, 'test item')})"
        second = f"{_moves(test)}: {change}{_taken(summary, test)}."
        yield Claim((f"{first}.", second, *_beside_rivals(summary, test)), tuple(own))
    yield from _texts_without(summary)


def _texts_without(summary: SearchSummary) -> Iterator[Claim]:
    """The same of every task of running text."""
    dropped = [text for text in summary.texts if text.contest != BETTER and not text.control]
    for read in alike(dropped, "task"):
        task, margin = read[0].task, f"{summary.study.margin:g} %"
        within = [text for text in read if text.verdict == "no worse"]
        if within:
            harmless = [text for text in within if not summary.worse_beside(text)]
            text = max(harmless or within, key=lambda text: summary.row(text.candidate).length)
            first = f"With {text.candidate}, the perplexity of {task} rises by less than {margin}"
            if worse := summary.worse_beside(text):
                first += f", but {wording.listed(worse)} {'lose' if len(worse) > 1 else 'loses'} more than the margin"
        else:
            text = min(read, key=lambda text: text.ratio.value or math.inf)
            first = f"No run left out is shown to raise the perplexity of {task} by less than {margin}"
        if text.gain.side == 1:
            first = f"{_perplexity_moves(text)}{_at_a_loss(summary, text)}{_taken_by_temperature(summary, text)}."
            texts = [first, *_beside_temperature(summary, text)]
        else:
            texts = [f"{first}.", f"{_perplexity_moves(text)}{UNSHOWN.get(text.gain.side, '')}."]
        yield Claim((*texts, *_beside_other_runs(summary, text)), tuple(read))


@rule
def whether_controls_are_worse(summary: SearchSummary) -> Iterable[Claim]:
    """Whether a chosen candidate leaves the controls no worse than a margin.

    Says: T is no worse with C: it loses less than the margin. | T is worse with C: it loses more than the margin. |
    Whether T loses more than the margin with C cannot be told. | T is no worse with C: its perplexity rises by less
    than the margin. | T is no worse with C: its perplexity falls. | T is worse with C: its perplexity rises by more
    than the margin. | Whether the perplexity of T rises by more than the margin with C cannot be told.
    Needs: an interval, corrected for the number of such tests (Bonferroni), that lies on one side of the margin's loss;
    for no worse, more than the margin above guessing
    """
    for test in (test for test in summary.tests if test.control and test.verdict):
        margin, change = _margin(summary), f"{CHANGE.text(test.gain)}, {counted(test.items, 'item')}"
        text = {
            "no worse": f"{test.task} is no worse with {test.candidate}: it loses less than {margin}",
            "worse": f"{test.task} is worse with {test.candidate}: it loses more than {margin}",
            "cannot be told": f"Whether {test.task} loses more than {margin} with {test.candidate} cannot be told",
        }[test.verdict or "cannot be told"]
        yield Claim((f"{text} ({change}).",), (test,))
    for passage in (text for text in summary.texts if text.control and text.verdict):
        of, name, margin = passage.task, passage.candidate, f"{summary.study.margin:g} %"
        text = {
            "no worse": f"{of} is no worse with {name}: its perplexity"
            f" {'falls' if passage.gain.side == 1 else f'rises by less than {margin}'}",
            "worse": f"{of} is worse with {name}: its perplexity rises by more than {margin}",
            "cannot be told": f"Whether the perplexity of {of} rises by more than {margin} with {name} cannot be told",
        }[passage.verdict or "cannot be told"]
        yield Claim((f"{text} ({passage.size}).",), (passage,))


@rule
def what_luck_gives(summary: SearchSummary) -> Iterable[Claim]:
    """The gain of the chosen candidate where it was chosen, beside that of the best of so many by luck.

    Says: On the items that chose it, C gains X, partly by luck: by luck alone the best of N gains Y.
    Needs: signs of the paired gains drawn anew item by item, the same for all candidates, and the choice repeated; the
    screen looked at other items
    """
    for choice in summary.choices:
        if choice.luck is not None and choice.nothing is None:
            row = summary.row(choice.candidate or "")
            form = GAIN.forms[row.unit]
            what, each = ("texts", " a token") if row.unit == "nats" else ("items", "")
            first = f"On the {what} that chose it, {choice.candidate} gains {form.text(choice.gain)}{each}"
            luck, finalists = form.text(choice.luck), counted(choice.finalists, "candidate")
            second = f"by luck alone the best of {finalists} gains {luck} ({p_text(choice.luck)})"
            yield Claim((f"{first}; {second}.",), (row,))


@dataclass(frozen=True)
class SearchResult(SearchedResult[SearchSummary]):
    """A search over layouts: its numbers, and how what it chose is written as a checkpoint."""

    SUMMARY = SearchSummary
    EYEBROW = "search of layouts"
    READING = (
        "A screen by the log-probability of the gold answers halves the candidates on items of its own; accuracy on"
        " other items chooses; the test items are seen by neither. Of running text both go by the log-probability of a"
        " token.",
        "By luck: the sign of what an item gains is drawn anew, the same for all candidates, and the choice is"
        " repeated.",
        "Cheapest: of every length the run whose loss is smallest on the items that choose. That it is no worse than a"
        " margin says nothing of other tasks; give them as controls.",
    )
    TESTED = (
        "Candidates were chosen on other items than they are tested on;{gains} losses within a margin, and"
        " perplexities, by intervals corrected for their number (Bonferroni). Brackets: {level} intervals, those of"
        " losses and perplexities before that correction; of random candidates the range, of luck the middle part of"
        " the draws."
    )

    @override
    def parts(self) -> list[Part]:
        return list(_parts(self.summary, tuple(self.written.items())))

    @override
    def _with_proof(self, parts: Sequence[Part]) -> Iterator[Part]:
        """As they are: a block that can be left out may well be one without which nothing is seen to change."""
        yield from parts

    @override
    def split(self) -> list[tuple[str, int, int]]:
        tasks = [task for task in self.summary.tasks if not task.control]
        return [(task.name, task.screen_items + task.choice_items, task.test_items) for task in tasks]

    @property
    @override
    def by_perplexity(self) -> bool:
        return any(row.unit == "nats" for row in self.summary.candidates)

    @property
    @override
    def tested(self) -> str:
        gains = " gains by McNemar's exact test, p corrected over tasks (Holm);" * bool(self.summary.tests)
        return self.TESTED.format(level=self.level, gains=gains)

    @property
    @override
    def for_paper(self) -> Sequence[Claim]:
        return (*super().for_paper, *whether_controls_are_worse(self.summary))

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
    words = ("--order", choice.order), ("--edit", choice.edit), ("--out", "best")
    return shlex.join([word for option in words if option[1] for word in option])


def _parts(summary: SearchSummary, commands: tuple[tuple[str, str], ...]) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks if not task.control])
    by_perplexity = any(row.unit == "nats" for row in summary.candidates)
    title = f"Does another layout make {summary.model.name} better at {tasks}?"
    if not any(choice.contest == BETTER for choice in summary.choices):
        title = f"Which blocks can {summary.model.name} do without?"
    drawn = ", of luck the median and the middle part of the draws" * any(
        choice.luck is not None for choice in summary.choices
    )
    tests = Rows("test", summary.tests, (CandidateTest,), "On test items", marked="control")
    texts = Rows("texts", summary.texts, (TextTest,), "Running text")
    rivals = Rows("rivals", summary.rivals, (RandomCandidate,), "Random candidates of the kind, on test items")
    temperatures = Rows("temperatures", summary.temperatures, (AtTemperature,), "A temperature instead")
    forbidden = Rows(
        "forbidden", summary.forbidden, (Forbidden,), "Frequent wrong first tokens forbidden, on test items"
    )
    folded = (tests, texts, rivals, forbidden, temperatures)
    yield Part(
        title,
        Rows("compared", list(_compared(summary)), (Gained,), "Gains over the unedited model"),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="gains",
                caption=f"Of random candidates the mean and range{drawn}.",
            ),
        ),
        (*what_the_test_shows(summary), *what_can_be_left_out(summary)),
        own=(
            *(Folded(rows.title, (Table.of(rows),)) for rows in folded if rows.records),
            *[Folded("Write it as a checkpoint", (Facts(commands),))] * bool(commands),
        ),
        wide=True,
    )  # fmt: skip
    yield Part("Are the controls no worse?", claims=whether_controls_are_worse(summary), short="Controls", wide=True)
    rows = Rows(
        "candidates", summary.candidates, (CandidateRow,), "All candidates",
        "Log-probability of a token: on the texts of the screen, and on those that choose." if by_perplexity else
        "Screen: log-probability of gold answers. Gain: on the items that choose.", marked="chosen",
    )  # fmt: skip
    seen = _full(row.screen for row in summary.candidates)
    chose = _full(row.gain for row in summary.candidates) if by_perplexity else 0.2
    unit = f"texts that choose; full at {chose:g} nats" if by_perplexity else "items that choose; full at 20 points"
    look: dict[str, Any] = {"over": "first", "up": "how", "panel": "family", "boxed": "chosen", "hue": "gain"}
    maps = (
        *[Map("screen", full=seen, name="screen", caption=f"What the screen saw; full at {seen:g} nats.", **look)]
        * (seen > 0),
        Map("gain", full=chose or None, name="choice", caption=f"Gains on the {unit}.", **look),
    )
    yield Part("Which candidates?", rows, maps, what_luck_gives(summary), short="Candidates", wide=True)


def _full(changes: Iterable[float | None]) -> float:
    """Where a map's colour is full: three quarters of the finite changes are smaller; 0: there are none."""
    sizes = [abs(change) for change in changes if change is not None and math.isfinite(change)]
    return float(f"{np.quantile(sizes, 0.75):.2g}") if sizes else 0.0


def _compared(summary: SearchSummary) -> Iterator[Gained]:
    """The chosen candidates on test items, their rivals, where they were chosen, and what luck gives there."""
    chosen = {choice.contest: choice for choice in summary.choices}
    for test in (test for test in summary.every_test if not test.control):
        choice, bars = chosen[test.contest], [(test.candidate, "test items", test.gain)]
        if gains := summary.gains_of_rivals(test):
            mean = Estimate(value=float(np.mean(gains)), low=min(gains), high=max(gains))
            bars.append((f"{len(gains)} random: {summary.row(test.candidate).how}", "random candidates", mean))
        if forbidden := summary.without_tokens(test):
            bars.append((forbidden.name, "form of the answer", forbidden.gain))
        if rival := summary.at_temperature(test):
            bars.append((f"temperature {FIGURES.text(rival.temperature)}", "temperature", gain_of(rival.ratio)))
        if choice.luck is not None:
            bars.append((f"{test.candidate}, chosen on these", "items that chose it", Estimate(value=choice.gain)))
            bars.append((f"best of {choice.finalists} by luck alone", "luck", choice.luck))
        unit: Unit = "nats" if isinstance(test, TextTest) else "points"
        yield from (Gained(task=test.task, name=name, what=what, gain=gain, unit=unit) for name, what, gain in bars)


def _checks(summary: SearchSummary) -> Iterator[Check]:
    own = [test for test in summary.tests if not test.control]
    tests = dict.fromkeys((test.task, test.baseline, test.items) for test in own)
    collapsed = [f"{test.task} ({test.candidate})" for test in summary.tests if test.one_answer]
    yield from grounds(tests, collapsed, gains=any(test.contest == BETTER for test in own))
    if few := dict.fromkeys(text.task for text in summary.texts if text.texts < FEW):
        yield Check("bad", f"Fewer than {FEW} test texts, so that chance decides much: {wording.listed([*few])}.")
    if (summary.tests or summary.texts) and summary.earlier:
        text = f"Other searches tested on these items before: {summary.earlier}; p and intervals allow for them."
        yield Check("open", text)
    elif summary.tests or summary.texts:
        yield Check("good", CHOSEN_APART)
    held = [choice for choice in summary.choices if choice.nothing is None and _held(summary, choice)]
    if held:
        # What is to be better stands in the first sentence; of dropped runs the longest is wanted.
        best = next((choice for choice in held if choice.contest == BETTER), held[-1])
        yield Check("open", f"To be written as a checkpoint: {best.candidate}.", "apply", options_of(best))


def _held(summary: SearchSummary, choice: ContestChoice) -> bool:
    """Whether the test bears a choice out: better on a task, beyond forbidding tokens or a temperature, and worse on
    none, or no worse on all; no control is shown to fall, unless by less than the margin.
    """
    tests, controls = summary.of(choice.contest), summary.of(choice.contest, control=True)
    texts = [text for text in summary.texts if text.contest == choice.contest]
    if any(test.one_answer for test in tests) or "worse" in {text.verdict for text in texts}:
        return False
    if any(test.verdict != "no worse" and (test.verdict == "worse" or test.shown == -1) for test in controls):
        return False
    if any(text.verdict == "cannot be told" and text.gain.side == -1 for text in texts if text.control):
        return False
    taken = [row.contest for rows in (summary.forbidden, summary.temperatures) for row in rows if row.takes]
    if choice.contest == BETTER and BETTER in taken:
        return False
    own = summary.texts_of(choice.contest)
    sides = {test.shown for test in tests} | {text.gain.side for text in own}
    better = choice.contest == BETTER and 1 in sides and -1 not in sides
    return better or {test.verdict for test in tests} | {text.verdict for text in own} == {"no worse"}
