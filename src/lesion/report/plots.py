"""The plots that marks are made of: axes, curves with their spread, maps, estimates beneath one another, legends.

A plot is an Altair chart over a data frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

from lesion.report import theme
from lesion.report.blocks import Series

FEW = 6
"""An axis of whole numbers that is no longer has a tick at each of them."""


@dataclass(frozen=True)
class Axis:
    """An axis: its title, the range of its numbers, and how they are written (a format of d3).

    Attributes:
        whole: whether only whole numbers have a tick.
        kind: `linear` or `log`.
    """

    title: str
    low: float | None = None
    high: float | None = None
    form: str = ""
    whole: bool = False
    kind: str = "linear"
    ticks: tuple[float, ...] = ()

    @property
    def scale(self) -> alt.Scale:
        """As Altair has it."""
        domain = [end for end in (self.low, self.high) if end is not None]
        limits = {"domain": domain} if len(domain) == 2 else {"domainMin": self.low, "domainMax": self.high}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        return alt.Scale(type=self.kind, nice=False, **known, **({} if self.kind == "log" else {"zero": False}))

    @property
    def axis(self) -> alt.Axis:
        """As Altair has it."""
        # Vega leaves out every other tick where there are more than it counts.
        more: dict[str, object] = {"values": list(self.ticks), "tickCount": len(self.ticks)} if self.ticks else {}
        if self.whole:
            more |= {"tickMinStep": 1, "format": "d"}
            low, high = self.low, self.high
            if not self.ticks and low is not None and high is not None and high - low <= FEW:
                more |= {"values": list(range(math.ceil(low), math.floor(high) + 1))}
        if self.form:
            more |= {"format": self.form}
        return alt.Axis(title=self.title, **more)


def ratio_axis(title: str, values: Iterable[float | int | None], *, whole: bool = False) -> Axis:
    """A logarithmic axis that holds all values above 0, with at most seven round ticks.

    Args:
        values: those that are not above 0 are left out.
        whole: whether only whole numbers have a tick.
    """
    known = sorted({float(value) for value in values if value is not None and value > 0})
    low, high = (known[0], known[-1]) if known else (1.0, 10.0)
    room = max(1.08 if high > low else 1.6, (high / low) ** 0.06)
    ticks = [tick for tick in _round(low / room, high * room) if not whole or tick % 1 == 0]
    return Axis(title, low / room, high * room, form=",.9~g", kind="log", ticks=tuple(ticks))


def _round(low: float, high: float) -> list[float]:
    """Round numbers between two others, at most seven."""
    for marks in ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [mark * 10.0**power for power in powers for mark in marks if low <= mark * 10.0**power <= high]
        if 2 <= len(ticks) <= 7:
            return ticks
    return [low, math.sqrt(low * high), high] if len(ticks) < 2 else ticks[:: -(-len(ticks) // 7)]


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


class Layers(alt.LayerChart):
    """Charts over one another. Altair's own copies every part of each several times whenever it is touched."""

    def __init__(self, data: Any = alt.Undefined, layer: Iterable[alt.TopLevelMixin] = (), **more: Any) -> None:
        super(alt.LayerChart, self).__init__(data=data, layer=list(layer), **more)


def layered(*charts: alt.TopLevelMixin, **more: Any) -> Layers:
    """Charts over one another, the last on top; what follows the pointer in one of them belongs to all."""
    inner = [chart for chart in charts if isinstance(chart, alt.LayerChart) and chart.params is not alt.Undefined]
    params = [param for chart in inner for param in chart.params]
    for chart in inner:
        chart.params = alt.Undefined
    return Layers(layer=charts, **({"params": params} if params else {}), **more)


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
        numbers: of their colours, where these are not 0, 1, 2, …
        guide: columns x and tip: what pointing at a place of the horizontal axis shows of all series.
    """
    with_bands = frame.assign(low=frame.get("low"), high=frame.get("high"))
    base = alt.Chart().encode(x=x(across), color=colour(series, numbers))
    layers: list[alt.Chart | alt.LayerChart] = []
    ends = {"y": y(upright, "low"), "y2": alt.Y2(field="high")}
    if with_bands["low"].notna().any():
        band = base.mark_area(opacity=0.16, line=False, invalid="break-paths-show-path-domains")
        layers.append(band.encode(**ends))
    layers.append(base.mark_line(invalid="break-paths-show-path-domains").encode(y=y(upright)))
    point = base.transform_filter("isValid(datum.y)").mark_point()
    point = point.encode(y=y(upright), shape=shape(series, numbers))
    layers.append(point.encode(tooltip=tip()) if guide is None and "tip" in with_bands else point)
    if guide is not None:
        layers.append(guides(guide, across))
    return layered(*layers, data=with_bands)


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
    both = alt.layer(lines, areas)
    return Layers(data=both.data, layer=both.layer, params=both.params)


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
            | {"opacity": entry.area, "area": entry.area > 0, "line": bool(entry.dash)}
            | {"mark": not entry.area and not entry.dash}
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
    return layered(
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
        width=width,
        height=20 * (row + 1),
    )  # fmt: skip


def either(channel: Any, condition: str, value: object, otherwise: object) -> Any:
    """A channel with one value where a condition on the datum holds, and another where not.

    Altair makes the same of `alt.condition(...)`, and goes through its whole schema each time to find out the channel.
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
    return layered(
        bars.encode(y=y(upright, "low"), y2=alt.Y2(field="high")),
        base.mark_point().encode(y=y(upright), shape=shape(series)),
    )


DASH = (2.0, 4.0)
"""Of a line of reference, where there is one kind."""


def level(height: float, upright: Axis, *, dash: tuple[float, float] = DASH) -> alt.Chart:
    """A dashed line across the plot at a height of reference."""
    rule = alt.Chart(pd.DataFrame([{"y": height}])).mark_rule(color=theme.SOFT, strokeDash=list(dash), strokeWidth=1.4)
    return rule.encode(y=y(upright))


@unvalidated
def forest(frame: pd.DataFrame, across: Axis, *, repeats: pd.DataFrame | None = None) -> alt.LayerChart:
    """Estimates with their intervals, each in a row of its own, over an axis with a line at 0.

    Args:
        frame: columns y (the name of the row), x, low, high, colour (of `theme`) and tip.
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
    return layered(*layers, height=36 * max(1, len(names)))


MOST_WIDE = 1400
"""A chart asks for at most so much room, in pixels."""
LETTER = 0.55 * theme.TEXT
"""The width of a letter or digit, about."""
FITS = f"length(datum.text) < 2 || (width || {theme.WIDTH}) >= datum.room"
"""Whether a text is shown in its cell."""


@unvalidated
def heat(
    frame: pd.DataFrame,
    across: str,
    upright: str,
    *,
    full: float,
    columns: Sequence[Any] | None = None,
    colours: tuple[str, str] = (theme.LOSS, theme.GAIN),
    height: int = 28,
) -> alt.LayerChart:
    """A cell for every pair of a column and a row, the stronger in colour the further its value is from 0.

    Args:
        frame: columns x, y, value (None: a dashed outline), text (in the cell, where the cell is wide enough for it;
            perhaps of several lines), tip, marked (boxed); further columns go along, so that a click can open what a
            cell stands for (`edit`, `model`, `task`).
        full: the value, without its sign, at which the colour is full.
        columns: in order; by default as they come.
        colours: of values above and below 0.
        height: of a row, in pixels.
    """
    columns = list(dict.fromkeys(frame["x"])) if columns is None else list(columns)
    rows = list(dict.fromkeys(frame["y"]))
    values = pd.to_numeric(frame["value"])
    widths = [_width(str(text), len(columns)) for text in frame["text"]]
    widest = min(MOST_WIDE, max(widths, default=0))
    label = max((len(line) for row in rows for line in str(row).split("\n")), default=0)
    least = min(MOST_WIDE, widest + round(min(170, LETTER * label)) + 18)
    cells = frame.assign(size=values.abs(), ink=[_ink(value / full, colours) for value in values], room=widths)
    base = alt.Chart()
    known = base.transform_filter("isValid(datum.value)")
    scale = alt.Scale(domain=[0, full], range=[0, 1], clamp=True)
    opacity = alt.Opacity(field="size", type="quantitative", legend=None, scale=scale)
    sign = either(alt.FillValue, "datum.value < 0", colours[1], colours[0])
    unknown = base.transform_filter("!isValid(datum.value)")
    layers = [
        unknown.mark_rect(fill=theme.PAPER, stroke=theme.LINE, strokeDash=[3, 2]),
        known.mark_rect(fill=theme.SHADE),
        known.mark_rect().encode(fill=sign, opacity=opacity),
        base.mark_text(
            lineBreak="\n",
            lineHeight=theme.TEXT + 2,
            dy=alt.ExprRef(f"-{(theme.TEXT + 2) / 2:g} * (length(split(datum.text, '\\n')) - 1)"),
        ).encode(
            text=alt.Text(field="text", type="nominal"),
            color=alt.Color(field="ink", type="nominal", scale=None, legend=None),
            opacity=either(alt.OpacityValue, FITS, 1, 0),
        ),
        base.transform_filter("datum.marked").mark_rect(fill=None, stroke=theme.INK, strokeWidth=2),
    ]
    # What the layers share stands above them once.
    # In a file, and before a script runs, a map is as wide as its texts need; on the page it is moved sideways.
    wide = {"width": widest} if widest > theme.WIDTH else {}
    return layered(*layers, data=cells, height=height * max(1, len(rows)), usermeta={"least": least}, **wide).encode(
        x=alt.X(
            field="x", type="ordinal", sort=None, scale=alt.Scale(domain=columns, padding=0.06),
            axis=alt.Axis(title=across, labelAngle=0, domain=False),
        ),
        y=alt.Y(
            field="y", type="ordinal", sort=None, scale=alt.Scale(domain=rows, padding=0.06),
            axis=alt.Axis(title=upright or None, maxExtent=180, labelLimit=170, domain=False, labelExpr=LINES),
        ),
        tooltip=tip(),
    )  # fmt: skip


def _ink(strength: float, colours: tuple[str, str]) -> str:
    """The colour of the text in a cell whose colour has this share of its full strength; NaN: a cell without one."""
    if math.isnan(strength):
        return theme.INK
    return theme.text_on(colours[strength < 0], round(min(1.0, abs(strength)), 2))


def _width(text: str, columns: int) -> int:
    """How wide a map of so many columns must be for a text to fit its cell."""
    return round(columns * (LETTER * max(map(len, text.split("\n"))) + 1))
