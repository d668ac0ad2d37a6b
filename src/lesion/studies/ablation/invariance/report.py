"""The invariance of a layer study as a section of its page: verdicts, curves, agreement, and training."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TYPE_CHECKING

from lesion.report import theme, wording
from lesion.report.blocks import Block, Chapter, Figure, Findings, Folded, Panel, Prose, Section, Series
from lesion.report.finding import Finding
from lesion.studies.ablation import charts as ablation_charts
from lesion.studies.ablation.invariance import charts, tables
from lesion.studies.ablation.invariance.charts import OfFamily, Training
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary


def section(summary: AblationSummary) -> Section | None:
    """What the page shows of every family; None where there is none."""
    shared = summary.invariance
    if shared is None:
        return None
    every = charts.families(summary)
    findings = Findings(tuple(finding(of.family) for of in every))
    notes = tuple(note for of in every for note in of.family.notes)
    blocks: list[Block] = [findings, *([Prose(notes)] if notes else [])]
    reasons = [f"{of.family.family}, {reason}" for of in every for reason in of.family.verdict.reasons]
    blocks.append(Folded("Reasons, and how the words are chosen", (Prose((shared.rule,), tuple(reasons)),)))
    taken: set[str] = set()
    for of in every:
        parts = _family(of, summary.study.level, taken)
        label = f"{of.family.family}: curves, critical blocks, agreement"
        heading = [Prose(title=of.family.family)] if len(every) == 2 else []
        blocks += [Folded(label, tuple(parts))] if len(every) > 2 else [*heading, *parts]
    return Section("Invariance", "The same blocks in all of them?", tuple(blocks))


def chapter(summary: AblationSummary) -> Chapter:
    """What a layer study adds to a page over several studies: of every family the verdict and its curves."""
    every = charts.families(summary)
    level = summary.study.level
    return Chapter(
        "Which blocks does each skill depend on, and are they the same in base and children?",
        "Each block in turn is switched off, and the model answers the same items as before. Filled and numbered:"
        " critical.",
        tuple(finding(of.family) for of in every),
        tuple(_curves(of, level, slug(f"invariance-{of.family.family}")) for of in every),
    )


def finding(family: FamilyResult) -> Finding:
    """The verdict on a family: its first sentence leads, what it rests on and the words of every task follow."""
    lead, rest = lead_and_rest(family)
    words = [f"{task}: {word}" for task, word in family.verdict.by_task.items()]
    if family.verdict.between is not None:
        words.append(f"other tasks lose far less there: {family.verdict.between}")
    sentences = [rest] if rest else []
    sentences += [f"{'; '.join(words)}."] if words else []
    return Finding(f"{family.family}: {family.verdict.word}", (lead,), tuple(sentences))


def lead_and_rest(family: FamilyResult) -> tuple[str, str]:
    """The first sentence of the verdict, and the others."""
    lead, stop, rest = family.verdict.text.partition(". ")
    return lead + stop.strip(), rest


def slug(name: str, taken: Container[str] = ()) -> str:
    """The name as a part of a file's name: letters, digits, `.`, `-` and `_`; with a number where it is taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60] or "unnamed"
    free, count = plain, 2
    while free in taken:
        free, count = f"{plain}-{count}", count + 1
    return free


def _family(of: OfFamily, level: float, taken: set[str]) -> list[Block]:
    family, percent = of.family, f"{100 * level:g}{wording.SPACE}%"

    def name(*parts: str) -> str:
        free = slug("-".join(parts), taken)
        taken.add(free)
        return free

    blocks: list[Block] = []
    if len(of.finished.labels) > 1:
        blocks.append(_curves(of, level, name("invariance", family.family)))
        blocks.append(
            Figure(
                "",
                tuple(Panel((charts.critical(of, task),), task.task) for task in family.tasks),
                f"{family.family}, critical blocks. Coloured and boxed: critical. The number is the share of the"
                " model's own accuracy that is lost without the block, in %, so that variants of different strength can"
                " be compared; below 0 it answers better.",
            )
        )
    matrices = [(task.task, matrix) for task in family.tasks if (matrix := charts.correlations(of, task)) is not None]
    if matrices:
        blocks.append(
            Figure(
                "",
                tuple(Panel((matrix,), task) for task, matrix in matrices),
                f"{family.family}, ranks. Spearman's ρ of the drops over blocks as measured. In brackets: the"
                f" {percent} interval for the true profiles, whose noise is taken out, so that it may lie above ρ; not"
                " measurable: too much noise, or too many blocks that cost the same. p is one-sided (agreement), from"
                " all or 10,000 orders of the blocks, corrected by Holm's method over the pairs of the task (in the"
                " verdict over those with the base). Boxed: at most .05. Among blocks whose drops are all small, ranks"
                " are noise.",
                small=True,
            )
        )
    overlaps = tables.overlaps(family)
    if len(overlaps.frame):
        joint = tuple(sentence for task in family.tasks if (sentence := tables.joint(task, family.labels)))
        blocks.append(Folded("Overlap of the critical sets, against chance", (Prose(items=joint), overlaps)))
    blocks += [
        _training(of, task, training, name("invariance-time", family.family, task.task))
        for task in family.tasks
        for training in charts.trainings(of, task)
    ]
    if family.between_tasks:
        heading = Prose(title=f"{family.family}: one task against another in the same model")
        blocks += [heading, tables.between(family, percent)]
    return blocks


def _curves(of: OfFamily, level: float, name: str) -> Figure:
    """Accuracy of all variants; models of different depth over their relative depth."""
    family, percent = of.family, f"{100 * level:g}{wording.SPACE}%"
    tasks = [task for task in family.tasks if of.finished.panels.get(task.task)]
    series = tuple(Series(label, index) for index, label in enumerate(of.finished.labels))
    if family.depths_differ:
        panels = [charts.by_depth(of, task.task) for task in tasks]
        caption = f"models of different depth: 0 % is the first block, 100 % the last. Bars: {percent} intervals."
    else:
        panels = [ablation_charts.accuracy(of.finished, task.task) for task in tasks]
        series = ablation_charts.legend(of.finished, level)
        caption = (
            "every variant on the same items, with one block cut at a time. Filled and numbered: critical. Shaded:"
            f" {percent} intervals."
        )
    titles = [f"{task.task}, n = {task.items:,}" for task in tasks]
    return Figure(
        name,
        tuple(Panel((chart,), title) for chart, title in zip(panels, titles, strict=True)),
        f"{family.family}, accuracy of {caption}",
        series,
        small=len(tasks) > 2,
    )


def _training(of: OfFamily, task: FamilyTask, training: Training, name: str) -> Figure:
    return Figure(
        name,
        (Panel((charts.over_time(of, task, training),), f"{task.task} over the training of {training.source}"),),
        "Drop in points without each block, a row per checkpoint; the first column is the accuracy of the unedited"
        " model in %, the last the rank correlation with the end. Where the model cannot do the task yet, nothing can"
        f" be critical. {charts.ONSET}: the block became critical between the checkpoint above and this one.",
        (Series("lost", colour=theme.LOSS, area=True), Series("gained", colour=theme.GAIN, area=True)),
    )
