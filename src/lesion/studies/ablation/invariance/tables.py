"""Tables of the invariance: models against their base, bases of other seeds, critical sets, and tasks of one model."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lesion.report import wording
from lesion.report.forms import decimals
from lesion.report.table import Column, Table, plain_columns
from lesion.studies.ablation.invariance.charts import limits, p_text
from lesion.studies.ablation.invariance.result import FamilyResult, FamilyTask, Overlap, Pair


def blocks_of(numbers: Sequence[int]) -> str:
    """`2, 5–7`, or a dash."""
    return wording.layer_runs(numbers) or wording.DASH


_RANKS = (
    Column("rho", "ρ", wording.rho),
    Column("true", "ρ without noise", row=lambda row: str(row["true_text"])),
    Column("p", "p", wording.p_value),
)
_RANKS_CAPTION = (
    "ρ: rank correlation of the drops over blocks; without noise: that of the true drops, with the {level} interval of"
    " a bootstrap over items. p: one-sided, over orders of the blocks, not corrected."
)


def with_base(family: FamilyResult, level: str, name: str) -> Table:
    """Every child and control of a family beside its base."""
    rows = []
    for task in family.tasks:
        ordered = [*((child, "child") for child in family.children), *((each, "control") for each in family.controls)]
        for member, role in ordered:
            pair, sets = _of(task, family.base or "", member.model)
            skill = task.skill(member.model)
            rows.append(
                {"task": task.task, "model": family.labels[member.model], "role": role, "distance": member.distance}
                | {"accuracy": skill.accuracy if skill else None, **_ranks(pair)}
                | {"critical": blocks_of(sets.second) if sets else None, **_shared(sets)}
            )
    return Table(
        name,
        pd.DataFrame(rows),
        (
            *([Column("task", "Task", number=False)] if len(family.tasks) > 1 else []),
            *plain_columns(number=False, model="Model", role="Is a"),
            Column("distance", "‖ΔW‖/‖W‖", lambda value: wording.DASH if value is None else wording.figures(value, 2)),
            Column("accuracy", "Accuracy", lambda value: wording.percent(value, 0)),
            *_RANKS,
            Column("critical", "Critical", number=False),
            Column("shared", "Shared with the base", row=lambda row: str(row["shared_text"])),
        ),
        title=f"Children and controls of {family.family} against {family.labels[family.base or '']}",
        caption=f"{_RANKS_CAPTION.format(level=level)} Shared: critical in both, of those of the base. Where a control"
        " agrees with the base as well as a child does, the child's agreement is no evidence of what it inherited.",
    )


def seeds(family: FamilyResult, level: str, name: str) -> Table:
    """The base and bases of other seeds, each against each."""
    names = [member.model for member in family.seeds]
    rows = []
    for task in family.tasks:
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                pair, sets = _of(task, first, second)
                rows.append(
                    {"task": task.task, "models": f"{family.labels[first]}, {family.labels[second]}", **_ranks(pair)}
                    | {"first": blocks_of(sets.first) if sets else None}
                    | {"second": blocks_of(sets.second) if sets else None}
                    | {"expected": sets.expected if sets else None, **_shared(sets)}
                )
    return Table(
        name,
        pd.DataFrame(rows),
        (
            *([Column("task", "Task", number=False)] if len(family.tasks) > 1 else []),
            *plain_columns(number=False, models="Models"),
            *_RANKS,
            *plain_columns(number=False, first="Critical in the first", second="In the second"),
            Column("shared", "Shared", row=lambda row: str(row["shared_text"])),
            Column("expected", "By chance", decimals(1)),
            Column("jaccard", "Jaccard", wording.rho),
        ),
        title=f"Bases of {family.family} from other seeds",
        caption="Trained alike from other random numbers. A block's number says its depth, not what it learned, so that"
        " two seeds agree in what architecture and data dictate: the null for what a child inherits."
        f" {_RANKS_CAPTION.format(level=level)} By chance: mean overlap of two random sets of these sizes. Jaccard:"
        " shared, of all blocks that are critical in either.",
    )


def _of(task: FamilyTask, first: str, second: str) -> tuple[Pair | None, Overlap | None]:
    """How two finished models agree on a task, in either order; a set is that of the model named in this place."""
    ends = {first, second}
    pair = next((each for each in task.pairs if each.kind == "variant" and {each.a, each.b} == ends), None)
    sets = next((each for each in task.overlaps if each.kind == "variant" and {each.a, each.b} == ends), None)
    if sets is not None and sets.a != first:
        sets = sets.model_copy(update={"first": sets.second, "second": sets.first})
    return pair, sets


def _ranks(pair: Pair | None) -> dict[str, object]:
    if pair is None:
        return {"rho": None, "true": None, "low": None, "high": None, "true_text": wording.DASH, "p": None}
    text = limits(pair.true.low, pair.true.high)
    if pair.true.low is not None:
        text = f"{wording.rho(pair.true.value)} {text}"
    return {
        "rho": pair.rho.value,
        "true": pair.true.value,
        "low": pair.true.low,
        "high": pair.true.high,
        "p": pair.rho.p,
    } | {"true_text": text}


def _shared(sets: Overlap | None) -> dict[str, object]:
    if sets is None:
        return {"shared": None, "shared_text": wording.DASH, "jaccard": None}
    either = set(sets.first) | set(sets.second)
    return {
        "shared": len(sets.shared),
        "shared_text": f"{len(sets.shared)} of {len(sets.first)}",
        "jaccard": len(sets.shared) / len(either) if either else None,
    }


def overlaps(family: FamilyResult) -> Table:
    """The critical sets of every two finished models, against chance."""
    names = family.labels
    rows = [
        {"task": task.task, "models": f"{names[each.a]}, {names[each.b]}", "shared": blocks_of(each.shared)}
        | {"first": f"{blocks_of(each.first)}; {blocks_of(each.second)}", "expected": each.expected}
        | {"p": each.p, "p_text": p_text(each.p, each.p_least)}
        | {"lost": blocks_of(each.lost), "gained": blocks_of(each.gained)}
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


def between(family: FamilyResult, level: str) -> Table:
    """Every two tasks of one model."""
    rows = []
    for each in family.between_tasks:
        difference, interval = each.difference, wording.interval(each.difference.low, each.difference.high, 0)
        rows.append(
            {"model": family.labels[each.model], "tasks": f"{each.a} against {each.b}", "word": each.word}
            | {"layers": f"{blocks_of(each.layers)}; {blocks_of(each.critical_shared)}"}
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
