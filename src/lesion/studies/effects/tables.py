"""The tables of a study of effects: places, layers of the lens, screens; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.forms import decimals, unknown
from lesion.report.table import Column, Table, Wide, plain_columns
from lesion.report.values import Estimate
from lesion.studies.effects.result import ClassEffect, ClassTable, EffectsSummary, PlaceClasses, TaskEffects

EFFECT = ("direct", "total", "repaired", "by_blocks", "by_norm", "loss", "influence")
TESTED = ("repaired", "by_blocks", "by_norm")
P = ("p", "p_corrected")
MOST, HEADS = 200, 15
"""Of more than so many places, the terminal shows so many."""
SCREENS = {"influence": "block influence", "direct": "|direct effect|", "loss": "loss of log-probability"}
"""Screens by their names in sentences and tables."""


def effects(summary: EffectsSummary) -> Table:
    """A row per model, task and place: `effects.csv`; logits, and nats per token."""
    rows = [
        {"model": task.model, "task": task.task, "unit": effect.unit, "layer": effect.layer, "head": effect.head}
        | _columns({name: getattr(effect, name) for name in EFFECT})
        | {f"{name}_{p}": getattr(getattr(effect, name), p) for name in TESTED for p in P}
        | {"is_repaired": effect.is_repaired, "is_repaired_by_blocks": effect.is_repaired_by_blocks}
        for task in summary.tasks
        for effect in task.effects
    ]
    columns = (
        *plain_columns(number=False, model="Model", task="Task"),
        Column("layer", "Place", row=lambda row: _place(row), number=False),
        Column("direct", "Direct", row=_written("direct")),
        Column("total", "Total", row=_written("total")),
        Column("by_blocks", "Repaired by blocks", row=_written("by_blocks")),
        Column("by_blocks_p_corrected", "Corrected p", wording.p_value),
        Column("by_norm", "By the norm", row=_written("by_norm")),
        Column("loss", "Loss, nats", row=_written("loss")),
        Column("influence", "Influence", decimals(3)),
    )
    return Table(
        "effects",
        pd.DataFrame(rows),
        columns,
        title="Effects",
        caption="Direct effect, total effect and what is repaired of their difference, in logits of the gold tokens;"
        " loss of their log-probability. Boxed: repaired by later blocks beyond chance.",
        mark=lambda row: bool(row["is_repaired_by_blocks"]),
        marked="only what later blocks repair",
    )


def lens(summary: EffectsSummary) -> Table:
    """A row per model, task and layer: `lens.csv`."""
    rows = [
        {"model": task.model, "task": task.task, "layer": layer.layer}
        | _columns({"log_probability": layer.log_probability, "rank": layer.rank, "top": layer.top})
        for task in summary.tasks
        for layer in task.lens
    ]
    columns = (
        *plain_columns(number=False, model="Model", task="Task"),
        Column("layer", "Layer"),
        Column("log_probability", "Log-probability, nats", row=_written("log_probability")),
        Column("rank", "Rank (geometric mean)", row=_written("rank", 1)),
        Column("top", "Most probable, %", row=lambda row: _share(row["top"], row["top_low"], row["top_high"])),
    )
    return Table("lens", pd.DataFrame(rows), columns, title="Logit lens")


def screens(summary: EffectsSummary) -> Table:
    """A row per model, task, unit and screen: `screens.csv`."""
    keys = ("model", "task", "unit", "screen", "places", "items", "tied", "rho", "rho_low", "rho_high", "p")
    rows = [
        {"model": task.model, "task": task.task}
        | each.model_dump(include={"screen", "unit", "places", "items", "tied"})
        | _columns({"rho": each.rho})
        | {"p": each.rho.p}
        for task in summary.tasks
        for each in task.agreements
    ]
    columns = (
        *plain_columns(number=False, model="Model", task="Task", unit="Unit"),
        Column("screen", "Screen", row=lambda row: SCREENS[row["screen"]], number=False),
        *plain_columns(places="Places", items="Items", tied="Tied drops"),
        Column("rho", "ρ with the drops", row=_rho),
        Column("p", "p", wording.p_value),
    )
    return Table(
        "screens",
        pd.DataFrame(rows, columns=list(keys)),
        columns,
        title="Screens beside the drops of accuracy",
        caption="Spearman's ρ over places with a bootstrap interval over the items of both studies; p: one-sided, by"
        " permutation of the places.",
    )


def classes(summary: EffectsSummary) -> Table:
    """A row per model, task, group of items, place and class of gold token: `classes.csv`; nats per token.

    A class without tokens has one row, of no place.
    """
    rows = [
        {"model": task.model, "task": task.task, "group": table.group} | row
        for task in summary.tasks
        for table in (task.classes, *task.groups)
        if table is not None
        for row in _class_rows(table)
    ]
    columns = (
        *plain_columns(number=False, model="Model", task="Task", group="Items"),
        Column("layer", "Place", row=_class_place, number=False),
        *plain_columns(number=False, token_class="Class"),
        *plain_columns(items="Items with it", tokens="Tokens"),
        Column("unedited", "Unedited, %", row=_class_share("unedited")),
        Column("accuracy", "Without, %", row=_class_share("accuracy")),
        Column("drop_p_corrected", "Corrected p", wording.p_value),
        Column("loss", "Loss, nats", row=_written("loss")),
    )
    return Table(
        "classes",
        pd.DataFrame(rows, columns=None if rows else ["model", "task", "group"]),
        columns if rows else (),
        title="Classes of gold tokens",
        caption="Share of the gold tokens of a class that are the most probable one, unedited and without a place."
        " Boxed: the class that loses most, where every other class loses less beyond chance.",
        mark=lambda row: bool(row["loses_most"]),
        marked="only classes that lose most",
    )


def _class_rows(table: ClassTable) -> Iterator[dict[str, Any]]:
    baselines = {each.name: each for each in table.classes}

    def row(name: str, place: PlaceClasses | None, effect: ClassEffect | None) -> dict[str, Any]:
        own = baselines[name]
        drop, loss = (None, None) if effect is None else (effect.drop, effect.loss)
        return {
            "unit": place and place.unit,
            "layer": place and place.layer,
            "head": place and place.head,
            "token_class": name,
            "items": own.items,
            "tokens": own.tokens,
            **_columns({"unedited": own.accuracy, "unedited_log_probability": own.log_probability}),
            **_columns({"accuracy": None if effect is None else effect.accuracy, "drop": drop, "loss": loss}),
            **{f"{key}_{p}": each and getattr(each, p) for key, each in (("drop", drop), ("loss", loss)) for p in P},
            "loses_most": place is not None and place.shown is not None and place.shown.name == name,
            "loses_most_p_corrected": place.p_corrected if place is not None and place.most == name else None,
        }

    yield from (row(each.name, None, None) for each in table.classes if not each.tokens)
    yield from (row(effect.name, place, effect) for place in table.places for effect in place.effects)


def _class_place(row: Any) -> str:
    return wording.DASH if row["layer"] is None else _place(row)


def _place(row: Any) -> str:
    head = row["head"]
    return wording.place(row["unit"], int(row["layer"]), None if unknown(head) else int(head))


def _class_share(name: str) -> Callable[[Any], str]:
    def write(row: Any) -> str:
        value = row[name]
        return wording.DASH if value is None else _share(value, row[f"{name}_low"], row[f"{name}_high"])

    return write


def _class_terminal(task: TaskEffects, table: ClassTable) -> RenderableType:
    """The places of the first unit, a column per class."""
    present = table.present
    rows = [{"place": "unedited"} | {each.name: _percentages(each.accuracy) for each in present}]
    for place in table.of(task.units[0].unit)[:MOST]:
        accuracies = {effect.name: _percentages(effect.accuracy) for effect in place.effects}
        rows.append({"place": wording.place(place.unit, place.layer, place.head)} | accuracies)
    columns = (Column("place", "Place", number=False), *(Column(each.name, f"{each.name}, %") for each in present))
    title = f"{task.model}, {task.task}: gold tokens that are the most probable one, by class"
    return Wide(Table("", pd.DataFrame(rows), columns, title=title).terminal())


def _percentages(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return wording.DASH
    spread = wording.interval(estimate.low, estimate.high, 0)
    return f"{wording.points(estimate.value, 0)} {spread}".rstrip()


def text_tables(summary: EffectsSummary) -> RenderableType:
    """The blocks of every task, and the screens, for a terminal."""
    parts: list[RenderableType] = []
    for task in summary.tasks:
        table = effects(summary.model_copy(update={"tasks": (_shown(task),)})).terminal(
            ["layer", "direct", "total", "loss"]
        )
        table.title = Text(visible(f"{task.model}, {task.task}"), style="bold")
        parts += [table, Text("")]
        if task.classes is not None:
            parts += [_class_terminal(task, task.classes), Text("")]
    if any(task.agreements for task in summary.tasks):
        several = ["model"] if len({task.model for task in summary.tasks}) > 1 else []
        parts += [screens(summary).terminal([*several, "task", "unit", "screen", "rho", "p"]), Text("")]
    return Group(*parts)


def _shown(task: TaskEffects) -> TaskEffects:
    """A task with the places of its first unit alone; of many heads those that write or take most."""
    own = task.of(task.units[0].unit)
    if len(own) > MOST:
        size = {id(each): max(abs(each.direct.value or 0.0), abs(each.total.value or 0.0)) for each in own}
        own = tuple(sorted(own, key=lambda each: -size[id(each)])[:HEADS])
    return task.model_copy(update={"effects": own})


def _columns(estimates: Mapping[str, Estimate | None]) -> dict[str, float | None]:
    """The columns of estimates: value, low and high."""
    columns: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        columns[name] = None if estimate is None else estimate.value
        columns |= {f"{name}_{end}": None if estimate is None else getattr(estimate, end) for end in ("low", "high")}
    return columns


def _written(name: str, digits: int = 2) -> Callable[[Any], str]:
    form = decimals(digits)

    def write(row: Any) -> str:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return form(row[name]) + ("" if low is None else f" [{form(low)},{wording.SPACE}{form(high)}]")

    return write


def _share(value: float, low: float | None, high: float | None) -> str:
    return f"{wording.points(value)} {wording.interval(low, high)}"


def _rho(row: Any) -> str:
    low, high = row["rho_low"], row["rho_high"]
    spread = "" if low is None else f" [{wording.rho(low)},{wording.SPACE}{wording.rho(high)}]"
    return wording.rho(row["rho"]) + spread
