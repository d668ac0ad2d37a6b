"""The charts of a drift study: a measure by layer, a line per model; above it critical blocks, hinges and steps."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from lesion.report import plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.report.forms import decimals
from lesion.report.values import Mean
from lesion.studies.drift.evidence import null_reach
from lesion.studies.drift.result import Curve, Departure, DriftOfModel, Family, Shape

AXIS = "layer"
ROW = 16
"""Height of a model's row above the plot, in pixels."""
MARKS = {"hinge": "diamond", "step": "square"}


def measure_chart(
    family: Family, measure: str, name: str, clusters: int | None = None, *, null: bool = False, places: bool = False
) -> alt.LayerChart:
    """One measure by layer, a line per model with a band of ± one standard deviation over runs.

    Args:
        family: whose models are drawn.
        measure: `nmi`, `cosine`, `cka` or a labelling.
        name: of the vertical axis.
        clusters: of the curves; None for each model's drawn one.
        null: whether the NMI of shuffled tokens is drawn too.
        places: whether each curve's hinge or step is marked on it.
    """
    curves = {
        label: curve
        for label, model in _labelled(family)
        if (curve := model.curve if clusters is None else model.under(clusters)) is not None
    }
    rows = []
    for label, curve in curves.items():
        for layer in curve.layers:
            value = layer.of(measure)
            low, high = _band(value) if value else (None, None)
            rows.append({"series": label, "x": layer.layer, "y": value and value.mean, "low": low, "high": high})
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "low", "high"])
    across, upright = layer_axis(family), Axis(name, min(0.0, frame["y"].astype(float).min()), 1.0)
    guide = _guide(curves, measure, null=null)
    chart = plots.curves(frame, across, upright, family.labels, guide=guide, marks=True)
    more = _null(list(curves.values()), across, upright) if null else []
    more += _places(family, across, upright) if places else []
    return alt.layer(*more, chart).resolve_scale(shape="independent") if more else chart


def _band(value: Mean) -> tuple[float, float]:
    std = value.std or 0.0
    return value.mean - std, value.mean + std


def _labelled(family: Family) -> list[tuple[str, DriftOfModel]]:
    return list(zip(family.labels, family.models, strict=True))


def layer_axis(family: Family) -> Axis:
    """The horizontal axis of a family's charts."""
    return Axis(AXIS, -0.35, family.blocks + 0.35, whole=True)


def places_chart(family: Family) -> alt.LayerChart:
    """A row per model: its critical blocks between the layers that they join, and its hinge or step with interval."""
    labels = family.labels
    tips = pd.DataFrame([{"series": label, "tip": _row_tip(label, model)} for label, model in _labelled(family)])
    blocks = pd.DataFrame(
        [(label, block + 0.04, block + 0.96) for label, model in _labelled(family) for block in model.critical_blocks],
        columns=["series", "x", "end"],
    )
    departures = pd.DataFrame(
        [
            (label, at.layer, at.low, at.high, at.kind, 0.0)
            for label, model in _labelled(family)
            if (at := model.curve.departure) is not None
        ],
        columns=["series", "x", "low", "high", "kind", "y"],
    )
    row = alt.Y(
        field="series", type="nominal", sort=labels, scale=alt.Scale(domain=labels),
        axis=alt.Axis(title=" ", grid=True, labelLimit=56),  # as much room as the title beneath it has
    )  # fmt: skip

    def x(field: str) -> alt.X:
        return alt.X(field=field, type="quantitative", scale=layer_axis(family).scale, axis=None)

    critical = alt.Chart(blocks).mark_bar(color=theme.SOFT, opacity=0.4, height=10)
    reach = alt.Chart(departures).mark_rule(strokeWidth=3)
    base = alt.Chart(tips).mark_bar(opacity=0)
    return alt.layer(
        critical.encode(x=x("x"), x2=alt.X2(field="end"), y=row),
        reach.encode(x=x("low"), x2=alt.X2(field="high"), y=row, color=plots.colour(labels)),
        _departure_marks(departures, labels).encode(x=x("x"), y=row),
        base.encode(y=row, tooltip=alt.Tooltip(field="tip", type="nominal", title=" ")),
    ).properties(height=ROW * len(labels))


def _departure_marks(frame: pd.DataFrame, labels: Sequence[str]) -> alt.Chart:
    scale = alt.Scale(domain=list(MARKS), range=list(MARKS.values()))
    kinds = alt.Shape(field="kind", type="nominal", legend=None, scale=scale)
    return alt.Chart(frame).mark_point(size=70).encode(color=plots.colour(labels), shape=kinds)


def _row_tip(label: str, model: DriftOfModel) -> str:
    lines = [label]
    if model.critical_blocks:
        noun = "blocks" if len(model.critical_blocks) > 1 else "block"
        lines.append(f"critical: {noun} {wording.layer_runs(model.critical_blocks)}")
    if model.curve.shape:
        lines.append(shape_text(model.curve.shape))
    return "\n".join(lines)


def _places(family: Family, across: Axis, upright: Axis) -> list[alt.Chart]:
    rows = []
    for label, model in _labelled(family):
        at, known = model.curve.departure, dict(model.curve.along("nmi"))
        if at is not None and known:
            height = np.interp(at.layer, list(known), [value.mean for value in known.values()])
            rows.append({"series": label, "kind": at.kind, "x": at.layer, "y": float(height)})
    marks = _departure_marks(pd.DataFrame(rows), family.labels)
    return [marks.encode(x=plots.x(across), y=plots.y(upright))] if rows else []


def null_band(curves: Sequence[Curve]) -> pd.DataFrame:
    """x, low, y, high of the null over all curves, from the least less a standard deviation to what it reaches."""
    rows = [
        (layer, _band(value)[0], value.mean, null_reach(curve)[layer])
        for curve in curves
        for layer, value in curve.along("null")
    ]
    frame = pd.DataFrame(rows, columns=["x", "low", "y", "high"])
    return frame.groupby("x", as_index=False).agg({"low": "min", "y": "mean", "high": "max"})


def _null(curves: Sequence[Curve], across: Axis, upright: Axis) -> list[alt.Chart]:
    band = null_band(curves)
    base = alt.Chart(band).encode(x=plots.x(across))
    area = base.mark_area(color=theme.SOFT, opacity=0.14)
    line = base.mark_line(color=theme.SOFT, strokeWidth=1.4, strokeDash=[2, 4])
    drawn = [area.encode(y=plots.y(upright, "low"), y2=alt.Y2(field="high")), line.encode(y=plots.y(upright))]
    return [] if band.empty else drawn


def _guide(curves: dict[str, Curve], measure: str, *, null: bool) -> pd.DataFrame:
    """The numbers of all models at a layer, shown on pointing at it."""
    rows = []
    for number in sorted({layer.layer for curve in curves.values() for layer in curve.layers}):
        lines = ["layer 0, what enters block 0" if number == 0 else f"layer {number}, the output of block {number - 1}"]
        for label, curve in curves.items():
            layer = next((layer for layer in curve.layers if layer.layer == number), None)
            floor = layer.of("null") if layer and null else None
            lines.append(
                f"{label}: {plain(layer.of(measure) if layer else None)}" + (f", null {plain(floor)}" if floor else "")
            )
        rows.append({"x": number, "tip": "\n".join(lines)})
    return pd.DataFrame(rows, columns=["x", "tip"])


def legend(family: Family, *, places: bool = False) -> tuple[Series, ...]:
    """The series of a family's charts, and with `places` what else is drawn."""
    series = [Series(name, index) for index, name in enumerate(family.labels)]
    if places:
        kinds = sorted({at.kind for model in family.models if (at := model.curve.departure)})
        series.append(Series("null: tokens shuffled", colour=theme.SOFT, dashed=True, area=True))
        series += [Series(f"{kind}, its interval", index=list(theme.SHAPES).index(MARKS[kind]), colour=theme.SOFT)
                  for kind in kinds]  # fmt: skip
        if any(model.critical_blocks for model in family.models):
            series.append(Series("critical block", colour=theme.SOFT, area=True))
    return tuple(series)


def p_text(p: float | None) -> str:
    """`p .013`."""
    return f"p{wording.SPACE}{wording.p_value(p)}"


def shape_text(shape: Shape) -> str:
    """`step over block 2 [2, 2], p .0003`, or why there is none."""
    p = "" if shape.line.p is None else f", {p_text(shape.line.p)}"
    at = shape.departure
    if at:
        own = "" if at.p is None else f", {p_text(at.p)}"
        return f"{place_text(at)}{own}; straight line{p.removeprefix(',')}"
    return {
        "line": f"a straight line is not rejected{p}",
        "neither": f"no straight line{p}, but neither a hinge nor a step",
    }.get(shape.chosen, "shape not tested: one run")


def place_text(departure: Departure) -> str:
    """`hinge at layer 3.4 [3.1, 3.7]`, `step over block 2 [2, 4]`."""

    def place(layer: float) -> str:
        return str(int(layer)) if departure.kind == "step" else f"{layer:.1f}"

    text = f"{'step over block' if departure.kind == 'step' else 'hinge at layer'} {place(departure.layer)}"
    if departure.low is None or departure.high is None:
        return text
    return f"{text} [{place(departure.low)},{wording.SPACE}{place(departure.high)}]"


def plain(value: Mean | None, digits: int = 3, joint: str = " ± ") -> str:
    """`0.512 ± 0.010`; a dash where it is not known."""
    text = decimals(digits)(value and value.mean)
    return text if value is None or value.std is None else f"{text}{joint}{value.std:.{digits}f}"
