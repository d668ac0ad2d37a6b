"""The tables of a layer study: cells, baselines, sensitivity and screens; layers × tasks for the terminal."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.core import clustered_intervals
from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import Column, Table, Wide, plain_columns, terminal_table
from lesion.report.values import Estimate
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import forced_report, parts_report
from lesion.studies.ablation import perplexity_report as perplexity
from lesion.studies.ablation.cell import Cell, Scores
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screen import report as screen

RATES = ("truncated", "looped", "unclosed", "unparsed")
COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "items"),
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *(
        "p_critical",
        "p_critical_corrected",
        "critical",
        "p_spared",
        "p_spared_corrected",
        "spared",
        "outcome",
        "decided",
    ),
    *(f"{kind}{end}" for kind in ("margin", "word_margin") for end in ("", "_low", "_high", "_p_corrected")),
    *forced_report.COLUMNS,
    *clustered_intervals.COLUMNS,
    *(*RATES, "nonfinite"),
    *(f"baseline_{name}" for name in ("items", "accuracy", "low", "high", *RATES)),
)
NUMBERS = (
    "looped",
    "baseline_looped",
    *(f"{kind}{end}" for kind in ("margin", "word_margin") for end in ("", "_low", "_high", "_p_corrected")),
    *forced_report.COLUMNS,
    *clustered_intervals.COLUMNS,
    *(f"p_{rule}{end}" for rule in ("critical", "spared") for end in ("", "_corrected")),
)
"""Columns that are numbers also where none is known."""
OUTCOMES = {"critical": "●", "spared": "○"}
"""The outcome of a cell of a full table, in the terminal's table."""
MARKS = {"exceeds": "●", "not": "○", "open": "?"}
"""What was decided of a cell, in the terminal's table."""


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
                | {"p_spared": cell.p_spared, "p_spared_corrected": cell.p_spared_corrected}
                | {"spared": math.nan if cell.spared is None else cell.spared}
                | {
                    "outcome": cell.outcome or math.nan,
                    "decided": cell.decided or math.nan,
                    "baseline_items": baseline.items,
                    **margin_of(cell),
                }
                | {f"baseline_{name}": value for name, value in _accuracy(baseline).items()}
                | forced_report.columns(cell, curve.result.forced)
                | clustered_intervals.columns(cell.clustered)
            )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, float))


def margin_of(cell: Cell) -> dict[str, float | None]:
    """The margins that a cell loses, as columns; empty where its task compares no tokens."""
    columns: dict[str, float | None] = {}
    for name, margin in (("margin", cell.margin), ("word_margin", cell.word_margin)):
        if margin is not None:
            columns |= {name: margin.value, f"{name}_low": margin.low, f"{name}_high": margin.high}
            columns[f"{name}_p_corrected"] = margin.p_corrected
    return columns


def _accuracy(scores: Scores) -> dict[str, float | None]:
    accuracy = {"accuracy": scores.accuracy.value, "low": scores.accuracy.low, "high": scores.accuracy.high}
    return accuracy | {name: getattr(scores, name) for name in RATES}


def _interval(key: str, title: str, low: str, high: str) -> Column:
    """A column that writes `85.0 [78.1, 90.2]`."""
    return Column(
        key, title, row=lambda row: f"{wording.points(row[key])} {wording.interval(row[low], row[high])}".rstrip()
    )


ACCURACY = _interval("accuracy", "Accuracy", "low", "high")
MODEL, TASK = Column("model", "Model", number=False), Column("task", "Task", number=False)
ENDED = (
    Column("truncated", "Truncated", row=lambda row: wording.truncated(row["truncated"], row["looped"])),
    Column("unparsed", "Unparsed", row=lambda row: wording.unparsed(row["unparsed"], row["unclosed"])),
)


def _which(summary: AblationSummary) -> list[Column]:
    """The columns that tell model, task and edit apart, where there are several."""
    models, edits = summary.several
    columns = [MODEL, TASK] if models else [TASK]
    if edits:
        columns.append(Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False))
        columns.append(Column("factor", "Factor", wording.factor_name))
    return columns


def cells(summary: AblationSummary) -> Table:
    """Every cell: `layers.csv`."""
    whole, level = frame(summary), f"{100 * summary.study.level:g}{wording.SPACE}%"
    drawn = {(curve.model, curve.task): curve.drawn for curve in summary.curves}
    rivals = whole["forced_accuracy"].notna().any()
    drop = _interval("drop", "Drop", "drop_low", "drop_high")
    ended = [*ENDED, *([Column("nonfinite", "Not finite", wording.percent)] if whole["nonfinite"].any() else [])]
    if summary.stopped:
        columns = [
            Column("accuracy", "Accuracy",
                   row=lambda row: f"{ACCURACY.write(row)} from {wording.points(row['baseline_accuracy'])}"),
            drop,
            Column("items", "Items",
                   row=lambda row: wording.item_count(row["items"], row["decided"], drawn[row["model"], row["task"]])),
            *ended,
            Column("decided", "Decided", lambda text: "● exceeds" if text == "exceeds" else text, number=False),
        ]  # fmt: skip
        caption = (
            f"Accuracies in % and drops in points, with {level} confidence sequences, over the items of the cell until"
            " it was decided."
        )
    else:
        columns = [
            ACCURACY,
            drop,
            *([Column("forced_accuracy", "Forced", row=forced_report.shown)] if rivals else []),
            Column("p", "p", wording.p_value),
            Column("p_corrected", "p corrected", wording.p_value),
            Column("p_critical_corrected", "p critical", wording.p_value),
            *ended,
            Column("critical", "Critical", row=_verdict, number=False),
        ]
        caption = (
            f"Accuracies in % and drops in points, with {level} intervals. p: the cut changes nothing (exact McNemar"
            " test). p critical: it takes at most half of the accuracy, corrected. Spared: it takes less than a"
            " quarter, by a test of its own. Where answers are chosen, both are measured down to chance. The"
            " corrections are Holm's over the blocks of one model and task."
        )
        if rivals:
            caption += f" {forced_report.METHOD}"
    return Table(
        "layers",
        whole,
        (*_which(summary), Column("layer", "Block"), *columns),
        title="Every cell",
        caption=caption,
        mark=lambda row: bool(row["critical"]) or row["decided"] == "exceeds",
        marked=f"only what {wording.call(True)}" if summary.stopped else "critical only",
    )


def _verdict(row: dict[str, Any]) -> str:
    if row["outcome"] == "critical":
        kept = row["forced_p_kept_corrected"]
        return "● mostly form" if kept is not None and kept <= wording.ALPHA else "●"
    return str(row["outcome"])


def baselines(summary: AblationSummary) -> Table:
    """The unedited models, and the places that are marked."""
    curves = summary.curves
    several_models, several_edits = summary.several
    rows = []
    for model, task in dict.fromkeys((curve.model, curve.task) for curve in curves):
        own = [curve for curve in curves if (curve.model, curve.task) == (model, task)]
        _, items, drawn = own[0].counts
        shown = f"{items:,}" if drawn is None else f"{items:,} of {drawn:,}{', stopped' if items < drawn else ''}"
        rows.append(
            {"model": model, "task": task, "items": items, "shown": shown}
            | _accuracy(own[0].result.baseline)
            | {"forced": forced_report.unedited(own[0].result.forced)}
            | {"marked": "; ".join(_places(curve, several_edits) for curve in own)}
        )
    which = "the blocks whose drop exceeds the effect" if summary.stopped else "the critical blocks"
    looped = ", or was ended in a loop (looped)" if summary.approximate else ""
    unclosed = "; unclosed: it never closed its thinking" if any(row["unclosed"] for row in rows) else ""
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *([MODEL, TASK] if several_models else [TASK]),
            Column("items", "Items", row=lambda row: str(row["shown"])),
            ACCURACY,
            *([Column("forced", "Forced", number=False)] if any(row["forced"] for row in rows) else []),
            *ENDED,
            Column("marked", wording.call(summary.stopped).capitalize(), number=False),
        ),
        title="The unedited models and the blocks that are marked",
        caption=f"The unedited model{'s' if several_models else ''} (accuracy in %), and {which}. Truncated: the"
        f" answer hit the token limit{looped}. Unparsed: no answer could be read from it{unclosed}.",
    )


def _places(curve: Curve, several: bool) -> str:
    places = prose.marked_places(curve)
    if not places:
        unfinished = " so far" if curve.missing or not curve.finished else ""
        places = f"none{unfinished}" if curve.cells else wording.DASH
    return f"{places} ({wording.edit_name(curve.unit, curve.factor)})" if several else places


def sensitivities(summary: AblationSummary) -> Table | None:
    """How large a loss can be found, and what is critical at other shares; None where evaluation stopped."""
    every = [
        (model, result.task, reach) for model, result in summary.results for reach in result.sensitivity if reach.shares
    ]
    if not every:
        return None
    rows = [
        {"model": model, "task": task, "unit": reach.unit, "factor": reach.factor, "right": reach.right}
        | {"loss": reach.smallest_loss, "least": f"none, from {reach.fewest_right} right on"}
        | {f"{at.share:g}": wording.layer_runs(at.critical) or wording.DASH for at in reach.shares}
        for model, task, reach in every
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *_which(summary),
            Column("right", "Right"),
            Column("loss", "Smallest loss",
                   row=lambda row: str(row["least"]) if row["loss"] is None else wording.percent(row["loss"], 0)),
            *(Column(f"{at.share:g}", wording.percent(at.share, 0), number=False) for at in every[0][2].shares),
        ),
        title="What can be found, and critical blocks at other shares",
        caption="Right: items that the unedited model has right. Smallest loss: of its accuracy, called critical with"
        f" {wording.percent(every[0][2].power, 0)} power by a cut that repairs no item. Columns: the critical blocks if"
        f" so much of the accuracy had to be lost; the rule of this page is 50{wording.SPACE}%.",
    )  # fmt: skip


def screens(summary: AblationSummary) -> Table:
    """What the gold solutions lose under every cut."""
    rows: list[dict[str, object]] = [
        {"model": model, "task": task, "unit": loss.unit, "factor": loss.factor}
        | {"layer": loss.layer if loss.part is None else f"{loss.layer}.{loss.part}"}
        | {"items": of_task.items, "lost": loss.lost.value, "shown": screen.loss_text(loss), "rank": loss.rank}
        for model, of_tasks in screen.screens(summary).items()
        for task, of_task in of_tasks.items()
        for loss in of_task.losses
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            *_which(summary),
            *plain_columns(layer="Block", items="Items"),
            Column("lost", "Lost per token", row=lambda row: str(row["shown"])),
            Column("rank", "Rank"),
        ),
        title="The screen",
        caption="Nats of log-probability that a token of the gold solutions loses on average, with bootstrap intervals"
        " over items; rank 1 loses most.",
    )


def text(summary: AblationSummary, seconds: screen.Seconds) -> RenderableType:
    """The terminal's tables: a row per layer, a column per task, `●` where critical; then those of the screens.

    Where evaluation stopped, a cell has its drop instead, which is over its own items and not those of the baseline
    above, and says after how many. `seconds` says how long answers took, of a study with a screen.
    """
    level = f"{100 * summary.study.level:g} %"
    decided = " ".join(prose.decided(summary))
    numbers = (
        f"Drop in points on the items evaluated so far, and the baseline's accuracy in %, each with its"
        f" {level} confidence sequence, which holds whenever evaluation stops. ● exceeds the effect, ○ not, ? left"
        f" open. {decided} "
        if decided
        else f"Accuracy in % with its {level} interval; ● is critical, ○ is spared, of the others it cannot be told. "
    )
    results = [scores for curve in summary.curves for scores in (curve.result.baseline, *curve.result.cells)]
    unclosed = " unclosed, it never closed its thinking;" if any(scores.unclosed for scores in results) else ""
    caption = (
        f"{numbers}{summary.rule} Below, from {100 * wording.WORTH_SAYING:g} % on: truncated, the answer hit the"
        f" token limit;{unclosed} unparsed, no answer could be read from it."
    )
    if any(curve.result.forced for curve in summary.curves):
        caption += f" {forced_report.METHOD}"
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    tables = [Wide(_by_layer(view, label)) for view in summary.views for label in view.labels]
    tables += [Wide(screen.terminal(model, of_tasks)) for model, of_tasks in screen.screens(summary).items()]
    texts = [Wide(each) for each in perplexity.terminal(summary)]
    of_parts = [Wide(each) for each in parts_report.terminal(summary)]
    caption = caption if summary.curves or of_parts else ""
    about_text = (f"{perplexity.METHOD} Brackets are {level} intervals.",) if texts else ()
    lines = filter(None, (caption, *about_text, *prose.sensitivity(summary), *screen.sentences(summary, seconds)))
    return Group(*tables, *of_parts, *texts, *(Text(plain(line), style="dim") for line in lines))


def _by_layer(view: View, label: str) -> TerminalTable:
    by_task = {task: curve for task, curves in view.panels.items() for curve in curves if curve.label == label}
    first = next(iter(by_task.values()))
    title = f"{plain(first.model)} · {wording.edit_name(view.unit, first.factor)}"
    table = terminal_table(title, [("block", True)])
    baselines = []
    for task, curve in by_task.items():
        stopped = f"n{wording.SPACE}={wording.SPACE}{curve.items:,}" if curve.stopped else ""
        count = f"n {wording.of_drawn(*curve.counts)}" if stopped else wording.counted(curve.items, "item")
        table.add_column(Text(f"{plain(task)}\n{count}"), justify="right", overflow="fold")
        beneath = "\n".join(filter(None, (stopped, forced_report.line(curve.result.forced))))
        baselines.append(_written(curve.result.baseline, curve.result.baseline.accuracy, items=beneath))
    table.add_row("baseline", *baselines, end_section=True)
    # A family beside it may be deeper: only what this model has, or will have.
    for layer in sorted(set().union(*(curve.layers for curve in by_task.values()))):
        table.add_row(str(layer), *(_cell(curve, layer) for curve in by_task.values()))
    return table


def _cell(curve: Curve, layer: int) -> Text:
    cell = curve.at(layer)
    if cell is None:
        return Text("not yet", style="dim")
    if not curve.stopped:
        mark = OUTCOMES.get(cell.outcome or "", "")
        return _written(cell, cell.accuracy, mark=mark, items=forced_report.line(cell.forced))
    mark = f"{MARKS.get(cell.decided or '', '')} drop".lstrip()
    return _written(cell, cell.drop, mark=mark, items=wording.item_count(cell.items, cell.decided, curve.drawn))


def _written(scores: Scores, shown: Estimate, *, mark: str = "", items: str = "") -> Text:
    before = f"{mark} " if mark else ""
    cell = Text(f"{before}{wording.points(shown.value)} ", style="bold red" if mark.startswith("●") else "")
    cell.append(wording.interval(shown.low, shown.high), style="not bold dim")
    shares = scores.model_dump(include=set(RATES))
    faults = [f"{wording.percent(shares[name], 0)} {name}" for name in RATES if shares[name] >= wording.WORTH_SAYING]
    for beneath in filter(None, (items, *faults)):
        cell.append(f"\n{beneath}", style="not bold dim")
    return cell
