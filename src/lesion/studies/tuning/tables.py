"""The tables of a tuning study: one row per arm, task and seed for files, one per arm for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.wording import signed
from lesion.studies.tuning import findings as tuning_prose

COLUMNS = (
    *("arm", "blocks", "rank", "parameters", "rate", "seed", "task", "items"),
    *("baseline_accuracy", "accuracy", "low", "high", "change", "truncated", "looped", "unparsed"),
)


def csv(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per arm, seed and task: what `tuning.csv` holds. Accuracies and changes in 0…1."""
    rows = []
    for arm in summary["arms"]:
        for number, seed in enumerate(summary["study"]["seeds"]):
            for task, before in zip(arm["tasks"], summary["baseline"], strict=True):
                rows.append(
                    {
                        **{key: arm[key] for key in ("arm", "rank", "parameters", "rate")},
                        "blocks": " ".join(map(str, arm["blocks"][number])),
                        "seed": seed,
                        "task": task["task"],
                        "items": task["items"],
                        "baseline_accuracy": before["accuracy"],
                        "change": task["change"]["seeds"][number],
                        **task["seeds"][number],
                    }
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def cost(summary: Mapping[str, Any]) -> str:
    """Seconds that a training of each arm took, mean over seeds; empty where the cost is not told."""
    training = (summary.get("cost") or {}).get("training") or {}
    known = [(arm["label"], training[arm["arm"]]) for arm in summary["arms"] if arm["arm"] in training]
    return ", ".join(f"{name} {seconds:,.1f}" for name, seconds in known)


def text_tables(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account: the findings, and a row per arm with the change of every task."""
    study = summary["study"]
    before = summary["baseline"]
    table = Table(title=visible(f"{summary['model']['name']}, tuned on {summary['task']}"), box=box.SIMPLE_HEAD)
    table.add_column("tuned")
    table.add_column("numbers", justify="right")
    table.add_column("rate", justify="right")
    for one in before:
        table.add_column(visible(wording.short(one["task"], 20)), justify="right")
    table.add_row("nothing", "", "", *(wording.percent(one["accuracy"]) for one in before), end_section=True)
    for arm in summary["arms"]:
        told = [f"{signed(task['change']['mean'])}\n{_interval(task['change'])}" for task in arm["tasks"]]
        table.add_row(visible(arm["label"]), f"{arm['parameters']:,}", f"{arm['rate']:g}", *told)
    for one in summary["differences"]:
        names = f"{one['first']} − {one['second']}"
        table.add_row(names, "", "", f"{signed(one['mean'])}\n{_interval(one)}", *[""] * (len(before) - 1))
    caption = (
        f"Accuracy in %, then changes in points with their {100 * study['level']:g} % intervals over"
        f" {wording.counted(len(study['seeds']), 'seed')} and {wording.counted(before[0]['items'], 'test item')}"
        f" ({wording.counted(study['steps'], 'step')} of {study['rows']} rows)."
    )
    if trained := cost(summary):
        caption += f" Seconds of training, mean over seeds: {trained}."
    if label := wording.approximate(study):
        caption += f" Approximate: {label}"
    lines = [
        Text(visible(one.headline.replace(wording.SPACE, " ")))
        for one in tuning_prose.findings(summary)
        if one.badge or len(before) > 1
    ]
    return Group(table, Text(caption, style="dim"), *lines)


def _interval(one: Mapping[str, Any]) -> str:
    return wording.interval(one["low"], one["high"]).replace(wording.SPACE, " ")
