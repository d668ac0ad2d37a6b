"""The invariance of a layer study as a section of its page: verdicts, curves, agreement, and training."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from lesion.report import theme, wording
from lesion.report.blocks import Block, Chapter, Figure, Findings, Folded, Panel, Prose, Section, Series
from lesion.report.finding import Finding
from lesion.report.table import Column, Table, decimals, plain_columns
from lesion.studies.ablation import charts as ablation_charts
from lesion.studies.ablation.invariance import charts
from lesion.studies.ablation.invariance.charts import OfFamily, limits, p_text
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask

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
    if any(each.kind == "variant" for task in family.tasks for each in task.overlaps):
        joint = tuple(sentence for task in family.tasks if (sentence := _joint(task, family.labels)))
        blocks.append(Folded("Overlap of the critical sets, against chance", (Prose(items=joint), _overlaps(family))))
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
        blocks += [_between(family, percent)]
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


def _layers(numbers: Sequence[int]) -> str:
    """`2, 5–7`, or a dash."""
    return wording.layer_runs(numbers) or wording.DASH


def _joint(task: FamilyTask, names: Mapping[str, str]) -> str:
    """The base's critical layers against those of all children together, as a sentence; empty without children."""
    together = task.joint
    if together is None or not together.children:
        return ""
    children = wording.listed([names[model] for model in together.children])
    kept = f"critical in all of them: {_layers(together.kept_by_all)}" if together.kept_by_all else ""
    return (
        f"{task.task}: the critical blocks of {names[together.base]} are among those of {children}"
        f" {wording.counted(together.shared, 'time')} in all, by chance {together.expected:.1f}"
        f" (p{wording.SPACE}{p_text(together.p, together.p_least)}); {kept or 'none is critical in all of them'}."
    )


def _overlaps(family: FamilyResult) -> Table:
    """The critical sets of every two finished models, against chance."""
    names = family.labels
    rows = [
        {"task": task.task, "models": f"{names[each.a]}, {names[each.b]}", "shared": _layers(each.shared)}
        | {"first": f"{_layers(each.first)}; {_layers(each.second)}", "expected": each.expected}
        | {"p": each.p, "p_text": p_text(each.p, each.p_least)}
        | {"lost": _layers(each.lost), "gained": _layers(each.gained)}
        for task in family.tasks
        for each in task.overlaps
        if each.kind == "variant"
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *plain_columns(number=False, task="Task", models="Models", first="Critical in each", shared="Shared"),
            Column("expected", "By chance", decimals(1)),
            Column("p", "p", row=lambda row: str(row["p_text"])),
            *plain_columns(number=False, lost="Surely lost", gained="Surely new"),
        ),
        title=f"Overlap of critical blocks of {family.family}",
        caption="By chance: mean overlap of two random sets of these sizes; p: the chance of as many (hypergeometric)."
        " Surely lost: critical in the first; in the second, the whole interval of its drop is too small. Surely new:"
        " the reverse.",
    )


def _between(family: FamilyResult, level: str) -> Table:
    """Every two tasks of one model."""
    rows = []
    for each in family.between_tasks:
        difference, interval = each.difference, wording.interval(each.difference.low, each.difference.high, 0)
        rows.append(
            {"model": family.labels[each.model], "tasks": f"{each.a} against {each.b}", "word": each.word}
            | {"layers": f"{_layers(each.layers)}; {_layers(each.critical_shared)}"}
            | {"relative_a": each.relative_a, "relative_b": each.relative_b, "difference": difference.value}
            | {"difference_text": f"{wording.points(difference.value, 0)} {interval}".rstrip(), "rho": each.rho.value}
            | {"rho_text": wording.rho(each.rho.value), "true_text": limits(each.true.low, each.true.high)}
        )

    def share(value: float | None) -> str:
        return wording.percent(value, 0)

    return Table(
        "",
        pd.DataFrame(rows),
        (
            *plain_columns(number=False, model="Model", tasks="Task against another", layers="Critical; for both"),
            Column("relative_a", "Lost there", share),
            Column("relative_b", "By the other", share),
            Column("difference", "Difference", row=lambda row: str(row["difference_text"])),
            Column("rho", "ρ of all blocks", row=lambda row: str(row["rho_text"])),
            Column("true_text", "ρ without noise", number=False),
            Column("word", "Other loses far less", number=False),
        ),
        title=f"Tasks against each other in {family.family}",
        caption="Lost there: share of the model's accuracy on each task that is lost without a block, averaged over the"
        f" blocks critical for the first; difference in points with its {level} interval. ρ without noise: the"
        " interval for the true profiles; noise lowers the ρ that was measured.",
    )
