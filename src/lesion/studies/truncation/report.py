"""The report of a truncation search, in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import override

from lesion.core import cost
from lesion.core.result import StudyResult
from lesion.plain import plain
from lesion.report import wording
from lesion.report.blocks import (
    Block,
    Chapter,
    Facts,
    Findings,
    Folded,
    Opening,
    Page,
    Prose,
    Section,
    entries,
    study_section,
)
from lesion.report.finding import Finding
from lesion.studies.truncation import charts, maps, spectra, tables, terminal
from lesion.studies.truncation import findings as prose
from lesion.studies.truncation.result import BEST, Decompositions, TruncationSummary

SAME = (
    "Edits and the unedited model answered the same items with the same prompts and decoding. Brackets are {level}"
    " intervals, which are not corrected; where one reaches across 0, nothing is claimed."
)
REVISIONS = (
    "The edit that was chosen on the model searched (the last place), on other revisions of it. Revisions stand side by"
    " side in the order given; their distance says nothing."
)
READING = (
    "A cell replaces one matrix by a part of its spectrum: the largest singular values (top) or the smallest (bottom),"
    " keep being the fraction of the rank. Everything else of the model stays as it is.",
    "The edit is chosen on validation items only, and tested on test items. A gain on validation items alone is what"
    " choosing the best of many gives also where there is nothing to find.",
    "Where accuracy gains and the log-probability of gold answers does not, or the other way round, read the answers.",
    "Where a model gives one label nearly always, accuracy says how frequent that label is among the items.",
    "That a removal helps does not show that the removed part of the spectrum is special: it must be better than all of"
    " its rivals, which are measured on the same test items.",
    "No evidence is not evidence of nothing: the interval says what was ruled out.",
)


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

    SUMMARY, TABLE, TEXT = TruncationSummary, tables.cells, terminal.text_tables

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of the chosen edit, or of the composition; None: no edit was better."""
        return self.folder / BEST if self.summary.chosen else None

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary, decompositions(self.folder))

    @override
    def page(self) -> Page:
        summary = self.summary
        level = charts.level(summary)
        findings = Findings(tuple(prose.findings(summary, decompositions(self.folder))))
        sections = [
            Section("Findings", "Findings", (findings, Prose((SAME.format(level=level),)))),
            Section("Search", "What was searched", _searched(summary), within="method"),
            Section("Map", "Every matrix, layer and keep against the unedited model", tuple(_maps(summary))),
            Section("Test", "On items that had no part in the choice", (tables.test(summary),)),
            Section("Rivals", "What does the same without a part of the spectrum removed", (tables.rivals(summary),)),
        ]
        if summary.searched_tokens:
            label = "The numbers" + (", of all revisions" if summary.followed else "")
            table = Folded(label, (tables.tokens(summary),))
            title = "The right and the tempting token, before and after"
            sections.append(Section("Tokens", title, (*charts.token_figures(summary), table)))
        if summary.revisions:
            figures = charts.revision_figures(summary)
            sections.append(Section("Revisions", "Along the revisions", (Prose((REVISIONS,)), *figures)))
        if summary.path:
            figure = charts.path_figure(summary)
            steps: list[Block] = [*([figure] if figure else []), tables.composition(summary)]
            sections.append(Section("Composition", "Composed over layers", tuple(steps)))
        if (spectrum := spectra.figure(summary)) is not None:
            sections.append(Section("Spectra", "Spectra", (spectrum,)))
        sections.append(Section("Cells", "All cells on the validation items", (tables.best_cells(summary),)))
        sections.append(study_section(_facts(summary), summary.notes, READING))
        return Page(
            title=plain(summary.study.title or _title(summary)),
            eyebrow="truncation of weights",
            sections=tuple(section for section in sections if section.blocks),
            version=summary.version,
            approximate=summary.approximate or "",
            tables=(tables.cells(summary), tables.revisions(summary), tables.spectra(summary)),
            opening=Opening(figure=charts.test_figure(summary)),
        )

    @override
    def chapter(self) -> Chapter:
        summary = self.summary
        return Chapter(
            "Does removing a part of a matrix's spectrum make the model better?",
            "Truncations are tried on validation items; the best is tested on items that the search never saw.",
            tuple(prose.findings(summary)),
            short="Truncation",
        )

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


def _title(summary: TruncationSummary) -> str:
    """The title of a study that has none of its own."""
    tasks = wording.listed([task.name for task in summary.tasks])
    return f"Truncations of {summary.model.name} for {tasks}"


def _searched(summary: TruncationSummary) -> tuple[Block, ...]:
    study, full, given_up = summary.study, summary.complete, summary.given_up
    merged = f", and {summary.merged:,} more that keep the same as another" if summary.merged else ""
    early = f", and {given_up:,} more given up early" if given_up else ""
    facts = (
        ("matrices", ", ".join(summary.matrices)),
        ("layers", wording.layer_runs({cell.layer for cell in summary.cells})),
        ("keep", ", ".join(wording.keep(keep) for keep in study.keep) + " of the rank"),
        ("sides", "top, bottom" if study.side == "both" else study.side),
        ("chosen by", "log-probability of gold answers" if summary.by_gold else "accuracy"),
        ("cells", f"{len(summary.cells):,}{merged}"),
        ("evaluated in full", f"{wording.counted(full, 'cell')}{early}"),
        ("chosen on", _items(summary, "validation")),
        ("tested on", _items(summary, "test")),
    )
    visible_facts = tuple((name, plain(value)) for name, value in facts)
    return Facts(visible_facts), Prose(title="The unedited model"), tables.unedited(summary)


def _items(summary: TruncationSummary, part: str) -> str:
    return ", ".join(
        f"{wording.counted(getattr(task, f'{part}_items'), f'{part} item')} of {task.name}" for task in summary.tasks
    )


def _maps(summary: TruncationSummary) -> list[Block]:
    """The maps of every measure, those that do not show what the search maximises folded; the first have files."""
    every = maps.all_maps(summary)
    if not every:
        return []
    blocks: list[Block] = []
    of_objective = ("screen", "gold" if summary.by_gold else "accuracy")
    named = 0
    for place, of_measure in enumerate(every):
        name = ""
        if of_measure.measure.kind in of_objective:
            name, named = f"map-{named}" if named else "map", named + 1
        figures = tuple(maps.figures(summary, of_measure, name))
        blocks += figures if place == 0 else [Folded(of_measure.measure.name, figures)]
    undrawn = [measure.name for measure in maps.measures(summary)[len(every) :]]
    return [*blocks, Prose((_map_note(summary, undrawn),))]


def _map_note(summary: TruncationSummary, undrawn: Sequence[str]) -> str:
    note = "Columns: layers. Rows: fraction of the rank kept, and how many singular values that is."
    signs = [
        ("empty, the screen left it out", any(not cell.outcomes and cell.eliminated is None for cell in summary.cells)),
        ("×, given up early", summary.given_up > 0),
        ("≡, one label nearly always", any(cell.collapsed for cell in summary.cells)),
    ]
    if shown := [sign for sign, there in signs if there]:
        note += f" Outlined cells have no number to compare: {'; '.join(shown)}."
    note += (
        " All are on the items that choose: the largest of many is partly luck, which is why the test has items of its"
        " own. Point at a cell to read all of its numbers."
    )
    if undrawn:
        note += f" Not drawn, for want of room: {'; '.join(undrawn)}."
    return f"{note} Unrounded: cells.csv."


def _facts(summary: TruncationSummary) -> list[tuple[str, str]]:
    """The study's and the model's own entries, for whoever wants to repeat it."""
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title", "model", "tasks"})
    model = summary.model.model_dump(exclude={"name"})
    tasks = (
        f"{task.name} ({task.kind}, {wording.counted(task.validation_items, 'validation item')}, "
        f"{wording.counted(task.test_items, 'test item')})"
        for task in summary.tasks
    )
    return [("model", summary.model.name), ("tasks", ", ".join(tasks)), *entries(study), *entries(model)]
