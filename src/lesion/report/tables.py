"""The tables of a study: one row per model, task and edit for files, layers × tasks for the terminal."""

from __future__ import annotations

import math
from dataclasses import asdict

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.report import screen, wording
from lesion.report.views import Line, Summary, View, lines, views

COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "items"),
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected", "critical", "decided"),
    *("truncated", "unparsed", "nonfinite"),
    *(
        "baseline_items",
        "baseline_accuracy",
        "baseline_low",
        "baseline_high",
        "baseline_truncated",
        "baseline_unparsed",
    ),
)

WORTH_SAYING = 0.05
"""The rate of truncated or unread answers from which the terminal's table mentions it."""


def layers(summary: Summary) -> pd.DataFrame:
    """One row per model, task, unit, factor and layer, with the baseline beside it: what `layers.csv` holds.

    Accuracies, drops and rates in 0…1; NaN where not known. `items` are those that the cell was asked, `decided` is
    empty in a full table.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    rows = [
        {
            "model": line.model,
            "task": line.task,
            **asdict(point),
            "decided": point.decided or math.nan,
            "baseline_items": line.items,
            **{f"baseline_{name}": value for name, value in asdict(line.baseline).items()},
        }
        for line in lines(summary)
        for point in line.points
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def text(summary: Summary) -> RenderableType:
    """The terminal's tables: a row per layer, a column per task, `●` where critical; then those of the screens.

    Where asking stopped, every cell says after how many items, and `?` marks what was left undecided.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    study = summary.get("study") or {}
    level = float(study.get("level", 0.95))
    tables: list[RenderableType] = [_table(view, label) for view in views(summary) for label in view.labels]
    stopped = any(line.stopped for line in lines(summary))
    kind = "confidence sequence, which holds whenever asking stops" if stopped else "interval"
    caption = (
        f"Accuracy in % with its {100 * level:g} % {kind}; ● is critical{', ? left open' if stopped else ''}. "
        f"{wording.rule(study)} "
        f"Beneath, from {100 * WORTH_SAYING:g} % on: answers cut off at the token limit, "
        "and answers in which none could be read."
    )
    of_screens = screen.screens(summary)
    for model in dict.fromkeys(one.model for one in of_screens):
        tables.append(screen.table([one for one in of_screens if one.model == model]))
    return Group(*tables, *(Text(told, style="dim") for told in (caption, *screen.sentences(summary))))


def _table(view: View, label: str) -> Table:
    of_label = {task: line for task, found in view.panels.items() for line in found if line.label == label}
    first = next(iter(of_label.values()))
    factor = f"×{first.factor:g}"
    table = Table(
        title=Text(f"{first.model} · {wording.UNIT_NAMES[view.unit]} {factor}"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("block", justify="right")
    for task, line in of_label.items():
        count = f"n {wording.up_to(line.items, line.drawn)}" if line.stopped else wording.counted(line.items, "item")
        table.add_column(Text(f"{task}\n{count}"), justify="right", overflow="fold")
    table.add_row("baseline", *(_baseline_cell(line) for line in of_label.values()), end_section=True)
    # A family beside it may be deeper: only what this model has, or will have.
    own = {point.layer for line in of_label.values() for point in line.points}.union(
        *(line.missing for line in of_label.values())
    )
    for layer in (layer for layer in view.layers if layer in own):
        table.add_row(str(layer), *(_cell(line, layer) for line in of_label.values()))
    return table


def _baseline_cell(line: Line) -> Text:
    found = line.baseline
    asked = f"n{wording.SPACE}={wording.SPACE}{line.items:,}" if line.stopped else ""
    return _written(found.accuracy, found.low, found.high, found.truncated, found.unparsed, asked=asked)


def _cell(line: Line, layer: int) -> Text:
    point = line.at(layer)
    if point is None:
        return Text("not yet", style="dim")
    mark = "●" if point.critical else "?" if point.decided == "open" else ""
    asked = wording.asked(point.items, point.decided)
    return _written(point.accuracy, point.low, point.high, point.truncated, point.unparsed, mark=mark, asked=asked)


def _written(
    accuracy: float | None,
    low: float | None,
    high: float | None,
    truncated: float | None,
    unparsed: float | None,
    *,
    mark: str = "",
    asked: str = "",
) -> Text:
    if accuracy is None:
        return Text("not yet", style="dim")
    before = f"{mark} " if mark else ""
    cell = Text(f"{before}{wording.points(accuracy)} ", style="bold red" if mark == "●" else "")
    cell.append(wording.interval(low, high), style="not bold dim")
    faults = [
        f"{wording.percent(rate, 0)} {name}"
        for rate, name in ((truncated, "cut off"), (unparsed, "unread"))
        if rate is not None and rate >= WORTH_SAYING
    ]
    for beneath in filter(None, (asked, ", ".join(faults))):
        cell.append(f"\n{beneath}", style="not bold dim")
    return cell
