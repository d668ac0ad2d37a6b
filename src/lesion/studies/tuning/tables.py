"""The tables of a tuning study: arms, every seed, learning rates; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.table import Column, Table, plain, terminal_table, unknown
from lesion.report.wording import signed
from lesion.studies.tuning import findings as prose
from lesion.studies.tuning.result import Accuracy, ArmResult, Change, TuningSummary

COLUMNS = (
    *("arm", "blocks", "rank", "parameters", "rate", "seed", "task", "items"),
    *("baseline_accuracy", "accuracy", "low", "high", "change", "truncated", "looped", "unparsed"),
)
ARMS_CAPTION = (
    "Accuracy and how answers ended on test items, mean over seeds; change: over the untuned model on the same items,"
    " with its interval."
)
EVERY_CAPTION = "A row for each arm, seed and task; accuracy with Wilson's interval."
RATES_CAPTION = (
    "Accuracy on {} held-out training items, mean over seeds; ● is the rate that was evaluated on test items."
)


def every(summary: TuningSummary) -> Table:
    """A row per arm, seed and task: `tuning.csv`. Accuracies and changes in 0…1."""
    rows = []
    for arm in summary.arms:
        for place, seed in enumerate(summary.study.seeds):
            for task, before in zip(arm.tasks, summary.baseline, strict=True):
                own = task.seeds[place]
                rows.append(
                    {"arm": arm.name, "blocks": " ".join(map(str, arm.blocks[place])), "rank": arm.rank}
                    | {"parameters": arm.parameters, "rate": arm.rate, "seed": seed}
                    | {"task": task.task, "items": task.items, "baseline_accuracy": before.accuracy.value}
                    | {"accuracy": own.value, "low": own.low, "high": own.high, "change": task.change.seeds[place]}
                    | {"truncated": own.truncated, "looped": own.looped, "unparsed": own.unparsed}
                )
    return Table(
        "tuning",
        pd.DataFrame(rows, columns=list(COLUMNS)),
        (
            Column("arm", "Arm", number=False),
            Column("blocks", "Blocks", number=False),
            Column("seed", "Seed"),
            Column("task", "Task", number=False),
            Column("items", "Items"),
            Column("accuracy", "Accuracy, %", row=_seed_accuracy),
            Column("change", "Change, points", signed),
            *_endings(summary),
        ),
        title="Every seed",
        caption=EVERY_CAPTION,
    )


def arms(summary: TuningSummary) -> Table:
    """A row for the untuned model and for each arm, its numbers means over seeds."""
    untuned: dict[str, Any] = {"arm": "untuned"}
    rows = [untuned | summary.baseline[0].accuracy.model_dump(include={"truncated", "looped", "unparsed"})]
    for number, before in enumerate(summary.baseline):
        rows[0] |= _accuracy(number, before.accuracy)
    for arm in summary.arms:
        first = arm.tasks[0]
        row: dict[str, Any] = {"arm": arm.label, "blocks": _blocks(arm), "parameters": arm.parameters, "rate": arm.rate}
        row |= {name: first.rate(name) for name in ("truncated", "looped", "unparsed")}
        for number, task in enumerate(arm.tasks):
            row |= {f"accuracy {number}": task.accuracy} if summary.several else _accuracy(number, task.seeds[0])
            row |= {f"change {number}": task.change.value}
            row |= {f"change {number} low": task.change.low, f"change {number} high": task.change.high}
        rows.append(row)
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("arm", "Tuned", number=False),
            Column("blocks", "Blocks", lambda blocks: "" if unknown(blocks) else str(blocks), number=False),
            Column("parameters", "Parameters", _whole),
            Column("rate", "Rate", lambda rate: "" if unknown(rate) else f"{rate:g}"),
            *(column for number, before in enumerate(summary.baseline) for column in _of_task(number, before.task)),
            *_endings(summary),
        ),
        title="Arms",
        caption=ARMS_CAPTION,
    )


def _blocks(arm: ArmResult) -> str:
    return prose.blocks(arm) + ("" if arm.rank is None else f", rank {arm.rank}")


def _accuracy(number: int, accuracy: Accuracy) -> dict[str, float]:
    """The columns of an accuracy with its interval, by the place of its task."""
    name = f"accuracy {number}"
    return {name: accuracy.value, f"{name} low": accuracy.low, f"{name} high": accuracy.high}


def _of_task(number: int, task: str) -> tuple[Column, Column]:
    accuracy, change = f"accuracy {number}", f"change {number}"
    return (
        Column(accuracy, f"{task}, %", row=lambda row: _with_interval(row, accuracy, wording.points)),
        Column(change, "Change, points", row=lambda row: _with_interval(row, change, signed)),
    )


def _with_interval(row: Mapping[str, Any], name: str, form: Callable[[float], str]) -> str:
    """A number with its interval where it has one; empty where it is not known."""
    if row.get(name) is None:
        return ""
    return f"{form(row[name])} {wording.interval(row.get(f'{name} low'), row.get(f'{name} high'))}".strip()


def _endings(summary: TuningSummary) -> list[Column]:
    """How answers ended; looped ones where loops were stopped."""
    looped = [Column("looped", "Looped, %", wording.points)] if summary.approximate else []
    truncated = Column("truncated", "Truncated, %", wording.points)
    return [truncated, *looped, Column("unparsed", "Unparsed, %", wording.points)]


def _seed_accuracy(row: Mapping[str, Any]) -> str:
    return f"{wording.points(row['accuracy'])} {wording.interval(row['low'], row['high'])}"


def _whole(value: float | None) -> str:
    return "" if value is None else plain(int(value))


def rates(summary: TuningSummary) -> Table:
    """A row per arm, with the accuracy on held-out items under each learning rate."""
    tried = summary.study.learning_rates
    rows = []
    for arm in summary.arms:
        validation = {rate.rate: rate.validation for rate in arm.rates}
        rows.append({"arm": arm.label, "chosen": arm.rate} | {f"{rate:g}": validation.get(rate) for rate in tried})

    def column(rate: float) -> Column:
        name = f"{rate:g}"
        return Column(name, name, row=lambda row: wording.points(row[name]) + (" ●" if row["chosen"] == rate else ""))

    return Table(
        "",
        pd.DataFrame(rows),
        (Column("arm", "Tuned", number=False), *map(column, tried)),
        title="Learning rates",
        caption=RATES_CAPTION.format(f"{summary.held_out:,}"),
    )


def seconds(summary: TuningSummary, training: Mapping[str, float]) -> str:
    """Seconds that a training of each arm took, mean over seeds; empty where none are known."""
    return ", ".join(f"{arm.label} {training[arm.name]:,.1f}" for arm in summary.arms if arm.name in training)


def text_tables(summary: TuningSummary, training: Mapping[str, float] | None = None) -> RenderableType:
    """The terminal's account: a row per arm with the change on every task, and the findings.

    Args:
        summary: of the study.
        training: seconds that a training of each arm took.
    """
    study, tasks = summary.study, summary.baseline
    headings = [("tuned", False), ("parameters", True), ("rate", True)]
    headings += [(wording.short(before.task, 20), True) for before in tasks]
    table = terminal_table(f"{summary.model.name}, tuned on {study.task}", headings)
    table.add_row("nothing", "", "", *(wording.percent(before.accuracy.value) for before in tasks), end_section=True)
    for arm in summary.arms:
        changes = [_lines(task.change) for task in arm.tasks]
        table.add_row(Text(visible(arm.label)), f"{arm.parameters:,}", f"{arm.rate:g}", *changes)
    for pair in summary.differences:
        name = f"{pair.first} {wording.MINUS} {pair.second}"
        table.add_row(Text(name), "", "", _lines(pair), *[""] * (len(tasks) - 1))
    caption = (
        f"Accuracy in %, then changes in points with their {100 * study.level:g} % intervals over"
        f" {wording.counted(len(study.seeds), 'seed')} and {wording.counted(tasks[0].items, 'test item')}"
        f" ({wording.counted(study.steps, 'step')} of {study.rows} rows)."
    )
    if took := seconds(summary, training or {}):
        caption += f" Seconds of training, mean over seeds: {took}."
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    lines = [
        Text(visible(" ".join(finding.headline).replace(wording.SPACE, " ")))
        for finding in prose.findings(summary)
        if finding.badge or len(tasks) > 1
    ]
    return Group(table, Text(visible(caption), style="dim"), *lines)


def _lines(change: Change) -> Text:
    interval = wording.interval(change.low, change.high).replace(wording.SPACE, " ")
    return Text(f"{signed(change.value)}\n{interval}")
