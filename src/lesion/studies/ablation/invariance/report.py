"""The invariance of a layer study as a section of its page: verdicts, curves, agreement, and training."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from lesion.report import theme, wording
from lesion.report.blocks import Block, Chapter, Figure, Findings, Folded, Panel, Prose, Section, Series
from lesion.report.finding import Finding
from lesion.studies.ablation import charts as ablation_charts
from lesion.studies.ablation.invariance import charts, tables
from lesion.studies.ablation.invariance.charts import OfFamily, p_text
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask
from lesion.studies.ablation.invariance.tables import blocks_of

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary


METHOD = "One block is switched off at a time, on the same items."


def section(summary: AblationSummary) -> Section | None:
    """What the page shows of every family; None where there is none."""
    shared = summary.invariance
    if shared is None:
        return None
    every = charts.families(summary)
    notes = tuple(note for of in every for note in of.family.notes)
    reasons = tuple(f"{of.family.family}, {reason}" for of in every for reason in of.family.verdict.reasons)
    blocks: list[Block] = [
        Findings(tuple(finding(of.family) for of in every)),
        *([Prose(notes)] if notes else []),
        Folded("Reasons, and how the words are chosen", (Prose((shared.rule,), reasons),)),
    ]
    taken: set[str] = set()
    for of in every:
        parts = _family(of, summary.study.level, taken)
        if len(every) > 2:
            blocks.append(Folded(f"{of.family.family}: curves, critical blocks, agreement", tuple(parts)))
        else:
            blocks += [*([Prose(title=of.family.family)] if len(every) == 2 else []), *parts]
    return Section("Invariance", "The same blocks in all of them?", tuple(blocks))


def chapter(summary: AblationSummary) -> Chapter:
    """What a layer study adds to a page over several studies: of every family the verdict and its curves."""
    every = charts.families(summary)
    level = summary.study.level
    return Chapter(
        "Which blocks does each skill depend on, and are they the same in base and children?",
        f"{METHOD} Filled and numbered: critical.",
        tuple(finding(of.family) for of in every),
        tuple(_curves(of, level, slug(f"invariance-{of.family.family}")) for of in every),
    )


def finding(family: FamilyResult) -> Finding:
    """The verdict on a family: its first sentence leads, what it rests on follows."""
    verdict = family.verdict
    lead, stop, rest = verdict.text.partition(". ")
    return Finding(f"{family.family}: {verdict.word}", (lead + stop.strip(),), (rest,) if rest else ())


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
        if family.depths_differ:  # else the curves stand in the section of accuracies
            blocks.append(_curves(of, level, name("invariance", family.family)))
        blocks.append(
            Figure(
                "",
                tuple(Panel((charts.critical(of, task),), task.task) for task in family.tasks),
                f"{family.family}, critical blocks. Coloured and boxed: critical. Numbers: share of the model's own"
                " accuracy lost without the block, in %.",
            )
        )
    matrices = [(task.task, matrix) for task in family.tasks if (matrix := charts.correlations(of, task)) is not None]
    if matrices:
        blocks.append(
            Figure(
                "",
                tuple(Panel((matrix,), task) for task, matrix in matrices),
                f"{family.family}, ranks. Spearman's ρ of the measured drops over blocks. p: one-sided, from all or"
                " 10,000 orders of the blocks, Holm-corrected over the pairs of the task (in the verdict, over those"
                " with the base). Boxed: p ≤ .05, where noise and ties leave ranks to compare. Ranks among blocks with"
                f" small drops are noise, which lowers ρ: pointing shows the {percent} interval without it.",
                small=True,
            )
        )
    if family.base is not None and family.controls:
        blocks.append(tables.with_base(family, percent, name("controls", family.family)))
    if len(family.seeds) > 1:
        blocks.append(tables.seeds(family, percent, name("seeds", family.family)))
    if any(each.kind == "variant" for task in family.tasks for each in task.overlaps):
        joint = tuple(sentence for task in family.tasks if (sentence := _joint(task, family.labels)))
        overlap = Folded("Overlap of the critical sets, against chance", (Prose(items=joint), tables.overlaps(family)))
        blocks.append(overlap)
    for task in family.tasks:
        for source, training in charts.trainings(of, task).items():
            panel = Panel((charts.over_time(of, task, training),), f"{task.task} over the training of {source}")
            blocks.append(
                Figure(
                    name("invariance-time", family.family, task.task),
                    (panel,),
                    "Drop in points without each block, one row per checkpoint. First: accuracy of the unedited model"
                    " in %; last: rank correlation with the end. Nothing can be critical before the model can do the"
                    f" task. {charts.ONSET}: the block became critical between the checkpoint above and this.",
                    (Series("lost", colour=theme.LOSS, area=True), Series("gained", colour=theme.GAIN, area=True)),
                )
            )
    if family.between_tasks:
        blocks += [Prose(title=f"{family.family}: one task against another in the same model")]
        blocks += [tables.between(family, percent)]
    return blocks


def _curves(of: OfFamily, level: float, name: str) -> Figure:
    """Accuracy of all variants; models of different depth over their relative depth."""
    family, percent = of.family, f"{100 * level:g}{wording.SPACE}%"
    tasks = [task for task in family.tasks if of.finished.panels.get(task.task)]
    if family.depths_differ:
        panels = [charts.by_depth(of, task.task) for task in tasks]
        series = tuple(Series(label, index) for index, label in enumerate(of.finished.labels))
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


def _joint(task: FamilyTask, names: Mapping[str, str]) -> str:
    """The base's critical layers against those of all children together, as a sentence; empty without children."""
    together = task.joint
    if together is None or not together.children:
        return ""
    children = wording.listed([names[model] for model in together.children])
    kept = f"critical in all of them: {blocks_of(together.kept_by_all)}" if together.kept_by_all else ""
    return (
        f"{task.task}: the critical blocks of {names[together.base]} are among those of {children}"
        f" {wording.counted(together.shared, 'time')} in all, by chance {together.expected:.1f}"
        f" (p{wording.SPACE}{p_text(together.p, together.p_least)}); {kept or 'none is critical in all of them'}."
    )
