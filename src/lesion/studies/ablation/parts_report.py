"""Inner units of a layer study on its page and in the terminal: which are critical, and maps of blocks × parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import pandas as pd
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.plain import plain
from lesion.report import heatmap, wording
from lesion.report.blocks import Block, Figure, Panel, Prose, Section
from lesion.report.browser import Offered
from lesion.report.finding import Finding
from lesion.report.table import Column, Table, terminal_table
from lesion.studies.ablation import charts, forced_report, parts, tables
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve, full_drop
from lesion.studies.ablation.kinds import parts as of_kinds
from lesion.studies.ablation.kinds.kinds import stands_in
from lesion.studies.ablation.result import AblationSummary, TextResult, TextUnderEdit
from lesion.studies.ablation.screen import report as screen_report
from lesion.studies.ablation.screen.result import Loss
from lesion.studies.ablation.sweep import Factor, kind_of

MOST = 10
"""So many parts are named in a sentence."""
FEW = 5
"""So many parts are named of those that move the difference of two tokens."""
ROOMY = 12
"""Cells of maps of so many columns have room for a number."""
TERMINAL = 40
"""So many parts of a block have a column in the terminal; of more the largest drops are listed."""
MARGIN = tuple(f"{kind}{end}" for kind in ("margin", "word_margin") for end in ("", "_low", "_high", "_p_corrected"))
COLUMNS = (
    *("model", "task", "unit", "factor", "layer", "part", "items", "accuracy", "low", "high"),
    *("drop", "drop_low", "drop_high", "p", "p_corrected", "p_critical_corrected", "critical", "p_spared_corrected"),
    *("spared", "decided", "truncated", "unparsed", "baseline_accuracy", "tests"),
    *MARGIN,
    *forced_report.COLUMNS,
)
NUMBERS = (*MARGIN, *forced_report.COLUMNS, "p", "p_corrected", "p_critical_corrected", "p_spared_corrected")
HEADS = (
    "A head is removed or replaced at the input of the attention's output matrix: the other heads and the bias stay."
    " Heads are named block.head, as 9.6"
)
WHAT: dict[Unit, str] = {
    "head": HEADS,
    "group": HEADS,
    "neuron": "A neuron is removed at the input of the MLP's last matrix: the other neurons and the bias stay. Neurons"
    " are named block.neuron, as 9.306",
    "expert": "An expert is removed where the router chose it: the routing weights of the others stay as they are, and"
    " no other expert takes its place. Experts are named block.expert, as 9.6",
    "matrix": "A matrix is multiplied, its bias left alone",
}


def findings(summary: AblationSummary) -> list[Finding]:
    """Which parts are critical and which change anything, a finding per model and unit."""
    by_unit: dict[tuple[str, Unit], list[str]] = {}
    by_task: dict[tuple[str, Unit, str], list[Curve]] = {}
    for curve in parts.maps(summary):
        by_unit.setdefault((curve.model, curve.unit), []).append(_sentence(curve))
        by_task.setdefault((curve.model, curve.unit, curve.task), []).append(curve)
    agreements: dict[tuple[str, Unit], list[str]] = {}
    for (model, unit, _), curves in by_task.items():
        if (agreement := of_kinds.agreement(curves)) is not None:
            agreements.setdefault((model, unit), []).append(f"Kinds of ablation: {agreement}")
    several = len(summary.models) > 1
    every = []
    for (model, unit), own in by_unit.items():
        noun = wording.plural(wording.UNIT_NAMES[unit])
        subject = f"{model}, {noun}" if several else wording.capital(noun)
        every.append(Finding(subject, (own[0], *agreements.get((model, unit), ())), tuple(own[1:])))
    return every


def _sentence(curve: Curve) -> str:
    noun, count = wording.UNIT_NAMES[curve.unit], parts.tests(curve)
    of = f"of {wording.counted(count, noun)}"
    if len(curve.cells) < count:
        so_far = "" if curve.result.screen and curve.result.screen.top else " so far"
        of = f"of the {len(curve.cells)} measured{so_far}, {of}"
    task = curve.task if curve.factor == 0 else f"{curve.task}, {_how(curve.factor)}"
    largest = max(curve.cells, key=lambda cell: cell.drop.value or 0.0)
    text = f"{task}: {_listed(curve.marked, curve)} {wording.called(curve.stopped, len(curve.marked))} {of}"
    if not curve.marked:
        text = f"{task}: no {noun} {wording.unshown(curve.stopped)} {of}"
        if curve.untold:
            return f"{text}; it cannot be told ({curve.untold})."
    changed = [cell for cell in curve.cells if cell not in curve.marked and _changes(cell)]
    if changed:
        text += (
            f"; {_listed(changed, curve)} change{'s' if len(changed) == 1 else ''} the accuracy (p < .05, corrected)"
        )
    drop = largest.drop
    return (
        f"{text}. Largest drop: {wording.points(drop.value)} points {wording.interval(drop.low, drop.high)} of"
        f" {wording.percent(curve.result.baseline.accuracy.value)}, {parts.named([largest], curve.unit)}."
        f"{_by_margin(curve)}"
    )


def _how(factor: Factor) -> str:
    """What was done to a part: `removed`, `scaled by 0.5`, `replaced by its mean`."""
    if isinstance(factor, str):
        return wording.changed(factor)
    return "removed" if factor == 0 else f"scaled by {factor:g}"


def _by_margin(curve: Curve) -> str:
    """Which parts write towards the right token and which against it, of a task that compares two tokens."""
    known = [(cell, cell.margin) for cell in curve.cells if cell.margin is not None and cell.margin.value is not None]
    if not known:
        return ""
    sides = []
    for sign, verb in ((1, "falls"), (-1, "rises")):
        own = [(cell, margin) for cell, margin in known if sign * (margin.value or 0.0) > 0]
        own = [pair for pair in own if pair[1].p_corrected is not None and pair[1].p_corrected < wording.ALPHA]
        own.sort(key=lambda pair: -abs(pair[1].value or 0.0))
        if own:
            cell, margin = own[0]
            low, high = sorted((sign * (margin.low or 0.0), sign * (margin.high or 0.0)))
            most = f"{wording.figures(abs(margin.value or 0.0), 3)} nats {wording.plain_interval(low, high, 3)}"
            rest = f" and {len(own) - FEW} more" if len(own) > FEW else ""
            first = parts.named([cell for cell, _ in own[:FEW]], curve.unit)
            sides.append(f"{verb} without {first}{rest} (most: {parts.named([cell], curve.unit)}, {most})")
    if not sides:
        noun = wording.UNIT_NAMES[curve.unit]
        return f" No {noun} is shown to move the difference of the two tokens' log-probabilities."
    against = "" if curve.result.forced else ', against " the"'
    difference = f"log p(right) − log p({'rival' if curve.result.forced else 'tempting'})"
    return f" The difference {difference}{against} {', and '.join(sides)}; p < .05, corrected."


def _changes(cell: Cell) -> bool:
    return cell.drop.p_corrected is not None and cell.drop.p_corrected < wording.ALPHA


def _listed(cells: Sequence[Cell], curve: Curve) -> str:
    """The parts by falling drop; of many the first, and how many more there are."""
    ordered = sorted(cells, key=lambda cell: -(cell.drop.value or 0.0))
    if len(ordered) <= MOST:
        return parts.named(ordered, curve.unit)
    return f"{parts.named(ordered[:MOST], curve.unit)} and {len(ordered) - MOST} more"


def frame(summary: AblationSummary) -> pd.DataFrame:
    """One row per model, task, unit, factor, block and part: what `parts.csv` holds.

    Accuracies, drops and rates in 0…1; NaN where not known. `part` is the number of a head, neuron or
    expert, or the name of a matrix; `tests`: over how many of them p is corrected.
    """
    rows = []
    for curve in parts.maps(summary):
        for cell in curve.cells:
            accuracy, drop = cell.accuracy, cell.drop
            rows.append(
                {"model": curve.model, "task": curve.task, "unit": cell.unit, "factor": cell.factor}
                | {"layer": cell.layer, "part": cell.part, "items": cell.items}
                | {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high}
                | {"drop": drop.value, "drop_low": drop.low, "drop_high": drop.high}
                | {"p": drop.p, "p_corrected": drop.p_corrected, "p_critical_corrected": cell.p_critical_corrected}
                | {"critical": math.nan if cell.critical is None else cell.critical}
                | {"p_spared_corrected": cell.p_spared_corrected}
                | {"spared": math.nan if cell.spared is None else cell.spared}
                | {"decided": cell.decided or math.nan, "truncated": cell.truncated, "unparsed": cell.unparsed}
                | {"baseline_accuracy": curve.baseline_of(cell).accuracy.value, "tests": parts.tests(curve)}
                | dict[str, Any](tables.margin_of(cell))
                | dict[str, Any](forced_report.columns(cell, curve.result.forced))
            )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, float))


def table(summary: AblationSummary) -> Table:
    """Every part: `parts.csv`."""
    rows = frame(summary)
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    models, edits = rows["model"].nunique() > 1, len(rows[["unit", "factor"]].drop_duplicates()) > 1
    tests = [
        Column("p_corrected", "p corrected", wording.p_value),
        Column("p_critical_corrected", "p critical", wording.p_value),
        Column("critical", "Critical", lambda critical: "●" if critical else "", number=False),
    ]
    units = list(dict.fromkeys(rows["unit"]))
    noun = wording.capital(wording.UNIT_NAMES[units[0]]) if len(units) == 1 else "Part"
    margin = Column("margin", "Margin lost, nats", row=_margin)
    word = Column("word_margin", "Margin lost against “the”, nats", row=partial(_margin, name="word_margin"))
    decided = [Column("items", "Items"), Column("decided", "Decided", str, number=False)]
    return Table(
        "parts",
        rows,
        (
            *([Column("model", "Model", number=False)] if models else []),
            Column("task", "Task", number=False),
            *([Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False)] if edits else []),
            *([Column("factor", "Factor", wording.factor_name)] if edits else []),
            Column("layer", "Block"),
            Column("part", noun, str, number=False),
            Column("accuracy", "Accuracy", row=lambda row: _number(row, "accuracy", "low", "high")),
            Column("drop", "Drop", row=lambda row: _number(row, "drop", "drop_low", "drop_high")),
            *(
                [Column("forced_accuracy", "Forced", row=forced_report.shown)]
                if rows["forced_accuracy"].notna().any()
                else []
            ),
            *([margin] if rows["margin"].notna().any() else []),
            *([word] if rows["word_margin"].notna().any() else []),
            *(decided if summary.stopped else tests),
        ),
        title=f"Every {noun.lower()}",
        caption=f"Accuracies in % and drops in points, with {level} intervals. The corrections are Holm's over all"
        " parts of one kind, of one model, task and factor.",
        mark=lambda row: bool(row["critical"]) or row["decided"] == "exceeds",
        marked=f"only what {wording.call(True)}" if summary.stopped else "critical only",
    )


def _margin(row: Mapping[str, Any], name: str = "margin") -> str:
    if pd.isna(row[name]):
        return wording.DASH
    interval = wording.plain_interval(row[f"{name}_low"], row[f"{name}_high"], 3)
    return f"{wording.figures(row[name], 3)} {interval}".replace("-", wording.MINUS)


def _number(row: Mapping[str, Any], key: str, low: str, high: str) -> str:
    return f"{wording.points(row[key])} {wording.interval(row[low], row[high])}".rstrip()


def section(summary: AblationSummary) -> Section | None:
    """A map per model, task, unit and factor, and the table; None of a study without inner units."""
    drawn = parts.maps(summary)
    if not drawn:
        return None
    full = full_drop(drawn)
    shown = [curve for curve in drawn if parts.drawable(curve.cells)]
    figures: list[Block] = [_figure(summary, curve, number, full) for number, curve in enumerate(shown, 1)]
    units: list[Unit] = list(dict.fromkeys(curve.unit for curve in drawn))
    noun = wording.UNIT_NAMES[units[0]] if len(units) == 1 else "part of a block"
    what = dict.fromkeys(WHAT[unit] for unit in units)
    stand_ins = dict.fromkeys(kind_of(curve.factor) for curve in drawn if kind_of(curve.factor))
    replaced = f" {stands_in(stand_ins)}" if any(isinstance(curve.factor, str) for curve in drawn) else ""
    text = (
        f"{'. '.join(what)}; p-values are corrected over all parts of one kind and one task, those too that have no"
        f" answers yet.{replaced}"
    )
    title = wording.capital(wording.plural(noun)) if len(units) == 1 else "Parts"
    return Section(title, f"How much each {noun} takes", (Prose((text,)), *figures, table(summary)))


def _figure(summary: AblationSummary, curve: Curve, number: int, full: float) -> Figure:
    several = len(summary.models) > 1
    title = f"{curve.model} · {curve.task}" if several else curve.task
    how = _how(curve.factor)
    n = wording.of_drawn(*curve.counts)
    unedited = wording.percent(curve.result.baseline.accuracy.value)
    caption = (
        f"Drop in accuracy, in points, with one {wording.UNIT_NAMES[curve.unit]} {how} at a time: a row per block."
        f" Orange: lost, blue: gained; full colour at {wording.points(full, 0)} points. Boxed:"
        f" {wording.call(curve.stopped)}. Dashed: not measured. The unedited model has {unedited} of {n} items right."
    )
    return Figure(f"parts-{number}", (Panel((drops(curve, full),), title),), caption)


def drops(curve: Curve, full: float) -> alt.LayerChart:
    """Drops in points, a row per block and a column per part; boxed: marked, dashed: not measured."""
    cells = {(cell.layer, cell.part): cell for cell in curve.cells}
    layers = sorted({layer for layer, _ in cells})
    numbers = parts.columns(curve.cells)
    rows = []
    for layer in layers:
        for number in numbers:
            row: dict[str, object] = {"x": number, "y": layer, "text": "", "marked": False}
            cell = cells.get((layer, number))
            if cell is None:
                rows.append(row | {"tip": "not measured"})
                continue
            tip = f"{curve.task} · {parts.named([cell], curve.unit)}\n{charts.numbers(curve, cell)}"
            text = wording.points(cell.drop.value, 0) if len(numbers) <= ROOMY else ""
            row |= {"value": cell.drop.value, "text": text, "tip": tip, "marked": cell.marked}
            rows.append(row | charts.named(curve, cell))
    return _map(rows, curve.unit, full)


def screens(summary: AblationSummary) -> list[Figure]:
    """What gold solutions lose under every part: a map per model and task with a screen of inner units."""
    figures: list[Figure] = []
    for model, result in summary.results:
        losses = result.screen.losses if result.screen else ()
        for unit, factor in dict.fromkeys((loss.unit, loss.factor) for loss in losses if loss.part is not None):
            own = [loss for loss in losses if (loss.unit, loss.factor) == (unit, factor)]
            if not parts.drawable(own):
                continue
            full = max(0.001, max((abs(loss.lost.value or 0.0) for loss in own), default=0.0))
            rows = [_lost(loss) for loss in own]
            caption = (
                f"{model}, {result.task}: nats of log-probability that a token of the gold solutions loses with one"
                f" {wording.UNIT_NAMES[unit]} {_how(factor)} at a time; full"
                f" colour at {full:.3g}."
            )
            figures.append(Figure(f"screen-{len(figures) + 1}", (Panel((_map(rows, unit, full),), ""),), caption))
    return figures


def _lost(loss: Loss) -> dict[str, object]:
    tip = f"{wording.place(loss.unit, loss.layer, loss.part)}: {screen_report.loss_text(loss)}, rank {loss.rank}"
    return {"x": loss.part, "y": loss.layer, "text": "", "marked": False, "value": loss.lost.value, "tip": tip}


def _map(rows: Sequence[Mapping[str, object]], unit: Unit, full: float) -> alt.LayerChart:
    """Cells with `x` (part), `y` (block) and what else a heat map takes, as a map of blocks × parts."""
    frame, across = pd.DataFrame(rows, columns=charts.HEAT), f"{wording.UNIT_NAMES[unit]} of the block"
    layers, names = sorted(set(frame["y"])), list(dict.fromkeys(frame["x"]))
    numbers = names if unit == "matrix" else range(1 + int(frame["x"].max()))
    return heatmap.heat(frame, across, "block", full=full, columns=numbers, rows=layers, height=18)


def ratios(text: TextResult, unit: Unit, factor: Factor) -> alt.LayerChart:
    """How many times the perplexity becomes, a row per block and a column per part; colour by its logarithm."""
    cells = text.of(unit, factor)
    rows = [_ratio(cell) for cell in cells]
    sizes = [abs(math.log(cell.ratio.value)) for cell in cells if cell.ratio.value]
    return _map(rows, unit, max([0.1, *sizes]))


def _ratio(cell: TextUnderEdit) -> dict[str, object]:
    value = cell.ratio.value
    tip = "not finite" if value is None else f"×{wording.figures(value, 3)}"
    row: dict[str, object] = {"x": cell.part, "y": cell.layer, "text": "", "marked": False}
    row |= {"tip": f"{wording.place(cell.unit, cell.layer, cell.part)}: {tip}"}
    return row | {"value": math.log(value) if value else None}


def terminal(summary: AblationSummary) -> list[TerminalTable]:
    """The terminal's tables: drops in points, a row per block and a column per part, `●` where critical; of more parts
    than there is room for, those with the largest drops.
    """
    tables = []
    for curve in parts.maps(summary):
        accuracy = curve.result.baseline.accuracy
        how = wording.edit_name(curve.unit, curve.factor)
        title = (
            f"{plain(curve.model)} · {plain(curve.task)} · {how} · drop in points of {wording.percent(accuracy.value)}"
            f" ({wording.counted(curve.items, 'item')})"
        )
        numbers = parts.columns(curve.cells)
        if len(numbers) > TERMINAL:
            tables.append(_largest(curve, title))
            continue
        cells = {(cell.layer, cell.part): cell for cell in curve.cells}
        shown = terminal_table(title, [("block", True), *((str(number), True) for number in numbers)])
        for layer in sorted({layer for layer, _ in cells}):
            shown.add_row(str(layer), *(_short(cells.get((layer, number))) for number in numbers))
        tables.append(shown)
    return tables


def _largest(curve: Curve, title: str) -> TerminalTable:
    shown = terminal_table(f"{title} · the largest", [(curve.unit, False), ("drop", True), ("p corrected", True)])
    for cell in sorted(curve.cells, key=lambda cell: -(cell.drop.value or 0.0))[:MOST]:
        shown.add_row(f"{cell.layer}.{cell.part}", _short(cell), wording.p_value(cell.drop.p_corrected))
    return shown


def _short(cell: Cell | None) -> Text:
    if cell is None:
        return Text("", style="dim")
    return Text(f"{wording.points(cell.drop.value, 0)}{'●' if cell.marked else ''}")


def offered(summary: AblationSummary) -> list[Offered]:
    """What the item browser offers of parts: the unedited model, then the parts by falling drop."""
    entries: list[Offered] = []
    for curve in parts.maps(summary):
        entries.append(Offered(curve.model, curve.task, str(BASELINE), "unedited"))
        how = _how(curve.factor)
        for cell in sorted(curve.cells, key=lambda cell: -(cell.drop.value or 0.0)):
            label = f"{parts.named([cell], curve.unit)} {how}, drop {wording.points(cell.drop.value)}"
            entries.append(Offered(curve.model, curve.task, cell.edit, label))
    return list(dict.fromkeys(entries))


def measured(summary: AblationSummary) -> list[tuple[str, str]]:
    """Every model and task of which inner units were measured."""
    return [(curve.model, curve.task) for curve in parts.maps(summary)]
