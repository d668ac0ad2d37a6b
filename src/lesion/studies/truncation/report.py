"""The result of a truncation search: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from lesion.core.result import S, StudyResult
from lesion.report import wording
from lesion.report.blocks import Block, Check, Folded, entries
from lesion.report.checks import FEW
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map, Mark
from lesion.report.parts import Chapter, Part
from lesion.report.rows import Rows, p_text
from lesion.report.table import Table
from lesion.report.values import CHANGE, NATS, POINTS, SHARE, WHOLE_SHARE, Estimate, decimals
from lesion.report.wording import ALPHA, counted
from lesion.statistics.detectable import smallest_drop
from lesion.studies.truncation.result import (
    BEST,
    FORCED,
    CellState,
    Compared,
    EditOf,
    Outcome,
    RevisionOutcome,
    Rival,
    Score,
    SingularValue,
    Step,
    Tested,
    Tokens,
    TruncatedMatrix,
    TruncationSummary,
    Unedited,
)

VERBS = {1: "raises", -1: "lowers", 0: "takes"}


@rule
def what_the_cut_does(summary: TruncationSummary) -> Iterable[Claim]:
    """What the edit that the search leaves behind does on the test items of every task, beside forbidding tokens.

    Says: Keeping C raises T from A to B on test items, but forbidding N first tokens gives D. | Keeping C raises T from
    A to B on test items, more than any of its N rivals. | Keeping C lowers T from A to B on test items. | Keeping C
    takes T from A to B on test items: not shown to be a change. | Keeping C gives nearly always one answer on T. | No
    truncation was better than the unedited model on validation items.
    Needs: an interval on test items that excludes 0, and of accuracy an exact paired p of at most .05, not corrected
    for several tasks; rivals are beaten by the same test of the difference
    """
    if summary.chosen is None or summary.kept is None:
        yield Claim((summary.nothing or "Nothing was chosen.",))
        return
    gains_first = {1: 0, -1: 1, 0: 2}
    for test in sorted(summary.kept_tests, key=lambda test: gains_first[direction(summary, test)]):
        sentences = [_moves(summary, test, summary.kept), _size(test), *_form(summary, test)]
        yield Claim(tuple(sentences), ((EditOf(what=summary.role(summary.kept), edit=summary.kept), test),))


def direction(summary: TruncationSummary, test: Tested) -> int:
    """1 for a gain, −1 for a loss: the objective's interval on test items lies beyond 0 (and p is small); else 0."""
    if test.collapsed:
        return 0
    return test.gold_gain.side if summary.by_gold else _shown(test.gain)


def _shown(change: Estimate) -> int:
    """The side of 0 on which an interval lies, where p is small as well."""
    return change.side if (change.p or 0.0) <= ALPHA else 0


def rivals_of(summary: TruncationSummary, task: str) -> list[Rival]:
    """The rivals of the cut on a task; of forbidden tokens as many as validation items choose."""
    return [rival for rival in summary.rivals if rival.task == task and (rival.what != "forbidden" or rival.fitted)]


def _fitted(summary: TruncationSummary, task: str) -> Rival | None:
    return next((rival for rival in rivals_of(summary, task) if rival.what == "forbidden"), None)


def _moves(summary: TruncationSummary, test: Tested, edit: str) -> str:
    kept = f"Keeping {summary.name(edit)}"
    if test.collapsed:
        share = WHOLE_SHARE.text(test.label_share)
        return f"{kept} gives one answer to {share} of {test.task}: its accuracy says nothing."
    side = direction(summary, test)
    text = f"{kept} {VERBS[side]} {test.task} from {SHARE.text(test.baseline)} to {SHARE.text(test.accuracy.value)}"
    if summary.by_gold:
        gain = NATS.text(test.gold_gain.value)
        text = f"{kept} {VERBS[side]} the log-probability of gold answers of {test.task} by {gain}"
    rivals = rivals_of(summary, test.task)
    unbeaten = [rival for rival in rivals if not rival.beaten]
    forbidding = _fitted(summary, test.task)
    further = ": not shown to be a change" * (side == 0)
    if side == 1 and forbidding in unbeaten and forbidding is not None:
        tokens = counted(len(forbidding.forbidden), "first token")
        further = f", but forbidding {tokens} gives {SHARE.text(forbidding.accuracy.value)}"
    elif side == 1 and unbeaten:
        further = f", but not shown to be more than {unbeaten[0].name}"
    elif side == 1 and rivals:
        further = f", more than any of its {len(rivals)} rivals"
    return f"{text} on test items{further}."


def _size(test: Tested) -> str:
    """The change with its interval and test, and what is surely changed beside what the search maximises."""
    changes = [f"Accuracy changes by {CHANGE.text(test.gain)} ({p_text(test.gain)})".removesuffix(" ()")]
    if test.gold_gain.side:
        changes.append(f"log-probability of gold answers by {NATS.text(test.gold_gain)}")
    tokens = {"right": test.right_gain, "tempting": test.tempting_gain}
    changes += [f"probability of the {role} token by {CHANGE.text(g)}" for role, g in tokens.items() if g and g.side]
    return f"{wording.listed(changes)} ({counted(test.items, 'test item')})."


def _form(summary: TruncationSummary, test: Tested) -> list[str]:
    """What the cut adds to forbidding tokens, and whether the forced choice moves: the form of the answer aside."""
    texts = []
    forbidding = _fitted(summary, test.task)
    if forbidding is not None and forbidding.beyond is not None:
        texts.append(f"on top of forbidding tokens the cut adds {CHANGE.text(forbidding.beyond)}")
    elif any(rival.what == "forbidden" and rival.task == test.task for rival in summary.rivals):
        texts.append("forbidding its frequent wrong first tokens does not help the unedited model")
    for forced in rivals_of(summary, test.task):
        if forced.what in FORCED and forced.edited is not None and forced.beyond is not None:
            moved = f"{CHANGE.text(forced.beyond)}{'' if _shown(forced.beyond) else ', not shown to move'}"
            ends = " to ".join(SHARE.text(share.value) for share in (forced.accuracy, forced.edited))
            texts.append(f"the {forced.name} goes from {ends} ({moved})")
    return [f"{wording.capital('; '.join(texts))}."] if texts else []


@rule
def whether_the_spectrum_matters(summary: TruncationSummary) -> Iterable[Claim]:
    """Whether a cut beats what stands in its place: random subspaces of its rank, deletion, and a constant factor.

    Says: Nothing in the spectrum is shown to matter. | On T the cut gives A; in its place random subspaces of its rank
    B to C, deletion D.
    Needs: a change on test items; nothing is shown to matter unless the cut beats each rival by an exact paired p of at
    most .05 and an interval above 0
    """
    for test in summary.kept_tests:
        rivals = rivals_of(summary, test.task)
        placed = [rival for rival in rivals if rival.what not in (*FORCED, "forbidden")]
        side = direction(summary, test)
        if side == 0 or not placed:
            continue
        drawn = [rival.accuracy.value or 0.0 for rival in placed if rival.what == "subspace"]
        levels = [f"{rival.name} {SHARE.text(rival.accuracy.value)}" for rival in placed if rival.what != "subspace"]
        if drawn:
            ends = f"{SHARE(min(drawn))} to {SHARE.text(max(drawn))}"
            levels.insert(0, f"{len(drawn)} random subspaces of that rank {ends}")
        beaten = all(rival.beaten for rival in rivals)
        first = ["Nothing in the spectrum is shown to matter."] * (side == 1 and not beaten)
        cut = f"On {test.task} the cut gives {SHARE.text(test.accuracy)}"
        sentences = [*first, f"{cut}; in its place {wording.listed(levels)}."]
        yield Claim(tuple(sentences), tuple(placed))


@rule
def how_the_search_went(summary: TruncationSummary) -> Iterable[Claim]:
    """The best cell on validation items, and the screen where there was one.

    Says: C is the best of N cells on validation items; there, partly by luck, accuracy changes by X. | The screen left
    the best K and R random others of N cells; its rank correlation with the full evaluation is ρ.
    Needs: counts; the rank correlation of the screen has an interval by resampling cells
    """
    sentences, best = [], summary.by_edit.get(summary.best or "")
    if best is not None:
        objective = "log-probability of gold answers" if summary.by_gold else "accuracy"
        changes = wording.listed([CHANGE.text(outcome.gain) for outcome in best.outcomes])
        most = f"{wording.capital(best.name)} is the best of {counted(summary.complete, 'cell')} by {objective}"
        sentences = [f"{most} on validation items; there, partly by luck, accuracy changes by {changes}."]
    if screen := summary.screen:
        others = f"{screen.random:,} random others of {counted(len(summary.cells), 'cell')}"
        correlation = f"its rank correlation with the full evaluation is {decimals(2).text(screen.rank_correlation)}"
        sentences.append(f"The screen left the best {screen.best:,} and {others}; {correlation}.")
    if sentences:
        yield Claim(tuple(sentences), () if best is None else (best,))


FULL_POINTS, FULL_NATS = 0.2, 1.0
"""At this change the colour of a map is full: small gains beside much larger losses stay visible."""
READING = (
    "A cell replaces one matrix by a part of its spectrum: the largest singular values (top) or the smallest (bottom),"
    " keep being the fraction of the rank. A gain on validation items alone is what choosing the best of many gives"
    " also where there is nothing to find. Intervals are not corrected.",
    "That a removal helps does not show that the removed part of the spectrum is special: it must be better than all of"
    " its rivals. First tokens are forbidden at decoding, those of the unedited model's most frequent wrong answers on"
    " validation items; random subspaces, a deleted branch and a constant factor stand in the place of the cut.",
)
METHOD = "Truncations are tried on validation items; the best is tested on items that the search never saw."


class SearchedResult(StudyResult[S]):
    """A study that chooses an edit on some items and tests it on others."""

    TEXTLESS = True

    def split(self) -> Iterable[tuple[str, int, int]]:
        """Of each task its name, on how many items an edit was chosen, and on how many it was tested."""
        return ()

    @property
    @override
    def basis(self) -> str:
        counts = [
            f"{name}: chosen on {chosen:,}, tested on {counted(test, 'item')}" for name, chosen, test in self.split()
        ]
        drop = smallest_drop(min(test for _, _, test in self.split()), 1)
        missed = f"; changes under about {POINTS.text(drop)} would be missed" if drop is not None else ""
        return f"{'; '.join(counts)}{missed}."

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


@dataclass(frozen=True)
class TruncationResult(SearchedResult[TruncationSummary]):
    """A truncation search: its numbers, and the edit that it chose as a file.

    Attributes:
        table: one row per cell and task, as in `cells.csv`. A cell that was not evaluated in full has one row.
    """

    SUMMARY = TruncationSummary
    EYEBROW = "truncation of weights"
    READING = READING
    TESTED = (
        "The cut was chosen on validation items and tested on others by McNemar's exact test; p are not corrected for"
        " several tasks. Brackets: {level} intervals."
    )

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of the chosen edit, or of the composition; None: no edit was better."""
        return self.folder / BEST if self.summary.chosen else None

    @override
    def shown(self) -> Table:
        return Table.of(_cells(self.summary))

    @override
    def parts(self) -> list[Part]:
        return list(_parts(self.summary))

    @override
    def split(self) -> list[tuple[str, int, int]]:
        return [(task.name, task.validation_items, task.test_items) for task in self.summary.tasks]

    @override
    def checks(self) -> list[Check]:
        return list(_checks(self.summary))

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        return [*entries(study), *entries(summary.model.model_dump(exclude={"name"}))]

    @override
    def chapter(self) -> Chapter:
        return Chapter.of(self.shown_parts, METHOD, "Truncation")


def _parts(summary: TruncationSummary) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks])
    yield Part(
        f"Does removing a part of a matrix make {summary.model.name} better at {tasks}?",
        Rows(
            "", list(_compared(summary)), (Compared,), "On test items",
            "p: McNemar's exact test of the cut against the rival.",
        ),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="test",
                caption="Gain in accuracy over the unedited model. On the items that chose it the best of many is"
                " partly luck.",
            ),
        ),
        (*what_the_cut_does(summary), *whether_the_spectrum_matters(summary)),
        own=tuple(Folded(rows.title, (Table.of(rows),)) for rows in _tables(summary) if rows.records),
        wide=True,
    )  # fmt: skip
    yield Part(
        "Which matrices, layers and ranks?", _cells(summary), _maps(summary), how_the_search_went(summary),
        short="Search", own=_spectra(summary), wide=True,
    )  # fmt: skip
    if summary.tokens:
        rows = Rows(
            "tokens", [(_edit(summary, tokens.edit), tokens) for tokens in summary.tokens], (EditOf, Tokens),
            "The two tokens", "Mean probabilities; ranks are medians, 1 is the likeliest token; margin: log p right −"
            " log p tempting.",
        )  # fmt: skip
        bars = ("what", "revision") if summary.revisions else "what"
        marks = tuple(
            Bars(value, bars, panel="task", name=f"tokens-{value}") for value in ("margin", "p_right", "p_tempting")
        )
        yield Part("The right and the tempting token", rows, marks, short="Tokens")
    if summary.revisions:
        outcomes = [(_edit(summary, each.edit), each) for each in summary.revisions]
        yield Part(
            "Do other revisions gain as well?",
            Rows("revisions", outcomes, (EditOf, RevisionOutcome), "Revisions"),
            (Bars("accuracy", ("revision", "what"), by="what", panel="task", name="revisions"),),
            short="Revisions",
        )  # fmt: skip
    if summary.path:
        steps = [(step, step.after) for step in summary.path]
        rows = Rows("composition", steps, (Step, Score), "Steps of the composition", "On validation items.")
        yield Part("Do cuts of several matrices add up?", rows, short="Composition")


def _spectra(summary: TruncationSummary) -> tuple[Block, ...]:
    """The singular values of every matrix, folded."""
    values = [
        SingularValue(address=spectrum.address, index=index, value=value)
        for spectrum in summary.spectra
        for index, value in zip(spectrum.index, spectrum.values, strict=True)
    ]
    caption = "Singular values against their number, which is logarithmic."
    figure = Curves("value", "number", "block", log=True, panel="matrix", caption=caption).figure(values, "spectra")
    rows = Rows("spectra", values, (SingularValue,), "Singular values")
    return (Folded("Spectra", (figure, Table.of(rows))),) if figure is not None else ()


def _edit(summary: TruncationSummary, edit: str) -> EditOf:
    return EditOf(what=summary.role(edit), edit=edit)


def _tables(summary: TruncationSummary) -> tuple[Rows, ...]:
    # The composed edit stands in the table also where it is the best one.
    single = "chosen" if summary.chosen else "best"
    of_edits = ((single, summary.best, summary.best_tests), ("composed", summary.composed, summary.composed_tests))
    tested = [(EditOf(what=what, edit=edit), test) for what, edit, tests in of_edits if edit for test in tests]
    return (
        Rows(
            "test", tested, (EditOf, Tested), "Every edit on test items",
            "Gold: mean log-probability of the gold answers.",
        ),
        Rows(
            "rivals", summary.rivals, (Rival,), "Every rival on test items",
            "Marked: as many forbidden tokens as are best on validation items. p: McNemar's exact test of what the cut"
            " adds.", marked="fitted",
        ),
        Rows("baseline", summary.unedited, (Unedited,), "The unedited model"),
    )  # fmt: skip


def _compared(summary: TruncationSummary) -> Iterator[Compared]:
    """The cut on test items, its rivals there, and the cut on the items that chose it."""
    edit = summary.kept or summary.best or ""
    cell = summary.by_edit.get(edit)
    for test in summary.kept_tests or summary.best_tests:
        task = test.task
        yield Compared(task=task, name=summary.name(edit), what="the cut", accuracy=test.accuracy, gain=test.gain)
        for rival in rivals_of(summary, task):
            if rival.what not in FORCED:
                what = "form of the answer" if rival.what == "forbidden" else "in its place"
                gain = rival.gain or Estimate(value=None)
                yield Compared(
                    task=task, name=rival.name, what=what, accuracy=rival.accuracy, gain=gain, beyond=rival.beyond
                )
        outcome = None if cell is None else cell.on(task)
        if outcome is not None:
            name, what = "the cut, on the items that chose it", "chosen on these items"
            yield Compared(task=task, name=name, what=what, accuracy=outcome.accuracy, gain=outcome.gain)


def _cells(summary: TruncationSummary) -> Rows:
    base = {each.task: each.gold for each in summary.unedited if each.part == "validation"}
    lines = []
    for cell in summary.cells:
        for outcome in cell.outcomes or (None,):
            before = None if outcome is None or outcome.collapsed else base[outcome.task]
            gold_gain = None if before is None or outcome is None or outcome.gold is None else outcome.gold - before
            chosen = cell.edit == summary.chosen
            lines.append((cell, outcome, CellState(gold_gain=gold_gain, chosen=chosen, state=_state(summary, cell))))
    return Rows(
        "cells", lines, (TruncatedMatrix, Outcome, CellState), "All cells on the validation items",
        "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors.",
        marked="chosen", hidden=frozenset({"items", "gold", "collapsed"}),
    )  # fmt: skip


def _state(summary: TruncationSummary, cell: TruncatedMatrix) -> str:
    """What became of a cell, in a few words."""
    if cell.edit == summary.best:
        return "chosen" if summary.chosen else "best, not chosen"
    if cell.eliminated is not None:
        return f"given up after {cell.eliminated:,}"
    if not cell.outcomes:
        return "screened out"
    return "one answer" if any(outcome.collapsed for outcome in cell.outcomes) else "evaluated in full"


def _maps(summary: TruncationSummary) -> tuple[Mark, ...]:
    """Layer × keep of every matrix and side: what the search maximises first."""
    look: dict[str, Any] = {"over": "layer", "up": "keep", "boxed": "chosen", "hue": "gain"}
    answered: dict[str, Any] = {**look, "panel": ("task", "matrix", "side"), "only": {"collapsed": False}}
    accuracy = Map(
        "gain", full=FULL_POINTS, name="map", **answered,
        caption="Gain in accuracy on validation items, in points; the colour is full at 20. Boxed: the chosen cut."
        " Missing cells were screened out, given up early, or keep the same as another.",
    )  # fmt: skip
    gold = Map(
        "gold_gain", full=FULL_NATS, name="map-gold", **answered,
        caption="Gain of the mean log-probability of the gold answers on validation items, in nats; full at 1.",
    )  # fmt: skip
    screen = Map(
        "screen", full=FULL_NATS, name="map-screen", panel=("matrix", "side"), **look,
        caption="What the screen saw of every cell: the log-probability of the gold answers, in nats; full at 1.",
    )  # fmt: skip
    first = (gold, accuracy) if summary.by_gold else (accuracy, gold)
    return first if summary.screen is None else (*first, screen)


def _checks(summary: TruncationSummary) -> Iterator[Check]:
    tested = [base for base in summary.unedited if base.part == "test"]
    ends = [base.task for base in tested if base.accuracy.value in (0, 1)]
    if ends:
        yield Check("bad", f"The unedited model has none or all of the test items right: {wording.listed(ends)}.")
    if few := [base.task for base in tested if base.items < FEW]:
        yield Check("bad", f"Fewer than {FEW} test items, so that chance decides much: {wording.listed(few)}.")
    if collapsed := [test.task for test in summary.kept_tests if test.collapsed]:
        yield Check("bad", f"Nearly always one answer under the cut: {wording.listed(collapsed)}.")
    elif summary.chosen:
        yield Check("good", "Answers under the cut differ from item to item.")
    if summary.chosen:
        further = () if summary.study.compose else ("truncate", "--compose")
        yield Check("good", "Chosen on other items than it is tested on.", *further)
