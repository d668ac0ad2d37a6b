"""The tables of a layer study: cells, baselines, sensitivity and screens; layers × tasks for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.core.values import Estimate
from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import Column, Table, terminal_table
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import screen_report as screen
from lesion.studies.ablation import sensitivity
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import AblationSummary, Scores

RATES = ("truncated", "looped", "unparsed")
COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "items"),
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *("p_critical", "p_critical_corrected", "critical", "decided"),
    *(*RATES, "nonfinite"),
    *(f"baseline_{name}" for name in ("items", "accuracy", "low", "high", *RATES)),
)
NUMBERS = ("looped", "baseline_looped", "p_critical", "p_critical_corrected")
"""Columns that are numbers also where none is known."""
MARKS = {"exceeds": "●", "not": "○", "open": "?"}
"""What was decided of a cell, in the terminal's table."""
Row = Mapping[str, Any]


def frame(summary: AblationSummary) -> pd.DataFrame:
    """One row per model, task, unit, factor and layer, with the baseline beside it: what `layers.csv` holds.

    Accuracies, drops and rates in 0…1; NaN where not known. `items` are those of the cell, `decided` is empty in a full
    table, and `critical` is where evaluation stopped. The baseline is over the items of the cell: its accuracy less the
    cell's is the drop.
    """
    rows = []
    for curve in summary.curves:
        for cell in curve.cells:
            drop, baseline = cell.drop, curve.baseline_of(cell)
            rows.append(
                {"model": curve.model, "task": curve.task, "unit": cell.unit, "factor": cell.factor}
                | {"layer": cell.layer, "items": cell.items, **_accuracy(cell), "nonfinite": cell.nonfinite}
                | {"drop": drop.value, "drop_low": drop.low, "drop_high": drop.high}
                | {"p": drop.p, "p_corrected": drop.p_corrected}
                | {"p_critical": cell.p_critical, "p_critical_corrected": cell.p_critical_corrected}
                | {"critical": math.nan if cell.critical is None else cell.critical}
                | {"decided": cell.decided or math.nan, "baseline_items": baseline.items}
                | {f"baseline_{name}": value for name, value in _accuracy(baseline).items()}
            )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, float))


def _accuracy(of: Scores) -> dict[str, float | None]:
    accuracy = {"accuracy": of.accuracy.value, "low": of.accuracy.low, "high": of.accuracy.high}
    return accuracy | {name: getattr(of, name) for name in RATES}


def cells(summary: AblationSummary) -> Table:
    """Every cell: `layers.csv`."""
    stopped, whole = summary.stopped, frame(summary)
    drawn = {(curve.model, curve.task): curve.drawn for curve in summary.curves}
    tests = (
        Column("p", "p", wording.p_value),
        Column("p_corrected", "p corrected", wording.p_value),
        Column("p_critical_corrected", "p critical", wording.p_value),
        Column("critical", "Critical", lambda critical: "●" if critical else "", number=False),
    )
    decisions = (
        Column("items", "Items",
               row=lambda row: wording.asked(row["items"], row["decided"], drawn[row["model"], row["task"]])),
        Column("decided", "Decided", lambda decided: "● exceeds" if decided == "exceeds" else decided, number=False),
    )  # fmt: skip
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    caption = (
        f"Accuracies in % and drops in points, with {level} confidence sequences, over the items of the cell until it"
        " was decided."
        if stopped
        else f"Accuracies in % and drops in points, with {level} intervals. p: the cut changes nothing (exact McNemar"
        " test). p critical: it takes at most half of the accuracy, corrected. Both corrections are Holm's over the"
        " blocks of one model and task."
    )
    return Table(
        "layers",
        whole,
        (
            *_which(summary),
            Column("layer", "Block"),
            Column("accuracy", "Accuracy", row=_written_accuracy if stopped else _interval("accuracy", "low", "high")),
            Column("drop", "Drop", row=_interval("drop", "drop_low", "drop_high")),
            *(decisions[:1] if stopped else tests[:3]),
            Column("truncated", "Truncated", row=lambda row: wording.truncated(row["truncated"], row["looped"])),
            Column("unparsed", "Unparsed", wording.percent),
            *([Column("nonfinite", "Not finite", wording.percent)] if whole["nonfinite"].any() else []),
            *(decisions[1:] if stopped else tests[3:]),
        ),
        title="Every cell",
        caption=caption,
        mark=lambda row: bool(row["critical"]) or row["decided"] == "exceeds",
        marked=f"only what {wording.call(True)}" if stopped else "critical only",
    )


def _which(summary: AblationSummary) -> list[Column]:
    """The columns that tell model, task and edit apart, where there are several."""
    curves = summary.curves
    columns = [Column("model", "Model", number=False)] if len({curve.model for curve in curves}) > 1 else []
    columns.append(Column("task", "Task", number=False))
    if len({(curve.unit, curve.factor) for curve in curves}) > 1:
        columns.append(Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False))
        columns.append(Column("factor", "Factor", lambda factor: f"{factor:g}"))
    return columns


def _interval(value: str, low: str, high: str) -> Any:
    """What writes `85.0 [78.1, 90.2]`."""

    def write(row: Row) -> str:
        return f"{wording.points(row[value])} {wording.interval(row[low], row[high])}".rstrip()

    return write


def _written_accuracy(row: Row) -> str:
    return f"{_interval('accuracy', 'low', 'high')(row)} from {wording.points(row['baseline_accuracy'])}"


def baselines(summary: AblationSummary) -> Table:
    """The unedited models, and the places that are marked."""
    curves = summary.curves
    several_edits = len({(curve.unit, curve.factor) for curve in curves}) > 1
    rows = []
    for model, task in dict.fromkeys((curve.model, curve.task) for curve in curves):
        own = [curve for curve in curves if (curve.model, curve.task) == (model, task)]
        items = f"{own[0].items:,}"
        if own[0].drawn is not None:
            items += f" of {own[0].drawn:,}{', stopped' if own[0].items < own[0].drawn else ''}"
        rows.append(
            {"model": model, "task": task, "items": own[0].items, "shown": items}
            | _accuracy(own[0].result.baseline)
            | {"marked": "; ".join(_places(curve, several_edits) for curve in own)}
        )
    several = len({curve.model for curve in curves}) > 1
    which = "the blocks whose drop exceeds the effect" if summary.stopped else "the critical blocks"
    looped = ", or was ended in a loop (looped)" if summary.approximate else ""
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *([Column("model", "Model", number=False)] if several else []),
            Column("task", "Task", number=False),
            Column("items", "Items", row=lambda row: str(row["shown"])),
            Column("accuracy", "Accuracy", row=_interval("accuracy", "low", "high")),
            Column("truncated", "Truncated", row=lambda row: wording.truncated(row["truncated"], row["looped"])),
            Column("unparsed", "Unparsed", wording.percent),
            Column("marked", wording.call(summary.stopped).capitalize(), number=False),
        ),
        title="The unedited models and the blocks that are marked",
        caption=f"The unedited model{'s' if several else ''} (accuracy in %), and {which}. Truncated: the answer hit"
        f" the token limit{looped}. Unparsed: no answer could be read from it.",
    )


def _places(curve: Curve, several: bool) -> str:
    places = prose.marked_places(curve)
    if not places:
        unfinished = " so far" if curve.missing or not curve.finished else ""
        places = f"none{unfinished}" if curve.cells else wording.DASH
    return f"{places} ({wording.UNIT_NAMES[curve.unit]} × {curve.factor:g})" if several else places


def sensitivities(summary: AblationSummary) -> Table:
    """How large a loss can be found, and what is critical at other shares."""
    every = sensitivity.sensitivities(summary)
    rows = [
        {"model": model, "task": task, "unit": found.unit, "factor": found.factor, "right": found.right}
        | {"loss": found.smallest_loss, "fewest": found.fewest_right}
        | {f"{at.share:g}": wording.layer_runs(at.critical) or wording.DASH for at in found.shares}
        for model, task, found in every
    ]
    shares = [at.share for at in every[0].found.shares] if every else []
    power = wording.percent(every[0].found.power, 0) if every else ""

    def loss(row: Row) -> str:
        return f"none, from {row['fewest']} right on" if row["loss"] is None else wording.percent(row["loss"], 0)

    return Table(
        "",
        pd.DataFrame(rows),
        (
            *_which(summary),
            Column("right", "Right"),
            Column("loss", "Smallest loss", row=loss),
            *(Column(f"{share:g}", wording.percent(share, 0), number=False) for share in shares),
        ),
        title="What can be found, and critical blocks at other shares",
        caption="Right: items that the unedited model has right. Smallest loss: of its accuracy, called critical with"
        f" {power} power by a cut that repairs no item. Columns: the critical blocks if so much of the accuracy had to"
        f" be lost; the rule of this page is 50{wording.SPACE}%.",
    )


def screens(summary: AblationSummary) -> Table:
    """What the gold solutions lose under every cut."""
    losses = {(model, task, loss.edit): loss for model, task, found in screen.screens(summary) for loss in found.losses}
    items = {(model, task): found.items for model, task, found in screen.screens(summary)}
    rows = [
        {"model": model, "task": task, "unit": loss.unit, "factor": loss.factor, "layer": loss.layer}
        | {"items": items[model, task], "edit": edit, "lost": loss.lost.value, "rank": loss.rank}
        for (model, task, edit), loss in losses.items()
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *_which(summary),
            Column("layer", "Block"),
            Column("items", "Items"),
            Column("lost", "Lost per token",
                   row=lambda row: screen.loss_text(losses[row["model"], row["task"], row["edit"]])),
            Column("rank", "Rank"),
        ),
        title="The screen",
        caption="Nats of log-probability that a token of the gold solutions loses on average, with bootstrap intervals"
        " over items; rank 1 loses most.",
    )  # fmt: skip


def text(summary: AblationSummary, seconds: screen.Seconds) -> RenderableType:
    """The terminal's tables: a row per layer, a column per task, `●` where critical; then those of the screens.

    Where evaluation stopped, a cell has its drop instead, which is over its own items and not those of the baseline
    above, and says after how many; `●` marks what exceeds the effect, `○` what does not, `?` what is open.

    Args:
        summary: of the study.
        seconds: how long answers took, of a study with a screen.
    """
    level = f"{100 * summary.study.level:g} %"
    decided = " ".join(prose.decided(summary))
    numbers = (
        "Drop in points over the items that the cell and the baseline were both asked; the baseline's accuracy in %;"
        f" each with its {level} confidence sequence, which holds whenever asking stops."
        f" ● exceeds the effect, ○ not, ? left open. {decided} "
        if decided
        else f"Accuracy in % with its {level} interval; ● is critical. "
    )
    caption = (
        f"{numbers}{summary.rule} Beneath, from {100 * wording.WORTH_SAYING:g} % on: answers cut off at the token"
        " limit, and answers in which none could be read."
    )
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    tables: list[RenderableType] = [_by_layer(view, label) for view in summary.views for label in view.labels]
    of_screens = screen.screens(summary)
    for model in dict.fromkeys(each.model for each in of_screens):
        tables.append(screen.table([each for each in of_screens if each.model == model]))
    lines = (caption, *sensitivity.sentences(summary), *screen.sentences(summary, seconds))
    return Group(*tables, *(Text(plain(line), style="dim") for line in lines))


def _by_layer(view: View, label: str) -> TerminalTable:
    by_task = {task: curve for task, curves in view.panels.items() for curve in curves if curve.label == label}
    first = next(iter(by_task.values()))
    title = f"{plain(first.model)} · {wording.UNIT_NAMES[view.unit]} ×{first.factor:g}"
    table = terminal_table(title, [("block", True)])
    for task, curve in by_task.items():
        count = wording.counted(curve.items, "item")
        if curve.stopped:
            count = f"n {wording.of_drawn(curve.fewest, curve.items, curve.drawn)}"
        table.add_column(Text(f"{plain(task)}\n{count}"), justify="right", overflow="fold")
    table.add_row("baseline", *(_baseline_cell(curve) for curve in by_task.values()), end_section=True)
    # A family beside it may be deeper: only what this model has, or will have.
    own = {layer for curve in by_task.values() for layer in (*curve.missing, *(cell.layer for cell in curve.cells))}
    for layer in sorted(own):
        table.add_row(str(layer), *(_cell(curve, layer) for curve in by_task.values()))
    return table


def _baseline_cell(curve: Curve) -> Text:
    items = f"n{wording.SPACE}={wording.SPACE}{curve.items:,}" if curve.stopped else ""
    baseline = curve.result.baseline
    return _written(baseline, baseline.accuracy, items=items)


def _cell(curve: Curve, layer: int) -> Text:
    cell = curve.at(layer)
    if cell is None:
        return Text("not yet", style="dim")
    if not curve.stopped:
        return _written(cell, cell.accuracy, mark="●" if cell.critical else "")
    mark = f"{MARKS.get(cell.decided or '', '')} drop".lstrip()
    return _written(cell, cell.drop, mark=mark, items=wording.asked(cell.items, cell.decided, curve.drawn))


def _written(of: Scores, shown: Estimate, *, mark: str = "", items: str = "") -> Text:
    before = f"{mark} " if mark else ""
    cell = Text(f"{before}{wording.points(shown.value)} ", style="bold red" if mark.startswith("●") else "")
    cell.append(wording.interval(shown.low, shown.high), style="not bold dim")
    faults = [
        f"{wording.percent(rate, 0)} {name}"
        for rate, name in ((of.truncated, "cut off"), (of.looped, "looped"), (of.unparsed, "unread"))
        if rate >= wording.WORTH_SAYING
    ]
    for beneath in filter(None, (items, ", ".join(faults))):
        cell.append(f"\n{beneath}", style="not bold dim")
    return cell
