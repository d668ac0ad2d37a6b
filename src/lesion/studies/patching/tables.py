"""The tables of a patching study: every cell as CSV, the strongest for a terminal, and the pairs of every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.report import wording
from lesion.report.table import Column, Table, decimals, plain_columns
from lesion.report.values import Estimate
from lesion.studies.patching.findings import number, strongest
from lesion.studies.patching.result import PatchedCell, PatchedTask, PatchingSummary

COLUMNS = [
    *("model", "task", "direction", "place", "layer", "head", "position", "items"),
    *("effect", "effect_low", "effect_high", "p", "p_corrected"),
    *("log_probability", "log_probability_low", "log_probability_high"),
]
SHOWN = ("place", "layer", "head", "position", "effect", "p_corrected")
"""Its columns there."""
MOST = 12
"""So many of the strongest cells of a model and task are shown in a terminal, and of its heads on a page."""
ENDS = {"": "value", "_low": "low", "_high": "high"}


def patches(summary: PatchingSummary) -> Table:
    """A row per model, task, direction, place and class of positions: `patching.csv`; effects as fractions."""
    rows = [_row(task, cell) for task in summary.tasks for cell in task.cells]
    return _table("patching", rows, "All patches", several=len(summary.tasks) > 1)


def _table(name: str, rows: list[dict[str, Any]], title: str, *, several: bool) -> Table:
    named = plain_columns(number=False, model="Model", task="Task") if several else ()
    return Table(
        name,
        pd.DataFrame(rows, columns=COLUMNS),
        (
            *named,
            *plain_columns(number=False, direction="Direction", place="Place"),
            *plain_columns(layer="Block"),
            *(plain_columns(head="Head") if any(row["head"] is not None for row in rows) else ()),
            *plain_columns(number=False, position="Position"),
            *plain_columns(items="Pairs"),
            Column("effect", "Effect, %", row=_effect),
            Column("p_corrected", "Corrected p", wording.p_value),
            Column("log_probability", "Log-probability, nats", decimals(2, signed=True)),
        ),
        title=title,
        caption="Effect: share of the mean logit difference that the patch restores (denoise) or breaks (noise). p:"
        " Student's test over pairs, corrected by Holm's method over all cells of a model and task.",
    )


def heads(task: PatchedTask, name: str) -> Table:
    """The strongest heads of a model and task at single classes of positions: what each restores and breaks."""
    cells = task.of("denoise", "head")
    rows = []
    for cell in strongest(cells, MOST):
        other = task.at("noise", "head", cell.layer, cell.position, cell.head)
        broken = Estimate(value=None) if other is None else other.effect
        rows.append(
            {"layer": cell.layer, "head": cell.head, "position": cell.position, "p_corrected": cell.effect.p_corrected}
            | {f"restored{end}": getattr(cell.effect, key) for end, key in ENDS.items()}
            | {f"broken{end}": getattr(broken, key) for end, key in ENDS.items()}
        )
    return Table(
        name,
        pd.DataFrame(rows),
        (
            Column("layer", "Head", row=lambda row: f"{row['layer']}.{row['head']}", number=False),
            *plain_columns(number=False, position="Position"),
            Column("restored", "Restores, %", row=_effect_of("restored")),
            Column("broken", "Breaks, %", row=_effect_of("broken")),
            Column("p_corrected", "Corrected p", wording.p_value),
        ),
        title=f"{task.model}, {task.task}: the strongest heads",
        caption=f"The {len(rows)} largest effects of {len(cells)} heads and classes of positions. Restores: the clean"
        " head put into the corrupted run; breaks: the corrupted one put into the clean run. p: of the first.",
    )


def _effect_of(name: str) -> Callable[[Any], str]:
    return lambda row: f"{wording.points(row[name], 1)} {wording.interval(row[f'{name}_low'], row[f'{name}_high'])}"


def _row(task: PatchedTask, cell: PatchedCell) -> dict[str, Any]:
    effect, nats = cell.effect, cell.log_probability
    return {
        **{"model": task.model, "task": task.task},
        **cell.model_dump(include={"direction", "place", "layer", "head", "position", "items"}),
        **{"effect": effect.value, "effect_low": effect.low, "effect_high": effect.high},
        **{"p": effect.p, "p_corrected": effect.p_corrected, "log_probability": nats.value},
        **{"log_probability_low": nats.low, "log_probability_high": nats.high},
    }


def _effect(row: dict[str, Any]) -> str:
    return f"{wording.points(row['effect'], 1)} {wording.interval(row['effect_low'], row['effect_high'])}".rstrip()


def runs(summary: PatchingSummary) -> Table:
    """A row per model and task: pairs, and the logit differences of both runs: `pairs.csv`."""
    rows = [
        {
            **task.model_dump(include={"model", "task", "pairs", "clean_right", "corrupted_right"}),
            **{"left_out": len(task.left_out), "clean": task.clean.value, "corrupted": task.corrupted.value},
            **{"clean_text": number(task.clean), "corrupted_text": number(task.corrupted)},
        }
        for task in summary.tasks
    ]
    return Table(
        "pairs",
        pd.DataFrame(rows),
        (
            *plain_columns(number=False, model="Model", task="Task"),
            *plain_columns(pairs="Pairs", left_out="Left out"),
            Column("clean", "Clean", row=lambda row: str(row["clean_text"])),
            Column("corrupted", "Corrupted", row=lambda row: str(row["corrupted_text"])),
            Column("clean_right", "Clean run right, %", wording.points),
            Column("corrupted_right", "Corrupted run right, %", wording.points),
        ),
        title="Pairs",
        caption="Clean, corrupted: mean logit difference, the clean prompt's answer minus the corrupted prompt's."
        " Right: the run prefers the answer to its own prompt. Left out: no corrupted prompt of as many tokens.",
    )


def text_tables(summary: PatchingSummary) -> RenderableType:
    """The pairs, and the strongest cells of attention and MLP of each model and task, for a terminal."""
    parts: list[RenderableType] = [runs(summary).terminal(), Text()]
    for task in summary.tasks:
        cells = [c for c in (*task.of("denoise", "attention"), *task.of("denoise", "mlp")) if c.position != "all"]
        if rows := [_row(task, cell) for cell in strongest(cells, MOST)]:
            title = f"{task.model}, {task.task}: what single branches restore"
            parts.append(_table("", rows, title, several=False).terminal(SHOWN))
        if task.of("denoise", "head"):
            parts.append(heads(task, "").terminal())
    return Group(*parts)
