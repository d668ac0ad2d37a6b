"""The tables of an interaction study: sets, removals, steps and Shapley values; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.forms import unknown
from lesion.report.table import Column, Table, plain_columns
from lesion.report.values import Estimate
from lesion.studies.interaction import findings as prose
from lesion.studies.interaction.result import InteractionSummary

MOST = 20
"""The terminal shows so many sets of a task, the surest first."""


def _flat(name: str, estimate: Estimate | None, *more: str) -> dict[str, float | None]:
    """An estimate as columns: its value, its limits, and what else is named (`p`)."""
    ends = {f"{name}_low": "low", f"{name}_high": "high", **{f"{name}_{each}": each for each in more}}
    numbers = {column: None if estimate is None else getattr(estimate, key) for column, key in ends.items()}
    return {name: None if estimate is None else estimate.value, **numbers}


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=None if rows else columns)


def sets(summary: InteractionSummary) -> Table:
    """A row per task and set of `pairs` and `windows`: `interactions.csv`; drops in 0…1, or nats."""
    rows = [
        {"task": each.task, "design": each.design, "places": ",".join(each.places), "alone": _texts_of(each.alone)}
        | {"sum": each.sum, **_flat("together", each.together), **_flat("beyond", each.beyond, "p", "p_corrected")}
        | {"independent": each.independent, "verdict": each.verdict}
        for each in summary.interactions
    ]
    number = _number(summary)
    return Table(
        "interactions",
        _frame(rows, ["task", "design", "places", "sum", "together", "beyond", "verdict"]),
        (
            *plain_columns(number=False, task="Task", design="Design"),
            Column("places", "Places", _shorter, number=False),
            Column("alone", "Alone", lambda text: " + ".join(number(float(each)) for each in text.split(","))),
            Column("together", "Together", row=_ranged("together", number)),
            Column("beyond", "Beyond the sum", row=_ranged("beyond", number)),
            Column("beyond_p_corrected", "Corrected p", wording.p_value),
            *plain_columns(number=False, verdict="Verdict"),
        ),
        caption=f"In {prose.unit(summary.study)}. p: corrected by Holm's method over the sets of one design and task.",
        mark=lambda row: row["verdict"] in ("redundant", "one path"),
    )


def _shorter(places: str) -> str:
    return ", ".join(map(prose.short, places.split(","))) or "none"


def _texts_of(numbers: Iterable[float]) -> str:
    return ",".join(map(repr, numbers))


def removals(summary: InteractionSummary) -> Table:
    """A row per task and set removed, the unedited model too: `removals.csv`."""
    rows = [
        {"task": each.task, "places": ",".join(each.places), "items": each.items, **_flat("value", each.value)}
        | _flat("drop", each.drop)
        | (each.endings.model_dump() if each.endings else {})
        for each in summary.removals
    ]
    number = _number(summary)
    return Table(
        "removals",
        _frame(rows, ["task", "places", "items", "value", "drop"]),
        (
            *plain_columns(number=False, task="Task"),
            Column("places", f"Places {prose.done(summary.study)}", _shorter, number=False),
            Column("items", "Items"),
            Column("value", _measured(summary), row=_ranged("value", number)),
            Column("drop", "Drop", row=_ranged("drop", number)),
            *((Column("truncated", "Truncated", wording.percent), Column("unparsed", "Unparsed", wording.percent))
              if summary.study.measure == "accuracy" else ()),
        ),
    )  # fmt: skip


def steps(summary: InteractionSummary) -> Table:
    """A row per task, order and removal: `steps.csv`."""
    rows = [
        {"task": step.task, "order": step.order, "removed": len(step.places), "place": step.places[-1]}
        | {**_flat("value", step.value), **_flat("beyond_random", step.beyond_random)}
        for step in summary.steps
    ]
    number = _number(summary)
    return Table(
        "steps",
        _frame(rows, ["task", "order", "removed", "place", "value", "beyond_random"]),
        (
            *plain_columns(number=False, task="Task"),
            Column("order", "Order", lambda order: f"random {order}" if order else "this"),
            Column("removed", wording.capital(prose.done(summary.study))),
            Column("place", "Last place", prose.short, number=False),
            Column(
                "value", "Accuracy" if summary.study.measure == "accuracy" else "Mean", row=_ranged("value", number)
            ),
            Column("beyond_random", "Lower than in random orders", row=_ranged("beyond_random", number)),
        ),
    )


def shares(summary: InteractionSummary) -> Table:
    """A row per task and place: `shapley.csv`."""
    rows = [
        {"task": share.task, "place": share.place, **_flat("value", share.value), **_flat("sampling", share.sampling)}
        | {"alone": share.alone, "last": share.last}
        for share in summary.shares
    ]
    number = _number(summary)
    exact = f"exact, all {summary.orders} orders"
    sampling = (lambda row: exact) if summary.every_order else _ranged("sampling", number)
    return Table(
        "shapley",
        _frame(rows, ["task", "place", "value", "sampling", "alone", "last"]),
        (
            *plain_columns(number=False, task="Task"),
            Column("place", "Place", prose.short, number=False),
            Column("value", "Shapley value", row=_ranged("value", number)),
            Column("sampling", "Other orders, same items", row=sampling),
            Column("alone", "First of all", number),
            Column("last", "Last of all", number),
        ),
        caption=f"In {prose.unit(summary.study)}.",
    )


def _measured(summary: InteractionSummary) -> str:
    return "Accuracy" if summary.study.measure == "accuracy" else "Log-probability"


def _number(summary: InteractionSummary) -> Callable[[Any], str]:
    return lambda value: prose.amount(summary.study, None if unknown(value) else value)


def _ranged(key: str, number: Callable[[Any], str]) -> Callable[[Any], str]:
    """What writes a value with its interval."""

    def written(row: Any) -> str:
        if unknown(row[key]):
            return wording.DASH
        low, high = row[f"{key}_low"], row[f"{key}_high"]
        return number(row[key]) + ("" if unknown(low) else f" [{number(low)},{wording.SPACE}{number(high)}]")

    return written


def main(summary: InteractionSummary) -> Table:
    """The table of the first design that there is: sets, steps, Shapley values."""
    return next(table for table in (sets(summary), steps(summary), shares(summary)) if len(table.frame))


def text_tables(summary: InteractionSummary) -> RenderableType:
    """The findings and the table of each design, for a terminal."""
    parts: list[RenderableType] = []
    for table in (sets(summary), steps(summary), shares(summary)):
        if len(table.frame):
            frame = table.frame
            if table.name == "interactions":
                table = Table("", frame.sort_values("beyond_p", kind="stable"), table.columns, mark=table.mark)
            elif table.name == "steps":
                table = Table("", frame[frame["order"] == 0], table.columns)
            parts += [table.terminal(most=MOST * len(summary.tasks)), Text()]
    for finding in prose.findings(summary):
        parts += [Text(visible(sentence.replace(wording.SPACE, " "))) for sentence in finding.sentences]
    return Group(*parts)
