"""The result of a truncation search: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.report import wording
from lesion.report.blocks import Block, Check, Folded, entries
from lesion.report.checks import FEW
from lesion.report.forms import POINTS
from lesion.report.marks import Bars, Curves, Map, Mark
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.story import Chapter
from lesion.report.table import Table
from lesion.report.values import Estimate
from lesion.statistics.detectable import smallest_drop
from lesion.studies.truncation import claims
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

FULL_POINTS, FULL_NATS = 0.2, 1.0
"""At this change the colour of a map is full: small gains beside much larger losses stay visible."""
READING = (
    "A cell replaces one matrix by a part of its spectrum: the largest singular values (top) or the smallest (bottom),"
    " keep being the fraction of the rank. Everything else of the model stays as it is.",
    "The cut is chosen on validation items only, and tested on test items. A gain on validation items alone is what"
    " choosing the best of many gives also where there is nothing to find. Intervals are not corrected.",
    "That a removal helps does not show that the removed part of the spectrum is special: it must be better than all of"
    " its rivals, which are measured on the same test items. First tokens are forbidden at decoding, those of the"
    " unedited model's most frequent wrong answers on validation items; random subspaces, a deleted branch and a"
    " constant factor stand in the place of the cut.",
    "Where accuracy gains and the log-probability of gold answers does not, or the other way round, read the answers."
    " Where a model gives one answer nearly always, accuracy says how frequent that answer is among the items.",
)
METHOD = "Truncations are tried on validation items; the best is tested on items that the search never saw."


@dataclass(frozen=True)
class TruncationResult(StudyResult[TruncationSummary]):
    """A truncation search: its numbers, and the edit that it chose as a file.

    Attributes:
        table: one row per cell and task, as in `cells.csv`. A cell that was not evaluated in full has one row.
    """

    SUMMARY = TruncationSummary
    EYEBROW = "truncation of weights"
    READING = READING

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

    @property
    @override
    def basis(self) -> str:
        counts = [
            f"{task.name}: chosen on {task.validation_items:,}, tested on {wording.counted(task.test_items, 'item')}"
            for task in self.summary.tasks
        ]
        drop = smallest_drop(min(task.test_items for task in self.summary.tasks), 1)
        missed = f"; changes under about {POINTS.text(drop)} would be missed" if drop is not None else ""
        return f"{'; '.join(counts)}{missed}."

    @override
    def checks(self) -> list[Check]:
        return list(_checks(self.summary))

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        given_up = summary.elimination.eliminated if summary.elimination else 0
        cells = f"{len(summary.cells):,}, {summary.complete:,} evaluated in full, {given_up:,} given up early"
        model = summary.model.model_dump(exclude={"name"})
        return [*entries(study), *entries(model), ("cells", f"{cells}; {summary.merged:,} keep the same as another")]

    @override
    def chapter(self) -> Chapter:
        return Chapter.of(self.shown_parts, METHOD, "Truncation")

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


def _parts(summary: TruncationSummary) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks])
    yield Part(
        f"Does removing a part of a matrix make {summary.model.name} better at {tasks}?",
        Rows(
            "", list(_compared(summary)), (Compared,), "On test items",
            "Gain: minus the unedited model, on the same items. p: McNemar's exact test of the cut against the rival.",
        ),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="test",
                caption="Gain in accuracy over the unedited model. On the items that chose it the best of many is"
                " partly luck.",
            ),
        ),
        (*claims.what_the_cut_does(summary), *claims.whether_the_spectrum_matters(summary)),
        own=tuple(Folded(rows.title, (Table.of(rows),)) for rows in _tables(summary) if rows.records),
        wide=True,
    )  # fmt: skip
    yield Part(
        "Which matrices, layers and ranks?", _cells(summary), _maps(summary), claims.how_the_search_went(summary),
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
        yield Part(
            "The right and the tempting token", rows, marks, claims.how_the_two_tokens_move(summary), short="Tokens"
        )
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
        yield Part(
            "Do cuts of several matrices add up?",
            Rows("composition", steps, (Step, Score), "Steps of the composition", "On validation items."),
            claims=claims.what_was_composed(summary),
            short="Composition",
        )


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
            "Gains: edited minus unedited on the same items; p: McNemar's exact test. Gold: mean log-probability of the"
            " gold answers.",
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
        for rival in claims.rivals_of(summary, task):
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
        "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors instead of"
        " the matrix; below 0 that would be more.", marked="chosen", hidden=frozenset({"items", "gold", "collapsed"}),
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
    own: dict[str, Any] = {"over": "layer", "up": "keep", "boxed": "chosen", "hue": "gain"}
    answered: dict[str, Any] = {**own, "panel": ("task", "matrix", "side"), "only": {"collapsed": False}}
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
        "screen", full=FULL_NATS, name="map-screen", panel=("matrix", "side"), **own,
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
    for test in summary.kept_tests:
        rivals = claims.rivals_of(summary, test.task)
        if not rivals or claims.direction(summary, test) != 1:
            continue
        unbeaten, number = sum(not rival.beaten for rival in rivals), wording.counted(len(rivals), "rival")
        if unbeaten:
            yield Check("bad", f"{test.task}: not shown to be more than {unbeaten:,} of its {number}.")
        else:
            yield Check("good", f"{test.task}: more than any of its {number}.")
