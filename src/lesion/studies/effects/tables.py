"""The tables of a study of effects: places, layers of the lens, screens; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.core.values import Estimate
from lesion.plain import visible
from lesion.report import wording
from lesion.report.table import Column, Table, decimals, plain_columns
from lesion.studies.effects.result import EffectsSummary, TaskEffects

EFFECT = ("direct", "total", "repaired", "by_blocks", "by_norm", "loss", "influence")
TESTED = ("repaired", "by_blocks")
SCREENS = {"influence": "block influence", "direct": "|direct effect|", "loss": "loss of log-probability"}
"""Screens by their names in sentences and tables."""


def effects(summary: EffectsSummary) -> Table:
    """A row per model, task and place: `effects.csv`; logits, and nats per token."""
    rows = [
        {"model": task.model, "task": task.task, "unit": effect.unit, "layer": effect.layer}
        | _columns({name: getattr(effect, name) for name in EFFECT})
        | {f"{name}_{p}": getattr(getattr(effect, name), p) for name in TESTED for p in ("p", "p_corrected")}
        | {"is_repaired": effect.is_repaired, "is_repaired_by_blocks": effect.is_repaired_by_blocks}
        for task in summary.tasks
        for effect in task.effects
    ]
    columns = (
        *plain_columns(number=False, model="Model", task="Task"),
        Column("layer", "Place", row=lambda row: wording.place(row["unit"], row["layer"]), number=False),
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


def text_tables(summary: EffectsSummary) -> RenderableType:
    """The blocks of every task, and the screens, for a terminal."""
    parts: list[RenderableType] = []
    for task in summary.tasks:
        table = effects(summary.model_copy(update={"tasks": (_shown(task),)})).terminal(
            ["layer", "direct", "total", "loss"]
        )
        table.title = Text(visible(f"{task.model}, {task.task}"), style="bold")
        parts += [table, Text("")]
    if any(task.agreements for task in summary.tasks):
        several = ["model"] if len({task.model for task in summary.tasks}) > 1 else []
        parts += [screens(summary).terminal([*several, "task", "unit", "screen", "rho", "p"]), Text("")]
    return Group(*parts)


def _shown(task: TaskEffects) -> TaskEffects:
    """A task with the places of its first unit alone."""
    return task.model_copy(update={"effects": task.of(task.units[0].unit)})


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
