"""The tables of a study: one row per model, task and edit for files, layers × tasks for the terminal."""

from __future__ import annotations

import math
from dataclasses import asdict

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.report import wording
from lesion.report.views import Baseline, Line, Point, Summary, View, lines, views
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import screen_report as screen
from lesion.studies.ablation import sensitivity

COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "items"),
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *("p_critical", "p_critical_corrected", "critical", "decided"),
    *("truncated", "looped", "unparsed", "nonfinite"),
    *(
        "baseline_items",
        "baseline_accuracy",
        "baseline_low",
        "baseline_high",
        "baseline_truncated",
        "baseline_looped",
        "baseline_unparsed",
    ),
)

NUMBERS = ("looped", "baseline_looped", "p_critical", "p_critical_corrected")
"""Columns that are numbers also where none is known."""

MARKS = {"exceeds": "●", "not": "○", "open": "?"}
"""What was decided of a cell, in the terminal's table."""


def layers(summary: Summary) -> pd.DataFrame:
    """One row per model, task, unit, factor and layer, with the baseline beside it: what `layers.csv` holds.

    Accuracies, drops and rates in 0…1; NaN where not known. `items` are those that the cell was asked, `decided` is
    empty in a full table, and `critical` is where asking stopped. The baseline is over the items of the cell: its
    accuracy less the cell's is the drop.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    rows = [
        {
            "model": line.model,
            "task": line.task,
            **asdict(point),
            "critical": math.nan if point.critical is None else point.critical,
            "decided": point.decided or math.nan,
            "baseline_items": point.items if line.stopped else line.items,
            **{f"baseline_{name}": value for name, value in asdict(point.baseline).items()},
        }
        for line in lines(summary)
        for point in line.points
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, float))


def text(summary: Summary) -> RenderableType:
    """The terminal's tables: a row per layer, a column per task, `●` where critical; then those of the screens.

    Where asking stopped, a cell has its drop instead, which is over its own items and not those of the baseline above,
    and says after how many; `●` marks what exceeds the effect, `○` what was found not to, `?` what was left undecided.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    study = summary.get("study") or {}
    level = float(study.get("level", 0.95))
    tables: list[RenderableType] = [_table(view, label) for view in views(summary) for label in view.labels]
    decided = " ".join(prose.decided(summary))
    numbers = (
        f"Drop in points over the items that the cell and the baseline were both asked; the baseline's accuracy in %;"
        f" each with its {100 * level:g} % confidence sequence, which holds whenever asking stops."
        f" ● exceeds the effect, ○ not, ? left open. {decided} "
        if decided
        else f"Accuracy in % with its {100 * level:g} % interval; ● is critical. "
    )
    caption = (
        f"{numbers}{wording.rule(study)} "
        f"Beneath, from {100 * wording.WORTH_SAYING:g} % on: answers cut off at the token limit, "
        "and answers in which none could be read."
    )
    if label := wording.approximate(study):
        caption += f" Approximate: {label}"
    of_screens = screen.screens(summary)
    for model in dict.fromkeys(one.model for one in of_screens):
        tables.append(screen.table([one for one in of_screens if one.model == model]))
    return Group(
        *tables,
        *(Text(told, style="dim") for told in (caption, *sensitivity.sentences(summary), *screen.sentences(summary))),
    )


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
        count = wording.counted(line.items, "item")
        if line.stopped:
            count = f"n {wording.of_drawn(line.fewest, line.items, line.drawn)}"
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
    return _written(found, found.accuracy, found.low, found.high, asked=asked)


def _cell(line: Line, layer: int) -> Text:
    point = line.at(layer)
    if point is None:
        return Text("not yet", style="dim")
    if not line.stopped:
        mark = "●" if point.critical else ""
        return _written(point, point.accuracy, point.low, point.high, mark=mark)
    mark = f"{MARKS.get(point.decided or '', '')} drop".lstrip()
    asked = wording.asked(point.items, point.decided, point.drawn)
    return _written(point, point.drop, point.drop_low, point.drop_high, mark=mark, asked=asked)


def _written(
    of: Baseline | Point,
    share: float | None,
    low: float | None,
    high: float | None,
    *,
    mark: str = "",
    asked: str = "",
) -> Text:
    if share is None:
        return Text("not yet", style="dim")
    before = f"{mark} " if mark else ""
    cell = Text(f"{before}{wording.points(share)} ", style="bold red" if mark.startswith("●") else "")
    cell.append(wording.interval(low, high), style="not bold dim")
    faults = [
        f"{wording.percent(rate, 0)} {name}"
        for rate, name in ((of.truncated, "cut off"), (of.looped, "looped"), (of.unparsed, "unread"))
        if rate is not None and rate >= wording.WORTH_SAYING
    ]
    for beneath in filter(None, (asked, ", ".join(faults))):
        cell.append(f"\n{beneath}", style="not bold dim")
    return cell
