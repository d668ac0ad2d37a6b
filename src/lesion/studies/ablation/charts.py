"""The charts of a layer study: accuracy by layer with the baseline, drops as heat maps, accuracy by group of items.

After Nepal et al. (2025, Figures 1 and 2). A click on a place opens its answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from lesion.report import heatmap, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve, View, full_drop
from lesion.studies.ablation.groups import Breakdown

ACCURACY = Axis("accuracy", -0.13, 1.03, form=".0%", ticks=(0.0, 0.25, 0.5, 0.75, 1.0))
"""Below 0 there is room for the numbers of marked layers."""
ROOMY = 16
"""Up to so many layers every marked one has room for its own number."""
LEGIBLE = 40
"""Up to so many layers the cells of a heat map have room for a number."""
PIECE = 0.42
"""Half the width of a piece of baseline, in layers."""
HEAT = ["x", "y", "value", "text", "tip", "marked", "model", "task", "edit"]
"""The columns of a heat map."""


@plots.unvalidated
def accuracy(view: View, task: str) -> alt.LayerChart:
    """Accuracy by layer, a curve per label with its intervals.

    Dashed is the unedited model; where evaluation stopped, a piece over every layer, on the items of that cell. Filled
    marks with a number are marked layers; `?` stands over those left open.
    """
    curves, labels = view.panels[task], view.labels
    first, last = (view.layers[0], view.layers[-1]) if view.layers else (0, 0)
    across = Axis(wording.axis_name(view.unit, view.factor), first - 0.5, last + 0.5, whole=True)
    points = pd.DataFrame(
        [_point(curve, layer) for curve in curves for layer in view.layers],
        columns=["series", "x", "y", "low", "high", "marked", "open", "alone"],
    )
    known = alt.Chart(points[points["y"].notna()]).encode(
        x=plots.x(across), y=plots.y(ACCURACY), color=plots.colour(labels)
    )
    marks = known.encode(shape=plots.shape(labels))
    layers = [
        *_baselines(curves, labels, across),
        plots.curves(points, across, ACCURACY, labels, marks=False),
        known.transform_filter("datum.alone").mark_rule(strokeWidth=3, opacity=0.35).encode(
            y=plots.y(ACCURACY, "low"), y2=alt.Y2(field="high")
        ),
        marks.transform_filter("!datum.marked").mark_point(filled=False, fill=theme.PAPER, strokeWidth=1.4),
        marks.transform_filter("datum.marked").mark_point(size=52),
        known.transform_filter("datum.open").mark_text(text="?", dy=-9, fontWeight="bold"),
        _numbers(curves, across, dense=len(view.layers) > ROOMY),
        plots.guides(_guide(view, curves), across),
    ]  # fmt: skip
    return alt.layer(*layers).resolve_scale(shape="independent")


def _point(curve: Curve, layer: int) -> dict[str, object]:
    point: dict[str, object] = {"series": curve.label, "x": layer}
    if (cell := curve.at(layer)) is None:
        return point
    accuracy = cell.accuracy
    alone = curve.at(layer - 1) is None and curve.at(layer + 1) is None
    point |= {"y": accuracy.value, "low": accuracy.low, "high": accuracy.high}
    return point | {"marked": cell.marked, "open": cell.decided == "open", "alone": alone}


def _baselines(curves: Sequence[Curve], labels: Sequence[str], across: Axis) -> list[alt.Chart]:
    layers: list[alt.Chart] = []

    def rules(rows: list[dict[str, object]]) -> alt.Chart:
        rule = alt.Chart(pd.DataFrame(rows)).mark_rule(strokeDash=[6, 4], strokeWidth=1.4)
        return rule.encode(y=plots.y(ACCURACY), color=plots.colour(labels))

    whole = [curve for curve in curves if not curve.stopped]
    if whole and len(curves) == 1:
        alone = whole[0].result.baseline.accuracy
        band = alt.Chart(pd.DataFrame([{"low": alone.low, "high": alone.high}]))
        band = band.mark_rect(color=theme.SOFT, opacity=0.1)
        layers.append(band.encode(y=plots.y(ACCURACY, "low"), y2=alt.Y2(field="high")))
    if whole:
        layers.append(rules([{"series": curve.label, "y": curve.result.baseline.accuracy.value} for curve in whole]))
    pieces: list[dict[str, object]] = [
        {"series": curve.label, "x": cell.layer - PIECE, "end": cell.layer + PIECE, "y": cell.baseline.accuracy.value}
        for curve in curves
        for cell in curve.cells
        if cell.baseline is not None
    ]
    if pieces:
        layers.append(rules(pieces).encode(x=plots.x(across), x2=alt.X2(field="end")))
    return layers


def _numbers(curves: Sequence[Curve], across: Axis, *, dense: bool) -> alt.Chart:
    """The numbers of marked layers under the lowest mark; where there are many layers, neighbours share one."""
    lowest: dict[int, float] = {}
    for cell in (cell for curve in curves for cell in curve.marked):
        lowest[cell.layer] = min(cell.accuracy.value or 0.0, lowest.get(cell.layer, 1.0))
    rows = [
        {
            "x": sum(group) / len(group),
            "y": min(lowest[layer] for layer in group),
            "text": wording.layer_runs(group).replace(", ", wording.DASH),
        }
        for group in grouped(sorted(lowest), 1 if dense else 0)
    ]
    frame = pd.DataFrame(rows, columns=["x", "y", "text"])
    text = alt.Text(field="text", type="nominal")
    base = alt.Chart(frame).mark_text(dy=13, fontWeight="bold")
    return base.encode(x=plots.x(across), y=plots.y(ACCURACY), text=text)


def grouped(layers: Sequence[int], distance: int) -> list[list[int]]:
    """Sorted layers in groups of neighbours at most `distance` apart: those that share one number."""
    groups: list[list[int]] = []
    for layer in layers:
        if groups and layer - groups[-1][-1] <= distance:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return groups


def _guide(view: View, curves: Sequence[Curve]) -> pd.DataFrame:
    """The numbers of all curves at a layer; a click opens the answers of the first."""
    rows = []
    for layer in view.layers:
        place = wording.place(view.unit, layer)
        lines = [f"{place} switched off" if view.factor == 0 else place]
        cells = [(curve, curve.at(layer)) for curve in curves]
        lines += [f"{curve.label}: {numbers(curve, cell) if cell else 'not measured yet'}" for curve, cell in cells]
        opened = next((named(curve, cell) for curve, cell in cells if cell), {})
        rows.append({"x": layer, "tip": "\n".join(lines), **opened})
    return pd.DataFrame(rows, columns=["x", "tip", "model", "task", "edit"])


def named(curve: Curve, cell: Cell) -> dict[str, str]:
    """Under which names the answers of a cell are opened."""
    return {"model": curve.model, "task": curve.task, "edit": cell.edit}


def numbers(curve: Curve, cell: Cell) -> str:
    """A cell in words: accuracy and drop with intervals, corrected p, items where it was stopped, whether marked."""
    accuracy, drop = cell.accuracy, cell.drop
    text = f"{wording.percent(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}"
    text += f", drop {wording.points(drop.value)} {wording.interval(drop.low, drop.high)}"
    if drop.p_corrected is not None:
        text += f", p {wording.p_value(drop.p_corrected)}"
    if cell.p_critical_corrected is not None:
        text += f", p critical {wording.p_value(cell.p_critical_corrected)}"
    if cell.decided is not None:
        text += f", {wording.item_count(cell.items, cell.decided, curve.drawn)}"
    said = cell.outcome or (wording.call(True) if cell.marked else "")
    return f"{text}, {said}" if said else text


def drops(view: View, curves: Sequence[Curve], full: float) -> alt.LayerChart:
    """Drops in points, a row per curve and a column per layer; boxed: marked, `?`: open, hatched: not measured yet."""
    several = len({curve.label for curve in curves}) > 1
    rows = []
    for curve in curves:
        for layer in view.layers:
            cell = curve.at(layer)
            row: dict[str, object] = {"x": layer, "y": curve.label if several else curve.task}
            if cell is None:
                rows.append(row | {"text": wording.DASH, "tip": "not measured yet", "marked": False})
                continue
            text = f"{wording.points(cell.drop.value, 0)}{'?' if cell.decided == 'open' else ''}"
            if curve.stopped:
                text += f"\nn{wording.SPACE}{cell.items:,}"
            text = text if len(view.layers) <= LEGIBLE else ""
            place = wording.place(curve.unit, layer)
            tip = f"{curve.label} · {curve.task} · {place}\n{numbers(curve, cell)}"
            row |= {"value": cell.drop.value, "text": text, "tip": tip, "marked": cell.marked}
            rows.append(row | named(curve, cell))
    frame, height = pd.DataFrame(rows, columns=HEAT), 40 if view.stopped else 28
    return heatmap.heat(frame, wording.axis_name(view.unit, view.factor), "", full=full, height=height)


def drop_panels(view: View) -> list[tuple[str, alt.LayerChart]]:
    """The heat maps of a view: one of all tasks where there is one curve per task, else one per task; with titles."""
    full = full_drop(view.curves)
    if len(view.labels) == 1:
        return [("", drops(view, view.curves, full))]
    return [(task, drops(view, curves, full)) for task, curves in view.panels.items()]


def by_group(breakdown: Breakdown) -> alt.LayerChart:
    """Accuracy per group of items, without an edit and under each."""
    curve = breakdown.curve
    rows = []
    for group, size in breakdown.groups.items():
        for cell in (None, *curve.cells):
            share = breakdown.shares.get((group, cell.layer if cell else None))
            row: dict[str, object] = {"x": str(cell.layer) if cell else "unedited", "y": f"{group} ({size})"}
            row |= {"marked": False}
            if share is None:
                rows.append(row | {"text": wording.DASH, "tip": "not measured yet"})
                continue
            low, high = (wording.points(end, 0) for end in (share.low, share.high))
            text = f"{wording.points(share.accuracy, 0)}\n{low}{wording.DASH}{high}"
            tip = f"{group} · {wording.place(curve.unit, cell.layer) if cell else 'unedited'}\n"
            tip += f"{share.right} of {share.n} right: {wording.percent(share.accuracy)}"
            tip += f" {wording.interval(share.low, share.high)}"
            rows.append(
                row | {"value": share.accuracy, "text": text, "tip": tip} | (named(curve, cell) if cell else {})
            )
    frame, axis = pd.DataFrame(rows, columns=HEAT), wording.axis_name(curve.unit, curve.factor)
    return heatmap.heat(frame, axis, "", full=1.25, colours=(theme.SHARE, theme.GAIN), height=40)


def legend(view: View, level: float) -> tuple[Series, ...]:
    """The series of a view, and what else is drawn."""
    several = len(view.labels) > 1 or view.factor is None
    series = [Series(label, index) for index, label in enumerate(view.labels)] if several else []
    colour = theme.SOFT if several else theme.tone(0)
    unedited, kind = ("unedited, same items", "confidence sequence") if view.stopped else ("unedited", "interval")
    return (
        *series,
        Series(unedited, colour=colour, dashed=True),
        Series(f"{wording.call(view.stopped)}, numbered", colour=colour),
        Series(f"{100 * level:g}{wording.SPACE}% {kind}", colour=colour, area=True),
    )
