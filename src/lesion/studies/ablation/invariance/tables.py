"""The tables of the invariance: overlaps of critical sets, and one task against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lesion.report import wording
from lesion.report.table import Column, Table, decimals
from lesion.report.wording import rho
from lesion.studies.ablation.invariance.charts import limits, p_text
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask

Row = Mapping[str, Any]


def layers(numbers: Sequence[int]) -> str:
    """`2, 5–7`, or a dash."""
    return wording.layer_runs(numbers) or wording.DASH


def overlaps(family: FamilyResult) -> Table:
    """The critical sets of every two finished models, against chance."""
    names = family.labels
    rows = [
        {"task": task.task, "a": names[each.a], "b": names[each.b]}
        | {name: layers(getattr(each, name)) for name in ("first", "second", "shared", "lost", "gained")}
        | {"expected": each.expected, "p": each.p, "p_least": each.p_least}
        for task in family.tasks
        for each in task.overlaps
        if each.kind == "variant"
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("task", "Task", number=False),
            Column("a", "Models", row=lambda row: f"{row['a']}, {row['b']}", number=False),
            Column("first", "Critical in each", row=lambda row: f"{row['first']}; {row['second']}", number=False),
            Column("shared", "Shared", number=False),
            Column("expected", "By chance", decimals(1)),
            Column("p", "p", row=lambda row: p_text(row["p"], row["p_least"])),
            Column("lost", "Surely lost", number=False),
            Column("gained", "Surely new", number=False),
        ),
        title=f"Overlap of critical blocks of {family.family}",
        caption="By chance: how many blocks two sets of these sizes share on average; p: the chance of as many"
        " (hypergeometric); the smallest possible: sets of these sizes that are equal have no smaller one. Surely lost:"
        " critical in the first, and in the second the whole interval of its drop is too small. Surely new: the other"
        " way round.",
    )


def joint(task: FamilyTask, names: Mapping[str, str]) -> str:
    """The base's critical layers against those of all children together, as a sentence; empty without children."""
    together = task.joint
    if together is None or not together.children:
        return ""
    children = wording.listed([names[model] for model in together.children])
    text = (
        f"{task.task}: the critical blocks of {names[together.base]} are among those of {children}"
        f" {wording.counted(together.shared, 'time')} in all, by chance {together.expected:.1f}"
        f" (p{wording.SPACE}{p_text(together.p, together.p_least)})"
    )
    kept = together.kept_by_all
    return text + (f"; critical in all of them: {layers(kept)}." if kept else "; none is critical in all of them.")


def between(family: FamilyResult, level: str) -> Table:
    """Every two tasks of one model."""
    names = family.labels
    rows = [
        {"model": names[each.model], "a": each.a, "b": each.b, "word": each.word}
        | {"layers": layers(each.layers), "shared": layers(each.critical_shared)}
        | {"relative_a": each.relative_a, "relative_b": each.relative_b, "difference": each.difference.value}
        | {"difference_low": each.difference.low, "difference_high": each.difference.high}
        | {"rho": each.rho.value, "low": each.true.low, "high": each.true.high}
        for each in family.between_tasks
    ]

    def difference(row: Row) -> str:
        limits = wording.interval(row["difference_low"], row["difference_high"], 0)
        return f"{wording.points(row['difference'], 0)} {limits}".rstrip()

    def share(value: float | None) -> str:
        return wording.percent(value, 0)

    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("model", "Model", number=False),
            Column("a", "Task against another", row=lambda row: f"{row['a']} against {row['b']}", number=False),
            Column("layers", "Critical; for both", row=lambda row: f"{row['layers']}; {row['shared']}", number=False),
            Column("relative_a", "Lost there", share),
            Column("relative_b", "By the other", share),
            Column("difference", "Difference", row=difference),
            Column("rho", "ρ of all blocks", row=lambda row: f"{rho(row['rho'])} {limits(row['low'], row['high'])}"),
            Column("word", "Other loses far less", number=False),
        ),
        title=f"Tasks against each other in {family.family}",
        caption="Lost there: the share of the model's accuracy on each of the two tasks that is lost without a block,"
        " on average over the blocks that are critical for the first; their difference in points with its"
        f" {level} interval. In brackets behind ρ: the interval for the true profiles, without the noise that lowers ρ."
        " A block that is critical for every task is not specific to one skill.",
    )
