"""The report of a comparison, in reading order: the verdict and its chart, every edit, items, how it was done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.errors import LesionError
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Block, Figure, Findings, Folded, Page, Panel, Prose, Section, entries, study_section
from lesion.report.browser import NOTHING
from lesion.report.finding import Finding
from lesion.report.table import Table
from lesion.studies.comparison import charts, tables
from lesion.studies.comparison import findings as prose
from lesion.studies.comparison import items as of_items
from lesion.studies.comparison.pairing import Match
from lesion.studies.comparison.reading import digest
from lesion.studies.comparison.result import ComparisonSummary, Pair
from lesion.studies.comparison.summary import gathered

METHOD = (
    "Both sides answered the same items, so that every difference is paired: its interval is Tango's for paired"
    " proportions, its p McNemar's exact test, corrected by Holm's method over all comparisons of unedited models, or"
    " of edits, on the task. Of scored tasks mean log-probabilities are compared, with Student's interval and test."
)
READING = (
    "Difference: accuracy of the second side minus accuracy of the first, in points, on the items that both answered.",
    "Extra drop: what an edit takes from the second side minus what it takes from the first. Its interval combines"
    " those of the two drops under their correlation over items; p is the exact sign-flip test.",
    "p is corrected by Holm's method over all comparisons of one question on one task: of the unedited models, of the"
    " edits, and of their extra drops. Intervals are not corrected.",
    "Items are compared where id, question and right answer are the same in both folders.",
    "A difference of two models is one of everything they differ in: weights, and the prompt where a note says so.",
)
FIRST = 2
"""So many verdicts stand above the chart, which is to be seen with them; the others are folded."""
GONE = "The answers are not on this page: {why} Run the comparison again to have them."


@dataclass(frozen=True)
class ComparisonResult(StudyResult[ComparisonSummary]):
    """Several studies compared item by item. `table` has one row per pair, task and edit, as `comparison.csv`.

    Attributes:
        matches: the answers behind the numbers; None where the folders are gone or have changed since.
        why: why there are none, as a sentence.
    """

    SUMMARY, TABLE, TEXT = ComparisonSummary, tables.comparison, tables.text

    matches: tuple[Match, ...] | None = field(default=None, repr=False, compare=False)
    why: str = field(default="the folders were not read.", repr=False, compare=False)

    @override
    def shown(self) -> Table:
        return tables.overview(self.summary)

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
    def page(self) -> Page:
        summary, matches = self.summary, self.matches
        figures = [_figure(summary, pair, number) for number, pair in enumerate(summary.pairs)]
        sections = [Section("Findings", "Findings", tuple(_findings(summary, figures[0])))]
        for number, pair in enumerate(summary.pairs):
            sections.append(_pair(summary, pair, number, figures[number] if number else []))
        sections.append(self._items())
        names = wording.listed([side.label for side in summary.sides])
        return Page(
            title=visible(summary.study.title or f"{names}, compared item by item"),
            eyebrow="comparison of studies",
            sections=(*sections, _study(summary)),
            version=summary.version,
            carried=NOTHING if matches is None else of_items.carried(summary, matches),
            tables=(tables.comparison(summary), *([] if matches is None else [of_items.table(summary, matches)])),
        )

    def _items(self) -> Section:
        blocks: list[Block] = []
        if self.matches is None:
            blocks.append(Prose((GONE.format(why=self.why),), quiet=False))
        elif len(frame := self.wrong_in_all):
            label = f"{wording.counted(len(frame), 'item')} that every unedited model gets wrong"
            blocks.append(Folded(label, (of_items.shown(frame),)))
        blocks.append(Folded("Every edit against its own unedited model", (tables.drops(self.summary),)))
        return Section("Items", "Items and edits", tuple(blocks))


def _findings(summary: ComparisonSummary, figure: Sequence[Figure]) -> Iterator[Block]:
    """The verdicts, the chart that shows the first of them, then what else they rest on."""
    findings = prose.findings(summary)
    heads = tuple(Finding(finding.subject, finding.headline) for finding in findings)
    grounds = tuple(Finding(finding.subject, (), finding.sentences) for finding in findings if finding.sentences)
    yield Findings(heads[:FIRST], heads[FIRST:], "More tasks and pairs")
    yield from figure
    if grounds:
        yield Findings(grounds[:FIRST], grounds[FIRST:], "More tasks and pairs")
    yield Prose((METHOD,))


def _figure(summary: ComparisonSummary, pair: Pair, number: int, of: charts.Of = charts.difference) -> list[Figure]:
    """The figure of a pair, a panel per task; none where nothing is compared."""
    drawn = {task.name: charts.differences(summary, pair, task.name, of) for task in summary.tasks}
    panels = tuple(Panel((chart,), visible(task)) for task, chart in drawn.items() if chart is not None)
    if not panels:
        return []
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    what = (
        f"{pair.b} minus {pair.a}, on the same items"
        if of is charts.difference
        else f"How much more an edit takes from {pair.b} than from {pair.a}"
    )
    more = any(len(pair.of_task(task)) > charts.MOST for task in drawn)
    rest = f" Drawn are the {charts.MOST} rows that differ most; all are in the table." if more else ""
    name = ("difference" if of is charts.difference else "extra-drop") + (f"-{number}" if number else "")
    caption = f"{what}; bars are paired {level} intervals.{rest}"
    return [Figure(name, panels, caption, charts.legend(of))]


def _pair(summary: ComparisonSummary, pair: Pair, number: int, figures: Sequence[Figure]) -> Section:
    blocks: list[Block] = list(figures)
    if not pair.same_model:
        blocks += _figure(summary, pair, number, charts.extra_drop)
    for task in summary.tasks:
        if pair.of_task(task.name):
            table = tables.of_pair(pair, task.name, scored=task.scored, level=summary.study.level)
            blocks += [Prose((table.title,), quiet=False), table]
    alone = len(summary.pairs) == 1
    title = visible("Every edit" if alone else f"{pair.b} against {pair.a}")
    return Section("Edits" if alone else title, title, tuple(blocks), f"pair-{number}")


def _study(summary: ComparisonSummary) -> Section:
    facts = [("folders", ", ".join(summary.study.folders))]
    for side in summary.sides:
        facts.append((side.label, f"{side.model} (fingerprint {side.fingerprint}), {', '.join(side.engines)}"))
    counts = [f"{task.name}: {wording.counted(task.items, 'item')}" for task in summary.tasks]
    facts += [("tasks", ", ".join(counts)), *entries({"level": summary.study.level})]
    return study_section(((visible(name), value) for name, value in facts), summary.notes, READING)
