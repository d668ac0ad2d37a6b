"""The report of a patching study, in reading order."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import (
    Block,
    Figure,
    Findings,
    Opening,
    Page,
    Panel,
    Prose,
    Section,
    entries,
    study_section,
)
from lesion.report.finding import Finding
from lesion.studies.patching import charts, tables
from lesion.studies.patching import findings as prose
from lesion.studies.patching.result import Direction, PatchedTask, PatchingSummary
from lesion.studies.patching.study import POSITIONS

METHOD = (
    "Every item has a clean and a corrupted prompt of as many tokens, whose right answers differ. Denoising puts values"
    " of the clean run into the corrupted run: what restores the clean answer is sufficient for it there. Noising puts"
    " corrupted values into the clean run: what breaks the answer is necessary for it."
)
READING = (
    "Effect: how far a patch moves the mean logit difference (the clean prompt's answer minus the corrupted prompt's)"
    " from one run to the other: 0 % nothing, 100 % all. The mean change is divided by the mean difference of the two"
    " runs, never item by item, where the difference may be near 0. Below 0 % it moves away, above 100 % beyond.",
    "A head is patched at the input of the attention's output matrix: the other heads and the bias stay as they are in"
    " the run. Heads are named block.head, as 9.6.",
    "The interval is that of a ratio of means over pairs (linearised, Student's quantile). p is Student's test that the"
    " logit difference does not move, corrected by Holm's method over all cells of the model and task.",
    "Before the first differing token both runs are the same, so nothing is patched there. The whole residual stream at"
    " all tokens from there on restores everything by construction and is not measured.",
    "Denoising and noising need not agree: several places may each suffice and none be necessary (an OR), or all be"
    " needed and none suffice (an AND). See Heimersheim and Nanda (2024).",
    "After Meng et al. (2022) and Wang et al. (2023), with the symmetric replacement of tokens and the logit difference"
    " that Zhang and Nanda (2024) recommend. Pairs that share a corrupted item are taken for independent.",
)
DIRECTIONS: dict[Direction, tuple[str, str]] = {
    "denoise": ("denoising", "Denoising: the share that a clean value restores in the corrupted run"),
    "noise": ("noising", "Noising: the share that a corrupted value breaks in the clean run"),
}


@dataclass(frozen=True)
class PatchingResult(StudyResult[PatchingSummary]):
    """A patching study. `table` has one row per model, task and patch, as `patching.csv`.

    Attributes:
        evaluated: runs of this call, patched ones and those of both prompts, without those stored before.
        planned: runs that the study consists of; 0 where it was not run now.
    """

    SUMMARY, TABLE, TEXT = PatchingSummary, tables.patches, tables.text_tables

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per model and task, as `pairs.csv`."""
        return tables.runs(self.summary).frame

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def page(self) -> Page:
        summary = self.summary
        tasks = summary.tasks
        blocks: tuple[Block, ...] = (Findings(tuple(self.found())), Prose((METHOD,)), tables.runs(summary))
        sections = [Section("Findings", "Findings", blocks)]
        sections += [_section(task, number, len(tasks)) for number, task in enumerate(tasks)]
        sections.append(Section("Patches", "All patches", (tables.patches(summary),)))
        study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        sections.append(study_section(entries(study), summary.notes, READING))
        names = wording.listed(list(dict.fromkeys(task.task for task in tasks)))
        models = wording.listed(list(dict.fromkeys(task.model for task in tasks)))
        return Page(
            title=visible(summary.study.title or f"Activation patching of {models} on {names}"),
            eyebrow="activation patching",
            sections=tuple(sections),
            version=summary.version,
            opening=Opening(_lead(summary)),
        )

    @override
    def done(self) -> list[str]:
        return [progress_line("evaluated", self.evaluated, self.planned, " patched runs")] if self.planned else []


def _lead(summary: PatchingSummary) -> tuple[str, ...]:
    """The verdict of the first task."""
    return prose.findings(summary)[0].headline[:2] if summary.tasks else ()


def _section(task: PatchedTask, number: int, of: int) -> Section:
    after = f"-{number + 1}" if of > 1 else ""
    name = f"{task.model}, {task.task}" if of > 1 else task.task
    figures: list[Block] = []
    for direction, (file, _) in DIRECTIONS.items():
        if any(cell.place != "head" for cell in task.cells):
            figures.append(_figure(task, direction, f"{file}{after}"))
        if task.of(direction, "head"):
            figures.append(_heads_figure(task, direction, f"{file}-heads{after}"))
    if task.of("denoise", "head"):
        figures.append(tables.heads(task, f"heads{after}"))
    example = task.example
    pair = (
        f"A pair: “{visible(example.clean)}” ({visible(example.answers[0])}) and"
        f" “{visible(example.corrupted)}” ({visible(example.answers[1])})."
    )
    return Section(visible(name), visible(f"Where the answer is carried: {name}"), (*figures, Prose((pair,))))


def _figure(task: PatchedTask, direction: Direction, file: str) -> Figure:
    kinds = [kind for kind in charts.TITLES if kind != "head" and task.of(direction, kind)]
    panels = tuple(Panel((charts.heat_map(task, direction, kind),), charts.TITLES[kind]) for kind in kinds)
    rows = {cell.position for cell in task.cells}
    what = "; ".join(f"{charts.label(name)}: {text}" for name, text in POSITIONS.items() if name in rows)
    caption = (
        f"{DIRECTIONS[direction][1]}, of the mean logit difference; {task.model}, {task.task},"
        f" {wording.counted(task.pairs, 'pair')}. Boxed: at least half, by its interval. {wording.capital(what)}."
    )
    return Figure(file, panels, caption, columns=1, wide=True)


def _heads_figure(task: PatchedTask, direction: Direction, file: str) -> Figure:
    positions = [name for name in prose.WHERE if any(cell.position == name for cell in task.of(direction, "head"))]
    panels = tuple(
        Panel((charts.head_map(task, direction, name),), f"Heads at the {prose.WHERE[name]}") for name in positions
    )
    caption = (
        f"{DIRECTIONS[direction][1]}, of every head at the input of the output matrix; {task.model}, {task.task},"
        f" {wording.counted(task.pairs, 'pair')}. Boxed: beyond chance, corrected over all cells."
    )
    return Figure(file, panels, caption, columns=1, wide=True)
