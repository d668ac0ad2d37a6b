"""The result of a comparison: its rows, how they are drawn, its items, and what is claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.errors import LesionError
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import Block, Check, Folded, Page, Prose, entries
from lesion.report.marks import Bars
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.studies.comparison import items as of_items
from lesion.studies.comparison.claims import claims
from lesion.studies.comparison.items import row_name
from lesion.studies.comparison.pairing import Match
from lesion.studies.comparison.reading import digest
from lesion.studies.comparison.result import (
    Clustered,
    Compared,
    ComparisonSummary,
    Counts,
    Drop,
    Opened,
    Pair,
    TaskItems,
)
from lesion.studies.comparison.summary import gathered

READING = (
    "Both sides answered the same items, so that every difference is paired: its interval is Tango's for paired"
    " proportions, its p McNemar's exact test. Of scored tasks mean log-probabilities are compared, with Student's.",
    "Difference: accuracy of the second side minus accuracy of the first, in points, on the items that both answered:"
    " those whose id, question and right answer are the same in both folders.",
    "Extra drop: what an edit takes from the second side minus what it takes from the first. Its interval combines"
    " those of the two drops under their correlation over items; p is the exact sign-flip test.",
    "p is corrected by Holm's method over all comparisons of one question on one task: of the unedited models, of the"
    " edits, and of their extra drops. Intervals are not corrected.",
    "A difference of two models is one of everything they differ in: weights, and the prompt where a note says so.",
)
FEW = 30
"""Below so many items it is said what they can show."""
GONE = "The answers are not on this page: {why} Run the comparison again to have them."


@dataclass(frozen=True)
class ComparisonResult(StudyResult[ComparisonSummary]):
    """Several studies compared item by item. `table` has one row per pair, task and edit, as `comparison.csv`.

    Attributes:
        matches: the answers behind the numbers; None where the folders are gone or have changed since.
        why: why there are none, as a sentence.
    """

    SUMMARY = ComparisonSummary
    EYEBROW = "comparison of studies"
    READING = READING

    matches: tuple[Match, ...] | None = field(default=None, repr=False, compare=False)
    why: str = field(default="the folders were not read.", repr=False, compare=False)

    @classmethod
    @override
    def recall(cls, folder: Path) -> ComparisonResult | None:
        found = super().recall(folder)
        if found is None:
            return None
        summary = found.summary
        places = dict.fromkeys(folder / side.place for side in summary.sides)
        if len(places) != len(summary.study.folders):  # of some folder no model was compared
            places = dict.fromkeys(map(Path, summary.study.folders))
        try:
            read = gathered(summary.study.model_copy(update={"folders": tuple(map(str, places))}), folder)
        except LesionError as error:
            return cls(folder, summary, why=str(error))
        if digest(read.sources) != summary.digest:
            return cls(folder, summary, why="the folders have changed since.")
        return cls(folder, summary, matches=tuple(read.matches))

    @property
    def items(self) -> pd.DataFrame:
        """Question, gold answer, both answers and verdicts: one row per pair, task, edit and item, as `items.csv`.

        Raises:
            LesionError: the folders are gone or have changed since.
        """
        return of_items.items(self.summary, self._matches())

    @property
    def wrong_in_all(self) -> pd.DataFrame:
        """The items that every unedited model gets wrong.

        Raises:
            LesionError: the folders are gone or have changed since.
        """
        return of_items.wrong_in_all(self.summary, self._matches())

    def _matches(self) -> tuple[Match, ...]:
        if self.matches is None:
            raise LesionError(f"The answers cannot be read: {self.why} Run the comparison again.")
        return self.matches

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        level = f"{100 * summary.study.level:g}{wording.SPACE}%"
        records = [
            (pair, cell, cell.counts, cell.clustered, Opened(model=row_name(summary, pair, cell), edit=pair.b))
            for pair in summary.pairs
            for cell in pair.cells
        ]
        rows = Rows(
            "comparison", records, (Pair, Compared, Counts, Clustered, Opened), "Differences, second minus first",
            f"Accuracy in %, differences in points with paired {level} intervals (scored tasks: nats). Changed: items"
            " gained and lost. Extra drop: what the edit takes from the second side, minus what from the first.",
            marked="is_shown", most="size", brief=("task", "compared", "difference", "value_a", "value_b"),
        )  # fmt: skip
        panel = ("pair", "task")
        figures = (
            Bars(
                "difference", "edit_name", by="outcome", panel=panel, also=("a", "b", "items"), name="difference",
                caption=f"Second side minus first, on the same items; bars are paired {level} intervals.", wide=True,
            ),
            Bars(
                "extra_drop", "edit_name", by="extra_outcome", panel=panel, also=("items",), name="extra-drop",
                caption="How much more an edit takes from the second side than from the first.", wide=True,
            ),
        )  # fmt: skip
        one_model = all(pair.same_model for pair in summary.pairs)
        names = [visible(side.label) for side in summary.sides]
        title = (
            f"What changes from {names[0]} to {names[1]}?"
            if len(names) == 2
            else f"How do {wording.listed(names)} differ?"
        )
        tasks = {task.name: task for task in summary.tasks}
        drops = Rows(
            "drops", [(tasks[drop.task], drop) for drop in summary.drops], (TaskItems, Drop), "Drops",
            "Drop: unedited minus edited, on the items that are compared; in points, of scored tasks in nats.",
        )  # fmt: skip
        return (
            Part(title, rows, figures[: 1 if one_model else 2], tuple(claims(summary)), own=self._items(), wide=True),
            Part("Every edit against its own unedited model", drops, short="Drops"),
        )

    def _items(self) -> tuple[Block, ...]:
        if self.matches is None:
            return (Prose((GONE.format(why=self.why),), quiet=False),)
        frame = self.wrong_in_all
        label = f"{wording.counted(len(frame), 'item')} that every unedited model gets wrong"
        return (Folded(label, (of_items.shown(frame),)),) if len(frame) else ()

    @property
    @override
    def basis(self) -> str:
        tasks = [f"{task.name}: {wording.counted(task.items, 'item')}" for task in self.summary.tasks]
        return f"The same items, compared one by one ({', '.join(tasks)})."

    @override
    def checks(self) -> list[Check]:
        summary = self.summary
        unedited = [(pair, cell) for pair in summary.pairs for cell in pair.cells if cell.unedited]
        sides = {
            (label, cell.task): estimate.value
            for pair, cell in unedited
            if cell.counts is not None
            for label, estimate in ((pair.a, cell.a), (pair.b, cell.b))
        }
        ends = [
            f"{label} has {'every' if value else 'no'} item of {task} right"
            for (label, task), value in sides.items()
            if value in (0, 1)
        ]
        found = [Check("bad", f"{wording.listed(ends)}: what lies beyond cannot be seen.")] if ends else []
        if sides and not ends:
            found.append(
                Check(
                    "good",
                    "The unedited models are right on some items and wrong on others: losses and gains can show.",
                )
            )
        for task in summary.tasks:
            tests = sum(cell.task == task.name for _, cell in unedited)
            if not task.scored and task.items < FEW and tests:
                least = math.ceil(math.log2(2 * tests / wording.ALPHA))
                few = f"On {wording.counted(task.items, 'item')} of {task.name}"
                if least > task.items:
                    found.append(Check("bad", f"{few} no difference of unedited models can be significant."))
                else:
                    found.append(Check("bad", f"{few} a difference is significant only if {least} of them change."))
        return found

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        counts = [f"{task.name}: {wording.counted(task.items, 'item')}" for task in summary.tasks]
        sides = [(s.label, f"{s.model} (fingerprint {s.fingerprint}), {', '.join(s.engines)}") for s in summary.sides]
        named = [("folders", ", ".join(summary.study.folders)), *sides, ("tasks", ", ".join(counts))]
        return [(visible(name), value) for name, value in [*named, *entries({"level": summary.study.level})]]

    @override
    def page(self) -> Page:
        page = super().page()
        if self.matches is None:
            return page
        items = of_items.table(self.summary, self.matches)
        carried = browser.in_short(of_items.carried(self.summary, self.matches), self.names)
        return replace(page, carried=carried, tables=(*page.tables, items))
