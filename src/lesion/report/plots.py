"""The plots that studies share: curves with their spread over a numbered axis, told apart by colour and mark.

A plot is an Altair chart over a data frame; what a study adds (a null, a threshold, marks) is one more layer of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

from lesion.report import theme
from lesion.report.axes import Axis
from lesion.report.blocks import Series

unvalidated: ContextDecorator = debug_mode(False)
"""Decorates what makes a chart: Altair checks no part of it against its schema, which takes as long as the rest."""


LINES = "split(datum.label, '\\n')"
"""Writes the label of a row of several lines."""


def x(axis: Axis, field: str = "x") -> alt.X:
    """The horizontal encoding of a field."""
    return alt.X(field=field, type="quantitative", scale=axis.scale, axis=axis.axis)


def y(axis: Axis, field: str = "y") -> alt.Y:
    """The upright encoding of a field."""
    return alt.Y(field=field, type="quantitative", scale=axis.scale, axis=axis.axis)


def colour(series: Sequence[str], numbers: Sequence[int] | None = None) -> alt.Color:
    """The colour of each series by its place, or by the number given for it."""
    scale = alt.Scale(domain=list(series), range=[theme.tone(index) for index in numbers or range(len(series))])
    return alt.Color(field="series", type="nominal", title=None, scale=scale, sort=None, **_key(series))


def shape(series: Sequence[str], numbers: Sequence[int] | None = None) -> alt.Shape:
    """The mark of each series by its place, or by the number given for it."""
    marks = [theme.SHAPES[index % len(theme.SHAPES)] for index in numbers or range(len(series))]
    scale = alt.Scale(domain=list(series), range=marks)
    return alt.Shape(field="series", type="nominal", title=None, scale=scale, sort=None, **_key(series))


def _key(series: Sequence[str]) -> dict[str, None]:
    """A single series without a name has no key: it would be a mark without words."""
    return {"legend": None} if list(series) == [""] else {}


@unvalidated
def curves(
    frame: pd.DataFrame,
    across: Axis,
    upright: Axis,
    series: Sequence[str],
    *,
    numbers: Sequence[int] | None = None,
    guide: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """A curve for every series, with its spread.

    Args:
        frame: columns series, x, y, low, high, and `tip` where there is no guide; a row without y breaks the curve.
        across, upright: the axes.
        series: in the order of their colours.
        numbers: of their colours, where these are not 0, 1, 2, …
        guide: columns x and tip: what pointing at a place of the horizontal axis shows of all series.
    """
    own = frame.assign(low=frame.get("low"), high=frame.get("high"))
    base = alt.Chart().encode(x=x(across), color=colour(series, numbers))
    layers: list[alt.Chart | alt.LayerChart] = []
    ends = {"y": y(upright, "low"), "y2": alt.Y2(field="high")}
    if own["low"].notna().any():
        band = base.mark_area(opacity=0.16, line=False, invalid="break-paths-show-path-domains")
        layers.append(band.encode(**ends))
    layers.append(base.mark_line(invalid="break-paths-show-path-domains").encode(y=y(upright)))
    point = base.transform_filter("isValid(datum.y)").mark_point()
    point = point.encode(y=y(upright), shape=shape(series, numbers))
    layers.append(point.encode(tooltip=tip()) if guide is None and "tip" in own else point)
    if guide is not None:
        layers.append(guides(guide, across))
    return alt.layer(*layers, data=own)


@unvalidated
def guides(frame: pd.DataFrame, across: Axis) -> alt.LayerChart:
    """Upright lines that show where the pointer is, and tell `tip`; columns x and tip, one row per place."""
    ordered = frame.sort_values("x", ignore_index=True)
    places = [float(place) for place in ordered["x"]]
    # Each place answers for what is nearer to it than to the others. (Vega-Lite's own `nearest` loses the tip.)
    middles = [(former + later) / 2 for former, later in pairwise(places)]
    first = min([*places[:1], *([across.low] if across.low is not None else [])], default=0.0)
    last = max([*places[-1:], *([across.high] if across.high is not None else [])], default=0.0)
    nearby = ordered.assign(begin=[first, *middles][: len(places)], end=[*middles, last][: len(places)])
    near = alt.selection_point(on="pointerover", fields=["x"], empty=False, clear="pointerout")
    shown = alt.OpacityValue(0, condition=alt.when(near).then(alt.value(0.7)).to_dict()["condition"])
    lines = alt.Chart(nearby).mark_rule(strokeWidth=1).encode(x=x(across), opacity=shown)
    areas = alt.Chart(nearby).mark_rect(opacity=0)
    areas = areas.encode(x=x(across, "begin"), x2=alt.X2(field="end"), tooltip=tip()).add_params(near)
    return alt.layer(lines, areas)


@unvalidated
def legend(series: Sequence[Series], width: int) -> alt.LayerChart:
    """The legend of a figure as a chart of its own, for a file, in rows of at most `width` pixels."""
    rows, x, row = [], 0.0, 0
    for entry in series:
        room = 40 + 6.4 * len(entry.name)
        if x and x + room > width:
            x, row = 0.0, row + 1
        rows.append(
            {"name": entry.name, "x": x, "y": row, "end": x + 18, "middle": x + 9, "text": x + 24}
            | {"colour": entry.colour or theme.tone(entry.index)}
            | {"shape": theme.SHAPES[entry.index % len(theme.SHAPES)]}
            | {"opacity": entry.area, "area": entry.area > 0, "line": entry.dashed}
            | {"mark": not entry.area and not entry.dashed}
        )
        x += room
    frame = pd.DataFrame(rows)

    def across(field: str) -> alt.X:
        return alt.X(field=field, type="quantitative", axis=None, scale=alt.Scale(domain=[0, width], nice=False))

    def own(channel: Any, field: str) -> Any:
        return channel(field=field, type="nominal", scale=None, legend=None)

    base = alt.Chart(frame).encode(
        y=alt.Y(field="y", type="quantitative", axis=None, scale=alt.Scale(domain=[-0.5, row + 0.5], reverse=True)),
        color=own(alt.Color, "colour"),
    )
    end = alt.X2(field="end")
    return alt.layer(
        base.transform_filter("datum.area").mark_bar(height=9).encode(
            x=across("x"), x2=end, opacity=own(alt.Opacity, "opacity")
        ),
        base.transform_filter("datum.line").mark_rule(strokeDash=[3, 4], strokeWidth=1.6).encode(
            x=across("x"), x2=end
        ),
        base.transform_filter("datum.mark").mark_point(size=50).encode(
            x=across("middle"), shape=own(alt.Shape, "shape")
        ),
        base.mark_text(align="left", color=theme.INK).encode(
            x=across("text"), text=alt.Text(field="name", type="nominal"), color=alt.ColorValue(theme.INK)
        ),
    ).properties(width=width, height=20 * (row + 1))  # fmt: skip


def either(channel: Any, condition: str, value: object, otherwise: object) -> Any:
    """A channel with one value where a condition on the datum holds, and another where not.

    Altair makes the same of `alt.condition(...)`, and goes through its whole schema each time to find out the channel.

    Args:
        channel: such as `alt.OpacityValue`.
        condition: an expression of Vega.
        value: where it holds.
        otherwise: where not.
    """
    return channel(otherwise, condition={"test": condition, "value": value})


def tip() -> alt.Tooltip:
    """What pointing at a mark shows: the field `tip`."""
    return alt.Tooltip(field="tip", type="nominal", title=" ")


@unvalidated
def points(frame: pd.DataFrame, across: Axis, upright: Axis, series: Sequence[str]) -> alt.LayerChart:
    """A mark at every place, with a bar from `low` to `high`; columns series, x, y, low and high."""
    base = alt.Chart(frame).encode(x=x(across), color=colour(series))
    bars = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.55, strokeWidth=1.2)
    return alt.layer(
        bars.encode(y=y(upright, "low"), y2=alt.Y2(field="high")),
        base.mark_point().encode(y=y(upright), shape=shape(series)),
    )


def level(height: float, upright: Axis, *, colour: str = theme.SOFT, dash: tuple[float, float] = (2, 4)) -> alt.Chart:
    """A dashed line across the plot at a height of reference."""
    rule = alt.Chart(pd.DataFrame([{"y": height}])).mark_rule(color=colour, strokeDash=list(dash), strokeWidth=1.4)
    return rule.encode(y=y(upright))


@unvalidated
def forest(frame: pd.DataFrame, across: Axis, *, repeats: pd.DataFrame | None = None) -> alt.LayerChart:
    """Estimates with their intervals, each in a row of its own, over an axis with a line at 0.

    Args:
        frame: columns y (the name of the row), x, low, high, colour (of `theme`) and tip.
        across: the horizontal axis.
        repeats: columns y, x and colour: the single runs that an estimate is the mean of, drawn small beneath it.
    """
    names = list(dict.fromkeys(frame["y"]))
    row = alt.Y(
        field="y", type="nominal", sort=names, scale=alt.Scale(domain=names),
        axis=alt.Axis(
            title=None, minExtent=0, maxExtent=200, labelLimit=190, labelColor=theme.INK, labelExpr=LINES
        ),
    )  # fmt: skip
    own = alt.Color(field="colour", type="nominal", scale=None, legend=None)

    def at(field: str) -> alt.X:
        axis = alt.Axis(title=across.title, grid=True, tickCount=6, **({"format": across.form} if across.form else {}))
        return alt.X(field=field, type="quantitative", scale=across.scale, axis=axis)

    base = alt.Chart(frame).encode(y=row, color=own)
    layers = [
        alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(strokeWidth=1.2).encode(x=at("zero")),
        base.mark_rule(strokeWidth=1.8).encode(x=at("low"), x2=alt.X2(field="high")),
        *(base.mark_tick(size=11, thickness=1.8).encode(x=at(end)) for end in ("low", "high")),
    ]
    if repeats is not None and len(repeats):
        small = alt.Chart(repeats).mark_point(size=16, opacity=0.65, yOffset=10)
        layers.append(small.encode(x=at("x"), y=row, color=own))
    layers += [
        base.mark_point(size=70).encode(x=at("x")),
        alt.Chart(frame).mark_rect(opacity=0).encode(y=row, tooltip=tip()),
    ]
    return alt.layer(*layers).properties(height=36 * max(1, len(names)))
