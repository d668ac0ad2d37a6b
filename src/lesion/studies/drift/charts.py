"""The charts of a drift study: a measure by layer, a line per model; above it critical blocks, hinges and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import pandas as pd

from lesion.core.values import Mean
from lesion.report import plots, theme, wording
from lesion.report.blocks import Series
from lesion.report.plots import Axis
from lesion.studies.drift.evidence import null_reach
from lesion.studies.drift.result import Curve, Departure, DriftOfModel, Family, Shape

AXIS = "layer"
ROW = 16
"""Height of a model's row above the plot, in pixels."""
MARKS = {"hinge": "diamond", "step": "square"}

Chosen = Callable[[DriftOfModel], Curve | None]


def drawn(model: DriftOfModel) -> Curve | None:
    """The curve under the number of clusters that is drawn large."""
    return model.curve


def under(clusters: int) -> Chosen:
    """What gives a model's curve under another number of clusters, or None."""
    return lambda model: model.under(clusters)


def measure_chart(
    family: Family, measure: str, name: str, chosen: Chosen = drawn, *, null: bool = False, places: bool = False
) -> alt.LayerChart:
    """One measure by layer, a line per model with a band of ± one standard deviation over runs.

    Args:
        family: whose models are drawn.
        measure: `nmi`, `cosine`, `cka` or a labelling.
        name: of the upright axis.
        chosen: which curve of a model.
        null: whether the null is drawn: the mutual information that shuffled tokens give.
        places: whether each curve's hinge or step is marked on it.
    """
    of_models = [(label, curve) for label, model in _labelled(family) if (curve := chosen(model)) is not None]
    rows, most, least = [], 1.0, 0.0
    for label, curve in of_models:
        values = dict(curve.along(measure))
        for layer in curve.layers:
            value = values.get(layer.layer)
            std = value.std or 0.0 if value else 0.0
            mean = None if value is None else value.mean
            low, high = (None, None) if value is None else (value.mean - std, value.mean + std)
            rows.append({"series": label, "x": layer.layer, "y": mean, "low": low, "high": high})
            least = min(least, value.mean if value else 0.0)
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "low", "high"])
    across, upright = layer_axis(family), Axis(name, least, most)
    guide = _guide(of_models, measure, null=null)
    chart = plots.curves(frame, across, upright, family.labels, guide=guide, marks=True)
    more: list[alt.Chart] = []
    if null:
        more = _null([curve for _, curve in of_models], across, upright)
    if places:
        more += _places(family, across, upright)
    return alt.layer(*more, chart).resolve_scale(shape="independent") if more else chart


def layer_axis(family: Family) -> Axis:
    """The horizontal axis of a family's charts."""
    return Axis(AXIS, -0.35, family.blocks + 0.35, whole=True)


def places_chart(family: Family) -> alt.LayerChart:
    """A row per model: its critical blocks between the layers that they join, and its hinge or step with interval."""
    labels = family.labels
    across = layer_axis(family)
    tips = pd.DataFrame([{"series": label, "tip": _row_tip(label, model)} for label, model in _labelled(family)])
    blocks = pd.DataFrame(
        [
            {"series": label, "x": block + 0.04, "end": block + 0.96}
            for label, model in _labelled(family)
            for block in model.critical_blocks
        ],
        columns=["series", "x", "end"],
    )
    departures = pd.DataFrame(
        [
            {"series": label, "x": at.layer, "low": at.low, "high": at.high, "kind": at.kind, "y": 0.0}
            for label, model in _labelled(family)
            if (at := model.curve.departure) is not None
        ],
        columns=["series", "x", "low", "high", "kind", "y"],
    )
    row = alt.Y(
        field="series", type="nominal", sort=labels, scale=alt.Scale(domain=labels),
        axis=alt.Axis(title=" ", grid=True, labelLimit=56),  # as much room as the title beneath it has
    )  # fmt: skip

    def hidden_axis(field: str) -> alt.X:
        return alt.X(field=field, type="quantitative", scale=across.scale, axis=None)

    hidden = hidden_axis("x")
    base = (
        alt.Chart(tips).mark_bar(opacity=0).encode(y=row, tooltip=alt.Tooltip(field="tip", type="nominal", title=" "))
    )
    critical = (
        alt.Chart(blocks)
        .mark_bar(color=theme.SOFT, opacity=0.4, height=10)
        .encode(x=hidden, x2=alt.X2(field="end"), y=row)
    )
    reach = (
        alt.Chart(departures)
        .mark_rule(strokeWidth=3)
        .encode(x=hidden_axis("low"), x2=alt.X2(field="high"), y=row, color=plots.colour(labels))
    )
    mark = _departure_marks(departures, labels).encode(x=hidden, y=row)
    return alt.layer(critical, reach, mark, base).properties(height=ROW * len(labels))


def _departure_marks(frame: pd.DataFrame, labels: Sequence[str]) -> alt.Chart:
    kinds = alt.Shape(
        field="kind", type="nominal", legend=None, scale=alt.Scale(domain=list(MARKS), range=list(MARKS.values()))
    )
    return alt.Chart(frame).mark_point(size=70).encode(color=plots.colour(labels), shape=kinds)


def _labelled(family: Family) -> list[tuple[str, DriftOfModel]]:
    return list(zip(family.labels, family.models, strict=True))


def _row_tip(label: str, model: DriftOfModel) -> str:
    lines = [label]
    if model.critical_blocks:
        runs = wording.layer_runs(model.critical_blocks)
        lines.append(f"critical: {'blocks' if len(model.critical_blocks) > 1 else 'block'} {runs}")
    if model.curve.shape:
        lines.append(shape_text(model.curve.shape))
    return "\n".join(lines)


def _places(family: Family, across: Axis, upright: Axis) -> list[alt.Chart]:
    rows = [
        {"series": label, "kind": at.kind, "x": at.layer, "y": height}
        for label, model in _labelled(family)
        if (at := model.curve.departure) is not None and (height := height_at(model.curve, at.layer)) is not None
    ]
    if not rows:
        return []
    marks = _departure_marks(pd.DataFrame(rows), family.labels)
    return [marks.encode(x=plots.x(across), y=plots.y(upright))]


def height_at(curve: Curve, layer: float) -> float | None:
    """The height of a curve's NMI between two of its layers; None beyond its ends or beside a layer without one."""
    known = dict(curve.along("nmi"))
    below = int(layer)
    former, later = known.get(below), known.get(below + 1)
    if former is not None and layer == below:
        return former.mean
    if former is None or later is None:
        return None
    return former.mean + (layer - below) * (later.mean - former.mean)


def null_band(curves: Sequence[Curve]) -> pd.DataFrame:
    """x, low, y, high of the null over all curves.

    From a standard deviation between runs below the least to the highest 97.5 % quantile over shuffles, which one run
    has as well.
    """
    of_layer: dict[int, list[tuple[Mean, float]]] = {}
    for curve in curves:
        high = null_reach(curve)
        for layer, value in curve.along("null"):
            of_layer.setdefault(layer, []).append((value, high[layer]))
    return pd.DataFrame(
        [
            {
                "x": layer,
                "low": min(value.mean - (value.std or 0.0) for value, _ in values),
                "y": sum(value.mean for value, _ in values) / len(values),
                "high": max(high for _, high in values),
            }
            for layer, values in sorted(of_layer.items())
        ],
        columns=["x", "low", "y", "high"],
    )


def _null(curves: Sequence[Curve], across: Axis, upright: Axis) -> list[alt.Chart]:
    band = null_band(curves)
    if band.empty:
        return []
    base = alt.Chart(band).encode(x=plots.x(across))
    return [
        base.mark_area(color=theme.SOFT, opacity=0.14).encode(y=plots.y(upright, "low"), y2=alt.Y2(field="high")),
        base.mark_line(color=theme.SOFT, strokeWidth=1.4, strokeDash=[2, 4]).encode(y=plots.y(upright)),
    ]


def _guide(of_models: Sequence[tuple[str, Curve]], measure: str, *, null: bool) -> pd.DataFrame:
    """What pointing at a layer tells: the numbers of all models there."""
    layers = sorted({layer.layer for _, curve in of_models for layer in curve.layers})
    rows = []
    for number in layers:
        lines = [layer_name(number)]
        for label, curve in of_models:
            layer = next((layer for layer in curve.layers if layer.layer == number), None)
            value, floor = (layer.of(measure), layer.of("null") if null else None) if layer else (None, None)
            lines.append(f"{label}: {plain(value)}" + (f", null {plain(floor)}" if floor else ""))
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


def shape_text(shape: Shape) -> str:
    """`step over block 2 [2, 2], p .0003`, or why there is none."""
    p = "" if shape.line.p is None else f", p{wording.SPACE}{wording.p_value(shape.line.p)}"
    if shape.departure:
        own = "" if shape.departure.p is None else f", p{wording.SPACE}{wording.p_value(shape.departure.p)}"
        return f"{place_text(shape.departure)}{own}; straight line{p.removeprefix(',')}"
    return {
        "line": f"a straight line is not rejected{p}",
        "neither": f"no straight line{p}, but neither a hinge nor a step",
    }.get(shape.chosen, "shape not tested: one run")


def place_text(departure: Departure) -> str:
    """`hinge at layer 3.4 [3.1, 3.7]`, `step over block 2 [2, 4]`."""
    known = departure.low is not None and departure.high is not None
    if departure.kind == "step":
        ends = f" [{int(departure.low or 0)},{wording.SPACE}{int(departure.high or 0)}]" if known else ""
        return f"step over block {departure.block}{ends}"
    ends = f" [{departure.low:.1f},{wording.SPACE}{departure.high:.1f}]" if known else ""
    return f"hinge at layer {departure.layer:.1f}{ends}"


def layer_name(layer: int) -> str:
    """`layer 3, the output of block 2`."""
    return "layer 0, what enters block 0" if layer == 0 else f"layer {layer}, the output of block {layer - 1}"


def plain(value: Mean | None, digits: int = 3) -> str:
    """`0.512 ± 0.010`; a dash where it is not known."""
    if value is None:
        return wording.DASH
    text = f"{value.mean:.{digits}f}".replace("-", wording.MINUS)
    return text if value.std is None else f"{text} ± {value.std:.{digits}f}"
