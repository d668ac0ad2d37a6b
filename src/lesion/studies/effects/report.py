"""The report of a study of effects, in reading order."""

from __future__ import annotations

from collections.abc import Sequence
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
    Folded,
    Opening,
    Page,
    Panel,
    Section,
    entries,
    study_section,
)
from lesion.report.finding import Finding
from lesion.studies.effects import charts, tables
from lesion.studies.effects import findings as prose
from lesion.studies.effects.result import EffectsSummary, TaskEffects, UnitEffects

READING = (
    "Every number is teacher-forced: the model reads the prompt and the gold solution, and each gold token is judged at"
    " the position before it. Means over the tokens of an item, then over items; intervals by bootstrap over items.",
    "Gold logit: that of the right token minus the mean logit over the vocabulary, or, where the task has a tempting"
    " token, minus that of the tempting token; before any softcap.",
    "Direct effect: what a place adds to the gold logit through the final norm and the head, with the norm's scale that"
    " the whole model has. The embedding, all blocks and the biases add up to the gold logit.",
    "Total effect: by how much the gold logit is lower when the place is switched off and all later blocks compute with"
    " what is left. Repaired: direct minus total (McGrath et al. 2023). A part of it is the final norm, which scales up"
    " what is left (Rushing and Nanda 2024); the rest is later blocks. That rest is tested by a t-test over items,"
    " corrected by Holm over the places of a unit. Which share of all is repaired is measured on items that did not"
    " choose the places: each half of the items chooses for the other. Where the rest is negative, later blocks read"
    " what is written and write more of their own.",
    "A head writes through its columns of the attention's output matrix, and is switched off at the input of that: the"
    " heads of a block and its bias add up to what the attention writes. A norm behind the matrix is frozen.",
    "Logit lens (nostalgebraist 2020): layer 0 is what enters block 0, layer l what block l − 1 gives; the last layer"
    " is the model as it is. Early streams are not in the basis of the head, so a low number there does not show that"
    " nothing is known.",
    "Classes of gold tokens: the parts that a task names in its right answers (copied number, result), else the first"
    " token and the rest. A share is over all tokens of a class. Tokens of one item depend on each other, so intervals"
    " draw items again, and tests flip the signs of whole items, corrected by Holm over the places of a unit and the"
    " classes. A share of 0 or 100 % has Wilson's interval, each item counted as one. A class loses most where every"
    " other loses less, tested likewise and corrected over the places.",
    "Block influence (Men et al. 2024): 1 − cosine of what enters and what leaves a block, mean over all tokens of the"
    " texts. It needs no gold answers.",
)


DRAWN_GROUPS = 6
"""Of more groups of items, the numbers stand in the table alone."""


@dataclass(frozen=True)
class EffectsResult(StudyResult[EffectsSummary]):
    """A study of effects. `table` has one row per model, task and place, as `effects.csv`."""

    SUMMARY, TABLE, TEXT = EffectsSummary, tables.effects, tables.text_tables

    @property
    def lens(self) -> pd.DataFrame:
        """One row per model, task and layer, as `lens.csv`."""
        return tables.lens(self.summary).frame

    @property
    def screens(self) -> pd.DataFrame:
        """One row per model, task, unit and screen, as `screens.csv`; no rows without a layer study."""
        return tables.screens(self.summary).frame

    @property
    def classes(self) -> pd.DataFrame:
        """One row per model, task, group, place and class of gold token, as `classes.csv`."""
        return tables.classes(self.summary).frame

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def done(self) -> list[str]:
        return [progress_line("measured", self.evaluated, self.planned, " items")] if self.planned else []

    @override
    def page(self) -> Page:
        summary = self.summary
        by_model: dict[str, list[TaskEffects]] = {}
        for task in summary.tasks:
            by_model.setdefault(task.model, []).append(task)
        names = [*by_model]
        which = wording.listed(names) if len(names) < 4 else f"{len(names)} models"
        facts = entries(summary.study.model_dump(mode="json", exclude_none=True))
        models = (section for number, tasks in enumerate(by_model.values()) for section in _model(tasks, number))
        first, finding = summary.tasks[0], prose.findings(summary)[0]
        lead = (f"{finding.subject}: {finding.headline[0]}", *finding.headline[1:3])
        return Page(
            title=visible(summary.study.title or f"Direct and total effects of the blocks of {which}"),
            eyebrow="effects of blocks",
            sections=(
                Section("Findings", "Findings", (Findings(tuple(prose.findings(summary))),)),
                *models,
                *_screens(summary),
                Section("Tables", "All numbers", _tables(summary)),
                study_section(facts, summary.notes, READING),
            ),
            version=summary.version,
            tables=(tables.lens(summary), *(() if summary.study.study else (tables.screens(summary),))),
            opening=Opening(lead, _effects(first, "", first.units[:1])[0]),
        )


def _model(tasks: Sequence[TaskEffects], number: int) -> list[Section]:
    """The sections of one model."""
    after = f"-{number}" if number else ""
    names = [task.task for task in tasks]
    panels = (
        Panel((charts.lens_chart(tasks, "log_probability", "log-probability, nats per token"),), "log-probability"),
        Panel((charts.lens_chart(tasks, "top", "share of gold tokens"),), "most probable token"),
    )
    lens = Figure(
        f"lens{after}",
        panels,
        "The gold tokens read off the stream after every block through the final norm and the head.",
        charts.legend(names),
    )
    effects = [
        figure
        for place, task in enumerate(tasks)
        for figure in _effects(task, f"effects{after}{f'-{place}' if place else ''}", task.units)
    ]
    classes = [
        figure
        for place, task in enumerate(tasks)
        for figure in _classes(task, f"classes{after}{f'-{place}' if place else ''}")
    ]
    blocks: list[Block] = [lens, *effects, *classes]
    if any(unit.unit == "block" for unit in tasks[0].units):
        blocks.append(
            Figure(
                f"influence{after}",
                (Panel((charts.influence_chart(tasks),), "block influence"),),
                "1 − cosine of what enters and what leaves a block, mean over the tokens of the texts.",
                charts.legend(names),
            )
        )
    model = visible(tasks[0].model)
    return [Section(model, f"Blocks of {model}", tuple(blocks), named=f"model{after}")]


def _effects(task: TaskEffects, name: str, units: Sequence[UnitEffects]) -> list[Figure]:
    """Blocks and branches as points, heads as maps."""
    against = "the tempting token" if task.reference == "tempting" else "the mean over the vocabulary"
    caption = (
        f"{task.model}, {task.task}: what each place writes towards the right token (direct) and what its removal takes"
        f" (total), in logits against {against}."
    )
    panels = tuple(
        Panel((charts.effects_chart(task, unit.unit),), f"{task.task}: {wording.UNIT_NAMES[unit.unit]}")
        for unit in units
        if unit.unit != "head"
    )
    figures = [Figure(name, panels, caption, charts.legend(charts.EFFECTS), small=len(panels) > 1)] if panels else []
    if any(unit.unit == "head" for unit in units):
        maps = tuple(
            Panel((charts.heads_chart(task, measure),), f"{task.task}: {measure} effect of heads")
            for measure in ("direct", "total")
        )
        boxed = f"{caption} Boxed: repaired by later blocks beyond chance."
        figures.append(Figure(f"{name}-heads" if name else "", maps, boxed, columns=1, wide=True))
    return figures


def _classes(task: TaskEffects, name: str) -> list[Figure]:
    """What every place takes from every class of gold tokens, and the same by group of items."""
    units = [unit.unit for unit in task.units if unit.unit != "head"]  # those of heads are in the table
    if task.classes is None or not units:
        return []
    cells = "in the cells the share that is still the most probable token, in percent"
    first = units[0]
    figures = [
        Figure(
            name,
            tuple(
                Panel((charts.classes_chart(task.classes, unit),), f"{task.task}: {wording.UNIT_NAMES[unit]}")
                for unit in units
            ),
            f"{task.model}, {task.task}: gold tokens by class; {cells}. Boxed: fewer than unedited, beyond chance.",
            small=len(units) > 1,
        )
    ]
    if 1 < len(task.groups) <= DRAWN_GROUPS and task.units[0].unit == first:
        panels = tuple(
            Panel((charts.classes_chart(table, first),), f"{table.group}: {wording.counted(table.items, 'item')}")
            for table in task.groups
        )
        caption = f"{task.model}, {task.task}: the same by group of items; {cells}."
        figures.append(Figure(f"{name}-groups", panels, caption, small=True))
    return figures


def _tables(summary: EffectsSummary) -> tuple[Block, ...]:
    blocks = [Folded("Every place", (tables.effects(summary),))]
    if any(task.classes for task in summary.tasks):
        blocks.append(Folded("Every place by class of gold token", (tables.classes(summary),)))
    return tuple(blocks)


def _screens(summary: EffectsSummary) -> list[Section]:
    if not any(task.agreements for task in summary.tasks):
        return []
    return [Section("Screens", "Cheap measures beside the drops of accuracy", (tables.screens(summary),))]
