"""The result of a truncation search: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from typing_extensions import override

from lesion.core import cost
from lesion.core.result import StudyResult
from lesion.report import parts, wording
from lesion.report.blocks import Block, Check, Folded, Page, entries
from lesion.report.finding import FEW
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
    Compared,
    Decompositions,
    EditOf,
    OnTask,
    Outcome,
    RevisionOutcome,
    Rival,
    SingularValue,
    Step,
    StepScores,
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
PLACE = {"forbidden": "form of the answer", "subspace": "in its place", "branch": "in its place",
         "factor": "in its place"}  # fmt: skip


def decompositions(folder: Path) -> Decompositions | None:
    """What the search in a folder decomposed; None where that is not known."""
    try:
        return Decompositions.model_validate(cost.read(folder).get("decompositions"))
    except ValidationError:
        return None


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

    @override
    def page(self) -> Page:
        summary = self.summary
        return parts.page(
            self.question,
            self.EYEBROW,
            self.shown_parts,
            version=summary.version,
            facts=_facts(summary, decompositions(self.folder)),
            basis=self.basis,
            checks=self.checks(),
            notes=summary.notes,
            reading=READING,
            approximate=self.approximate,
        )

    @override
    def chapter(self) -> Chapter:
        return Chapter.of(
            self.shown_parts,
            "Truncations are tried on validation items; the best is tested on items that the search never saw.",
            "Truncation",
            "Does removing a part of a matrix's spectrum make the model better?",
        )

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


def _parts(summary: TruncationSummary) -> Iterator[Part]:
    tasks = wording.listed([task.name for task in summary.tasks])
    told = (*claims.what_the_cut_does(summary), *claims.whether_the_spectrum_matters(summary))
    yield Part(
        f"Does removing a part of a matrix make {summary.model.name} better at {tasks}?",
        Rows(
            "", _compared(summary), (Compared,), "On test items",
            "Gain: minus the unedited model, on the same items. p: McNemar's exact test of the cut against the rival.",
        ),
        (
            Bars(
                "gain", "name", by="what", panel="task", name="test",
                caption="Gain in accuracy over the unedited model. On the items that chose it the best of many is"
                " partly luck.",
            ),
        ),
        told,
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
        bars = tuple(
            Bars(value, ("what", "revision") if summary.followed else "what", panel="task", name=f"tokens-{value}")
            for value in ("margin", "p_right", "p_tempting")
        )
        yield Part(
            "The right and the tempting token", rows, bars, claims.how_the_two_tokens_move(summary), short="Tokens"
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
        steps = [
            (step, StepScores(before=summary.score(step.before), after=summary.score(step.after)))
            for step in summary.path
        ]
        yield Part(
            "Do cuts of several matrices add up?",
            Rows("composition", steps, (Step, StepScores), "Steps of the composition"),
            claims=claims.what_was_composed(summary),
            short="Composition",
        )  # fmt: skip


def _spectra(summary: TruncationSummary) -> tuple[Block, ...]:
    """The singular values of every matrix, folded."""
    rows = Rows(
        "spectra",
        [
            SingularValue(address=spectrum.address, index=index, value=value)
            for spectrum in summary.spectra
            for index, value in zip(spectrum.index, spectrum.values, strict=True)
        ],
        (SingularValue,), "Singular values",
    )  # fmt: skip
    caption = "Singular values against their number, which is logarithmic."
    figure = Curves("value", "number", "block", log=True, panel="matrix", caption=caption).figure(
        rows.records, "spectra"
    )
    return (Folded("Spectra", (figure, Table.of(rows))),) if figure is not None else ()


def _edit(summary: TruncationSummary, edit: str) -> EditOf:
    return EditOf(what=summary.role(edit), edit=edit)


def _tested(summary: TruncationSummary) -> list[tuple[EditOf, Tested]]:
    """What the test items say of the best edit, and of the composed one, also where that is the same."""
    single = "chosen" if summary.chosen else "best"
    of_edits = ((single, summary.best, summary.best_tests), ("composed", summary.composed, summary.composed_tests))
    return [(EditOf(what=what, edit=edit), test) for what, edit, tests in of_edits if edit for test in tests]


def _tables(summary: TruncationSummary) -> tuple[Rows, ...]:
    return (
        Rows(
            "test", _tested(summary), (EditOf, Tested), "Every edit on test items",
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


def _compared(summary: TruncationSummary) -> list[Compared]:
    """The cut on test items, its rivals there, and the cut on the items that chose it."""
    edit = summary.kept or summary.best
    tests = claims.kept_tests(summary) if summary.chosen else summary.best_tests
    cell = summary.by_edit.get(edit or "")
    lines = []
    for test in tests:
        name = summary.name(edit or "")
        lines.append(Compared(task=test.task, name=name, what="the cut", accuracy=test.accuracy, gain=test.gain))
        drawn = [rival for rival in claims.rivals_of(summary, test.task) if rival.what not in FORCED]
        lines += [
            Compared(task=test.task, name=rival.name, what=PLACE[rival.what], accuracy=rival.accuracy,
                     gain=rival.gain or Estimate(value=None), beyond=rival.beyond)
            for rival in drawn
        ]  # fmt: skip
        if cell is not None and (outcome := cell.on(test.task)) is not None:
            lines.append(
                Compared(task=test.task, name="the cut, on the items that chose it", what="chosen on these items",
                         accuracy=outcome.accuracy, gain=outcome.drop.negative)
            )  # fmt: skip
    return lines


def _cells(summary: TruncationSummary) -> Rows:
    lines = [(cell, _on_task(summary, cell, outcome)) for cell in summary.cells for outcome in cell.outcomes or (None,)]
    return Rows(
        "cells", lines, (TruncatedMatrix, OnTask), "All cells on the validation items",
        "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors instead of"
        " the matrix; below 0 that would be more.", marked="chosen",
    )  # fmt: skip


def _on_task(summary: TruncationSummary, cell: TruncatedMatrix, outcome: Outcome | None) -> OnTask:
    chosen = cell.edit == summary.chosen
    state = _state(summary, cell)
    if outcome is None:
        return OnTask(chosen=chosen, state=state)
    gold = None if outcome.collapsed else summary.gold_change(outcome)
    return OnTask(**dict(outcome), gain=outcome.drop.negative, gold_gain=gold, chosen=chosen, state=state)


def _state(summary: TruncationSummary, cell: TruncatedMatrix) -> str:
    """What became of a cell, in a few words."""
    if cell.edit == summary.best:
        return "chosen" if summary.chosen else "best, not chosen"
    if cell.eliminated is not None:
        return f"given up after {cell.eliminated:,}"
    if not cell.outcomes:
        return "screened out"
    return "one answer" if cell.collapsed else "evaluated in full"


def _maps(summary: TruncationSummary) -> tuple[Mark, ...]:
    """Layer × keep of every matrix and side: what the search maximises first."""
    own: dict[str, Any] = {
        "over": "layer",
        "up": "keep",
        "boxed": "chosen",
        "hue": "gain",
        "panel": ("task", "matrix", "side"),
    }
    accuracy = Map(
        "gain", full=FULL_POINTS, name="map", only={"collapsed": False}, **own,
        caption="Gain in accuracy on validation items, in points; the colour is full at 20. Boxed: the chosen cut."
        " Missing cells were screened out, given up early, or keep the same as another.",
    )  # fmt: skip
    gold = Map(
        "gold_gain", full=FULL_NATS, name="map-gold", only={"collapsed": False}, **own,
        caption="Gain of the mean log-probability of the gold answers on validation items, in nats; full at 1.",
    )  # fmt: skip
    first = (gold, accuracy) if summary.by_gold else (accuracy, gold)
    if summary.screen is None:
        return first
    screen = Map(
        "screen", full=FULL_NATS, name="map-screen", **{**own, "panel": ("matrix", "side")},
        caption="What the screen saw of every cell: the log-probability of the gold answers, in nats; full at 1.",
    )  # fmt: skip
    return (*first, screen)


def _checks(summary: TruncationSummary) -> Iterator[Check]:
    tested = [base for base in summary.unedited if base.part == "test"]
    ends = [base.task for base in tested if base.accuracy.value in (0, 1)]
    if ends:
        yield Check("bad", f"The unedited model has none or all of the test items right: {wording.listed(ends)}.")
    if few := [base.task for base in tested if base.items < FEW]:
        yield Check("bad", f"Fewer than {FEW} test items, so that chance decides much: {wording.listed(few)}.")
    collapsed = [test.task for test in claims.kept_tests(summary) if test.collapsed] if summary.chosen else []
    if collapsed:
        yield Check("bad", f"Nearly always one answer under the cut: {wording.listed(collapsed)}.")
    elif summary.chosen:
        yield Check("good", "Answers under the cut differ from item to item.")
    if summary.chosen:
        yield Check("good", "Chosen on other items than it is tested on.")
    gains = [
        test for test in claims.kept_tests(summary) if summary.chosen and claims.direction(summary, test) == "gain"
    ]
    for test in gains:
        rivals = claims.rivals_of(summary, test.task)
        unbeaten = [rival.name for rival in rivals if not rival.beaten]
        if rivals:
            text = f"{test.task}: not shown to be more than {wording.counted(len(unbeaten), 'rival')} of {len(rivals)}."
            beats = f"{test.task}: more than any of {wording.counted(len(rivals), 'rival')}."
            yield Check("bad" if unbeaten else "good", text if unbeaten else beats)


def _facts(summary: TruncationSummary, work: Decompositions | None) -> list[tuple[str, str]]:
    """The study's and the model's own entries, for whoever wants to repeat it."""
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title", "model", "tasks"})
    model = summary.model.model_dump(exclude={"name"})
    tasks = (
        f"{task.name} ({task.kind}, {wording.counted(task.validation_items, 'validation item')}, "
        f"{wording.counted(task.test_items, 'test item')})"
        for task in summary.tasks
    )
    early = f", and {summary.given_up:,} given up early" if summary.given_up else ""
    merged = f", and {summary.merged:,} that keep the same as another" if summary.merged else ""
    cells = f"{len(summary.cells):,}{merged}; {summary.complete:,} evaluated in full{early}"
    facts = [("model", summary.model.name), ("tasks", ", ".join(tasks)), ("cells", cells)]
    if work is not None:
        seconds = f" in {work.seconds:,.1f} s" if work.seconds is not None and work.computed else ""
        decomposed = f"{work.computed:,} computed{seconds}, {work.read:,} read from disk, {work.reused:,} reused"
        facts.append(("decompositions", decomposed))
    return [*facts, *entries(study), *entries(model)]
