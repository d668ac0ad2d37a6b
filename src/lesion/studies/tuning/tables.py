"""The tables of a tuning study: arms, every seed, learning rates; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.forms import plain, unknown
from lesion.report.table import Column, Table, plain_columns, terminal_table
from lesion.report.wording import signed
from lesion.studies.tuning import findings as prose
from lesion.studies.tuning.result import Accuracy, Change, TuningSummary

ENDINGS = ("truncated", "looped", "unclosed", "unparsed")
COLUMNS = (
    *("arm", "blocks", "rank", "parameters", "rate", "seed", "task", "items"),
    *("baseline_accuracy", "accuracy", "low", "high", "change", *ENDINGS),
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
                    | own.model_dump(include=set(ENDINGS))
                )
    return Table(
        "tuning",
        pd.DataFrame(rows, columns=list(COLUMNS)),
        (
            *plain_columns(number=False, arm="Arm", blocks="Blocks"),
            Column("seed", "Seed"),
            Column("task", "Task", number=False),
            Column("items", "Items"),
            Column("accuracy", "Accuracy, %", row=_with_interval("accuracy", "low", "high")),
            Column("change", "Change, points", signed),
            *_endings(summary),
        ),
        title="Every seed",
        caption=EVERY_CAPTION,
    )


def arms(summary: TuningSummary) -> Table:
    """A row for the untuned model and for each arm, its numbers means over seeds."""
    rows: list[dict[str, object]] = [{"arm": "untuned"} | summary.baseline[0].accuracy.model_dump(include=set(ENDINGS))]
    for number, before in enumerate(summary.baseline):
        rows[0] |= _columns(f"accuracy {number}", before.accuracy)
    for arm in summary.arms:
        blocks = prose.blocks(arm) + ("" if arm.rank is None else f", rank {arm.rank}")
        row: dict[str, object] = {"arm": arm.label, "blocks": blocks, "parameters": arm.parameters, "rate": arm.rate}
        row |= {name: arm.tasks[0].rate(name) for name in ENDINGS}
        for number, task in enumerate(arm.tasks):
            accuracy = f"accuracy {number}"
            row |= {accuracy: task.accuracy} if summary.several else _columns(accuracy, task.seeds[0])
            row |= _columns(f"change {number}", task.change)
        rows.append(row)
    columns = []
    for number, before in enumerate(summary.baseline):
        accuracy, change = f"accuracy {number}", f"change {number}"
        columns.append(Column(accuracy, f"{before.task}, %", row=_with_interval(accuracy)))
        columns.append(Column(change, "Change, points", row=_with_interval(change, form=signed)))
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("arm", "Tuned", number=False),
            Column("blocks", "Blocks", lambda blocks: "" if unknown(blocks) else str(blocks), number=False),
            Column("parameters", "Parameters", lambda count: "" if unknown(count) else plain(int(count))),
            Column("rate", "Rate", lambda rate: "" if unknown(rate) else f"{rate:g}"),
            *columns,
            *_endings(summary),
        ),
        title="Arms",
        caption=ARMS_CAPTION,
    )


def _columns(name: str, value: Accuracy | Change) -> dict[str, float]:
    """The columns of a number with its interval."""
    return {name: value.value, f"{name} low": value.low, f"{name} high": value.high}


def _with_interval(
    name: str, low: str = "", high: str = "", form: Callable[[float], str] = wording.points
) -> Callable[[Mapping[str, float | None]], str]:
    """What writes a number of a row with its interval where it has one; empty where it is not known."""

    def write(row: Mapping[str, float | None]) -> str:
        value = row.get(name)
        interval = wording.interval(row.get(low or f"{name} low"), row.get(high or f"{name} high"))
        return "" if value is None else f"{form(value)} {interval}".strip()

    return write


def _endings(summary: TuningSummary) -> list[Column]:
    """How answers ended; looped ones where loops were stopped, unclosed ones where there are any."""
    unclosed = any(task.rate("unclosed") for arm in summary.arms for task in arm.tasks)
    unclosed |= any(task.accuracy.unclosed > 0 for task in summary.baseline)
    shown = {"truncated": True, "looped": bool(summary.approximate), "unclosed": unclosed, "unparsed": True}
    names = [name for name in ENDINGS if shown[name]]
    return [Column(name, f"{name.capitalize()}, %", wording.points) for name in names]


def rates(summary: TuningSummary) -> Table:
    """A row per arm, with the accuracy on held-out items under each learning rate."""
    rows = []
    for arm in summary.arms:
        validation = {f"{rate.rate:g}": rate.validation for rate in arm.rates}
        rows.append({"arm": arm.label, "chosen": f"{arm.rate:g}"} | validation)

    def column(rate: float) -> Column:
        name = f"{rate:g}"
        return Column(name, name, row=lambda row: wording.points(row[name]) + (" ●" if row["chosen"] == name else ""))

    return Table(
        "",
        pd.DataFrame(rows),
        (Column("arm", "Tuned", number=False), *map(column, summary.study.learning_rates)),
        title="Learning rates",
        caption=RATES_CAPTION.format(f"{summary.held_out:,}"),
    )


def seconds(summary: TuningSummary, training: Mapping[str, float]) -> str:
    """Seconds that a training of each arm took, mean over seeds; empty where none are known."""
    return ", ".join(f"{arm.label} {training[arm.name]:,.1f}" for arm in summary.arms if arm.name in training)


def text_tables(summary: TuningSummary, training: Mapping[str, float] | None = None) -> RenderableType:
    """The terminal's account: a row per arm with the change on every task, and the findings.

    `training`: seconds that a training of each arm took.
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
        f" (trained by {prose.training(study)})."
    )
    if took := seconds(summary, training or {}):
        caption += f" Seconds of training, mean over seeds: {took}."
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    return Group(table, Text(visible(caption), style="dim"))


def _lines(change: Change) -> Text:
    interval = wording.interval(change.low, change.high).replace(wording.SPACE, " ")
    return Text(f"{signed(change.value)}\n{interval}")
