"""The tables of an isolation and its evaluation: rows for CSV files, and a short one for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from lesion.report import wording
from lesion.report.trials import Asked, Edited, Evaluation, evaluation
from lesion.report.wording import WORTH_SAYING
from lesion.studies.isolation import curves, distribution
from lesion.studies.isolation import findings as isolation_prose

SELECTION = ("method", "keep", "samples", "repeat", "label", "edit", "digest")
MATRIX = ("block", "matrix", "selected", "total")
OVERLAP = ("method", "keep", "samples", "repeats", "mean", "low", "high", "chance")
EDIT = (
    *("edit", "label", "method", "keep", "samples", "repeat", "factor", "random_of", "seed"),
    *("selected", "total", "share", "achieved"),
)
TASK = ("task", "role", "kind", "items", "chance")
CELL = (
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *("truncated", "looped", "unparsed", "nonfinite", "perplexity", "ratio", "ratio_low", "ratio_high"),
)
RANDOM = ("draws", "accuracy", "perplexity", "lowest", "highest", "drop", "beyond", "beyond_low", "beyond_high")
BASELINE = ("accuracy", "perplexity", "low", "high", "truncated", "looped", "unparsed", "nonfinite")


def selections(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per selection and matrix, with the share selected in 0…1: what `selections.csv` holds."""
    rows = [
        {name: entry.get(name) for name in SELECTION}
        | {name: matrix.get(name) for name in MATRIX}
        | {"share": matrix["selected"] / matrix["total"] if matrix.get("total") else None}
        for entry in (summary.get("isolation") or {}).get("selections") or ()
        for matrix in entry.get("matrices") or ()
    ]
    table = pd.DataFrame(rows, columns=[*SELECTION, *MATRIX, "share"])
    return table.astype({"block": "Int64", "samples": "Int64", "repeat": "Int64"})  # the head has no block


def overlap(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per method, keep and number of samples; `iou` lists the pairs with spaces between."""
    rows = [
        {name: entry.get(name) for name in OVERLAP}
        | {"iou": " ".join(f"{pair:.6g}" for pair in entry.get("iou") or ())}
        for entry in (summary.get("isolation") or {}).get("overlap") or ()
    ]
    return pd.DataFrame(rows, columns=[*OVERLAP, "iou"])


def cells(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per task and edit, with the baseline (`baseline_…`) and the random controls (`random_…`) beside it.

    Accuracies, drops and rates in 0…1; NaN where not known or not of that kind of task.
    """
    entry = summary.get("evaluation") or {}
    edits = {edit["edit"]: edit for edit in entry.get("edits") or ()}
    rows = [
        {name: task.get(name) for name in TASK}
        | {name: edits.get(cell["edit"], cell).get(name) for name in EDIT}
        | {name: cell.get(name) for name in CELL}
        | {f"random_{name}": (cell.get("random") or {}).get(name) for name in RANDOM}
        | {f"baseline_{name}": (task.get("baseline") or {}).get(name) for name in BASELINE}
        for task in entry.get("tasks") or ()
        for cell in task.get("cells") or ()
    ]
    added = [*(f"random_{name}" for name in RANDOM), *(f"baseline_{name}" for name in BASELINE)]
    return pd.DataFrame(rows, columns=[*TASK, *EDIT, *CELL, *added])


def text_tables(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's tables: how much was selected, and what each edit did to each task beside its random controls.

    Raises:
        LesionError: the summary does not have the form that an isolation or an evaluation writes.
    """
    parts: list[RenderableType] = []
    found = distribution.distributions(summary.get("isolation") or {})
    if found:
        parts.append(_selected(found, summary["isolation"]))
    tried = evaluation(summary)
    if tried is not None:
        level = float((summary.get("study") or {}).get("level") or 0.95)
        perplexity = any(task.scored for task in tried.tasks)
        label = wording.approximate(summary.get("study") or {})
        caption = _caption(level, perplexity=perplexity) + (f" Approximate: {label}" if label else "")
        parts += [_effects(tried), Text(caption, style="dim")]
        if tried.choice:
            told = isolation_prose.chosen(tried.choice, tried)
            parts += [Text("\nThe choice, tested", style="bold"), Text(told)]
    return Group(*parts) if parts else Text("Nothing has been selected or evaluated yet.")


class _Heading:
    """A task's name over its column, shortened in its middle to the column's width, and what is known of the task."""

    def __init__(self, name: str, told: str) -> None:
        self.name, self.told = name, told

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(wording.short(self.name, options.max_width), no_wrap=True)
        yield Text(self.told)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        least = max(map(len, self.told.split()))
        return Measurement(least, max(least, len(self.name), len(self.told))).with_maximum(options.max_width)


def _caption(level: float, *, perplexity: bool) -> str:
    of_text = (
        " Of running text: its perplexity (less is better) with its interval, then × the unedited model's, then the "
        "random controls' perplexities."
        if perplexity
        else ""
    )
    return (
        f"Accuracy in % with its {100 * level:g} % interval, then the drop from the unedited model, then the matched "
        f"random controls' accuracies from lowest to highest.{of_text} From {100 * WORTH_SAYING:g} % on: answers cut "
        "off at the token limit, and answers in which none could be read."
    )


def _selected(found: list[distribution.Distribution], isolation: Mapping[str, Any]) -> Table:
    table = Table(
        title=Text(f"{isolation.get('model') or 'model'} · selected for {isolation.get('skill') or 'the skill'}"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("selection", overflow="fold")
    for name in ("weights", "of", "share", "overlap of repeats"):
        table.add_column(name, justify="right")
    agreed = {(one.method, one.keep, one.samples): one for one in curves.overlaps(isolation)}
    for one in found:
        same = agreed.get((one.method, one.keep, one.samples or 0))
        table.add_row(
            Text(one.label),
            f"{one.whole.selected:,}",
            f"{one.whole.total:,}",
            wording.percent(one.whole.share, 2),
            "" if same is None else f"{same.mean:.2f}",
        )
    return table


def _effects(found: Evaluation) -> Table:
    table = Table(
        title=Text(f"{found.model or 'model'} · edited"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("edit", overflow="fold")
    for task in found.tasks:
        role = f", {task.role}" if task.role else ""
        table.add_column(
            _Heading(task.name, f"{wording.counted(task.items, 'item')}{role}"),
            justify="right",
            overflow="fold",
        )
    table.add_row("unedited", *(_baseline(task) for task in found.tasks), end_section=True)
    for edit in found.tried:
        table.add_row(Text(_written(edit)), *(_cell(task, edit) for task in found.tasks))
    return table


def _written(edit: Edited) -> str:
    """The edit in short lines, so that the columns of tasks have room."""
    told = edit.name.replace(", ", "\n", 1)
    return told if edit.selected is None else f"{told}\n{wording.counted(edit.selected, 'weight')}"


def _baseline(task: Asked) -> Text:
    if task.value is None:
        return Text("not yet", style="dim")
    return _value(task, task.value, task.low, task.high)


def _value(task: Asked, value: float, low: float | None, high: float | None) -> Text:
    if task.scored:
        cell = Text(f"{wording.perplexity(value)} ")
        return cell.append(wording.plain_interval(low, high, 3), style="dim")
    return Text(f"{wording.points(value)} ").append(wording.interval(low, high, 0), style="dim")


def _cell(task: Asked, edit: Edited) -> Text:
    effect = task.effects.get(edit.key)
    if effect is None:
        return Text("not finite" if edit.key in task.broken else "not yet", style="dim")
    cell = _value(task, effect.value, effect.low, effect.high)
    if effect.change is not None and task.scored:
        cell.append(
            f"\n×{wording.figures(effect.change, 3)} {wording.plain_interval(effect.change_low, effect.change_high, 3)}"
        )
    elif effect.change is not None:
        interval = wording.interval(effect.change_low, effect.change_high, 0)
        cell.append(f"\ndrop {wording.points(effect.change)} {interval}")
    spread = effect.random
    if spread is not None and spread.lowest is not None and spread.highest is not None:
        ends = dict.fromkeys(
            wording.figures(end, 3) if task.scored else wording.points(end, 0)
            for end in (spread.lowest, spread.highest)
        )
        cell.append(f"\nrandom {wording.DASH.join(ends)}", style="dim")
    rates = ((effect.truncated, "cut off"), (effect.looped, "looped"), (effect.unparsed, "unread"))
    faults = [f"{wording.percent(rate, 0)} {name}" for rate, name in rates if rate is not None and rate >= WORTH_SAYING]
    if faults:
        cell.append("\n" + ", ".join(faults), style="dim")
    return cell
