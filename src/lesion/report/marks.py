"""Marks: how rows are drawn. Five are enough for every study.

- `Profile`: a bar per block (or place) with its interval, and lines of reference across it (baseline, chance).
- `Map`: a cell for every pair of a column and a row.
- `Curves`: a line per series with its band.
- `Points`: a mark per line of the table, over two numbers.
- `Bars`: estimates with their intervals under one another, over an axis with a line at 0.

A mark names fields of the rows; titles, units and numbers on pointing are those that the rows declare. `panel` names a
field (or several) whose values have a panel each.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import altair as alt
import pandas as pd
from typing_extensions import override

from lesion.report import plots, theme, wording
from lesion.report.blocks import Figure, Panel, Series
from lesion.report.names import NO_NAMES, Names
from lesion.report.plots import Axis, ratio_axis
from lesion.report.rows import (
    Record,
    Shown,
    columns_of,
    named_in_short,
    p_text,
    parts_of,
    shown_of,
    telling_labels,
    unit_of,
    value_of,
)
from lesion.report.values import Estimate, Form, Mean, unknown

OPENED = ("model", "task", "edit")
"""Fields by which a click on a mark opens the answers behind it."""
FAINT = 0.1
"""Up to this share of full colour a cell is as good as white."""
LEGIBLE = 32
"""Up to so many columns the cells of a map have room for a number."""
NARROW = 10
"""A map of more columns needs more than a third of the page."""
LINE = 26
"""Characters of a line of a row's name."""
HUES = {"loss": (theme.LOSS, theme.GAIN), "gain": (theme.GAIN, theme.LOSS), "share": (theme.SHARE, theme.LOSS)}
"""Colours of numbers above and below 0 in a map."""
HALF = 0.42
"""Half the width of a bar, in places."""
DENSE = 4
"""From so many rows on, bars stand close."""
LOW = 84
"""The height of one of many charts beneath one another, in pixels."""
HEADING = 46
"""Characters of a line above such a chart."""


@dataclass(frozen=True)
class Mark:
    """What all marks have.

    Attributes:
        panel: fields whose values have a panel each.
        caption: what a reader of the figure must know beyond its axes; one or two sentences.
        name: of the files, `figures/NAME.png`; by default that of the part.
        only: fields and the values that rows must have to be drawn.
        also: fields that pointing at a mark shows beneath its number.
        wide: whether the figure takes the whole width of the page.
        whole: every line that the figure draws, which name and colour its series; `figure` sets it.
    """

    panel: str | tuple[str, ...] = field(default=(), kw_only=True)
    caption: str = field(default="", kw_only=True)
    name: str = field(default="", kw_only=True)
    only: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    also: tuple[str, ...] = field(default=(), kw_only=True)
    wide: bool = field(default=False, kw_only=True)
    whole: tuple[Record, ...] = field(default=(), kw_only=True, repr=False)

    def figure(self, records: Sequence[Record], name: str, names: Names = NO_NAMES) -> Figure | None:
        """The figure over lines of a table, with short names; None where none of them is drawn."""
        drawn = [named_in_short(record, names) for record in records if self._drawn(record)]
        if not drawn:
            return None
        panels, mark = [], replace(self, whole=tuple(drawn))
        for values, own in self.panels(drawn):
            alike = [record for record in drawn if unit_of(record) == unit_of(own[0])]
            panels.append(Panel(mark.charts(own, alike), " · ".join(values)))
        legend = self.legend(drawn)
        return Figure(
            self.name or name,
            tuple(panels),
            self.caption,
            legend,
            small=len(panels) > 2 and self.narrow(drawn),
            columns=1 if self.wide else 2,
            wide=self.wide or len(panels) == 1,
        )

    def panels(self, records: Sequence[Record]) -> Iterable[tuple[tuple[str, ...], list[Record]]]:
        """The words above every panel, and its lines."""
        return grouped(records, names_of(self.panel)).items()

    def charts(self, records: Sequence[Record], every: Sequence[Record]) -> tuple[alt.LayerChart, ...]:
        """The charts of one panel, beneath one another."""
        return (self.chart(records, every),)

    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        """A chart; `every` are the records of all panels of the same unit, which share their axes."""
        raise NotImplementedError

    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        """The key of the figure."""
        return ()

    def narrow(self, records: Sequence[Record]) -> bool:
        """Whether three panels may stand side by side."""
        return True

    def _drawn(self, record: Record) -> bool:
        return all(value_of(record, name) in _several(wanted) for name, wanted in self.only.items())

    def _point(self, record: Record, shown: Shown, x: Any, labels: frozenset[str]) -> dict[str, Any]:
        """A mark: where it stands, how far its interval goes, what pointing at it shows, which answers it opens."""
        value = value_of(record, shown.name)
        low, high = (None if end is None else _number(end, shown) for end in _with_ends(value)[1:])
        opened = {name: str(value_of(record, name)) for name in OPENED if _has(record, name)}
        opened = opened if len(opened) == len(OPENED) else {}
        text = tip(record, (shown.name, *self.also), labels)
        return {"x": x, "y": _number(value, shown), "low": low, "high": high, "tip": text, **opened}


@dataclass(frozen=True)
class Profile(Mark):
    """A bar for every place from `base` up or down to `y`, with its interval.

    Attributes:
        y: the number; over: the places.
        base: the field that bars begin at (the unedited model's accuracy); 0 without one.
        lines: fields that are drawn as dashed lines across, by what the key calls them (`{"chance": "guessing"}`).
        filled: a field: bars for which it is true are full, the others pale.
        full: what full bars are called in the key; the pale ones are the others.
        each: fields whose values have a low chart each, beneath one another, with their own upright axes.
    """

    y: str
    over: str
    base: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    filled: str = ""
    full: str = ""
    each: str | tuple[str, ...] = ()

    @override
    def charts(self, records: Sequence[Record], every: Sequence[Record]) -> tuple[alt.LayerChart, ...]:
        if not self.each:
            return (self.chart(records, every),)
        shown = [*records, *every]
        groups = grouped(records, names_of(self.each))
        last = list(groups)[-1]
        return tuple(
            self._bars(own, own, shown, last=names == last).properties(height=LOW, title=_heading(" · ".join(names)))
            for names, own in groups.items()
        )

    @override
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        return self._bars(records, every, every)

    @plots.unvalidated
    def _bars(
        self, records: Sequence[Record], every: Sequence[Record], placed: Sequence[Record], *, last: bool = True
    ) -> alt.LayerChart:
        """The bars; the upright axis holds the numbers of `every` record, the other one the places of all `placed`."""
        y, over = shown_of(records[0], self.y), shown_of(records[0], self.over)
        labels = telling_labels(placed)
        rows = [self._point(record, y, value_of(record, over.name), labels) for record in records]
        frame = pd.DataFrame(rows).assign(
            base=[0.0 if not self.base else _number(value_of(record, self.base), y) for record in records],
            full=[not self.filled or bool(value_of(record, self.filled)) for record in records],
        )
        places = sorted({value_of(record, over.name) for record in placed})
        if not all(isinstance(place, int) for place in places):
            frame["x"] = frame["x"].map({place: number for number, place in enumerate(places)})
            places = list(range(len(places)))
        at = frame["x"]
        frame = frame.assign(left=at - HALF, right=at + HALF, begin=at - 0.5, end=at + 0.5)
        lines = [(label, value) for label, value in self._levels(records)]
        bounds = [*_ends(every, y), *(value for record in every for _, value in self._levels([record])), *frame["base"]]
        across = Axis(over.title.lower() if last else "", places[0] - 0.6, places[-1] + 0.6, whole=True)
        upright = Axis(y.heading, *_room(bounds))
        bars = alt.Chart(frame).mark_rect(color=theme.TONES[0]).encode(
            x=plots.x(across, "left"), x2=alt.X2(field="right"), y=plots.y(upright, "base"), y2=alt.Y2(field="y"),
            opacity=plots.either(alt.OpacityValue, "datum.full", FULL, PALE),
        )  # fmt: skip
        layers = [
            bars,
            alt.Chart(frame.dropna(subset=["low", "high"])).mark_rule(color=theme.INK, opacity=0.7).encode(
                x=plots.x(across), y=plots.y(upright, "low"), y2=alt.Y2(field="high")
            ),
            *(plots.level(value, upright, dash=DASHES[at % len(DASHES)]) for at, (_, value) in enumerate(lines)),
            plots.level(0.0, upright, dash=(1.0, 0.0)) if not self.base and min(bounds) < 0 else None,
            alt.Chart(frame).mark_rect(opacity=0).encode(
                x=plots.x(across, "begin"), x2=alt.X2(field="end"), tooltip=plots.tip()
            ),
        ]  # fmt: skip
        return plots.layered(*(layer for layer in layers if layer is not None))

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        levels = enumerate(self._levels(records[:1]))
        series = [Series(label, colour=theme.SOFT, dash=DASHES[at % len(DASHES)]) for at, (label, _) in levels]
        if self.filled and any(value_of(record, self.filled) for record in records):
            title = self.full or shown_of(records[0], self.filled).title.lower()
            series.insert(0, Series(title, colour=theme.TONES[0], area=FULL))
            if not all(value_of(record, self.filled) for record in records):
                series.insert(1, Series("others", colour=theme.TONES[0], area=PALE))
        return tuple(series)

    def _levels(self, records: Sequence[Record]) -> list[tuple[str, float]]:
        y = shown_of(records[0], self.y)
        levels = [(label, _number(value_of(records[0], name), y)) for label, name in self.lines.items()]
        return [(label, value) for label, value in levels if not math.isnan(value)]


FULL, PALE = 0.95, 0.32
"""The opacity of a full bar and of a pale one, on the chart and in its key."""
DASHES = ((6.0, 4.0), (2.0, 4.0), (10.0, 3.0))
"""Of lines of reference, in order."""


@dataclass(frozen=True)
class Map(Mark):
    """A cell for every pair of a column and a row, the stronger in colour the further its value is from 0.

    Attributes:
        value: the number; over: the columns; up: the rows.
        boxed: a field: cells for which it is true have a box.
        full: the number at which the colour is full; by default the largest drawn.
        hue: what numbers above 0 are: a `loss`, a `gain`, or a `share` of something.
        shown: the field that is written in the cells and on pointing; by default `value`.
        blank: a field: cells for which it is true have an outline alone, whatever their number.
        depth: a field: rows in which it differs (models of 8 and of 10 blocks) stand in panels of their own, so that
            no column holds the fifth block of six and of thirty.
    """

    value: str
    over: str
    up: str
    boxed: str = ""
    full: float | None = None
    hue: Literal["loss", "gain", "share"] = "loss"
    shown: str = ""
    blank: str = ""
    depth: str = ""

    @override
    def panels(self, records: Sequence[Record]) -> Iterable[tuple[tuple[str, ...], list[Record]]]:
        depths = sorted({value_of(record, self.depth) or 0 for record in records}) if self.depth else [0]
        if len(depths) == 1:
            return super().panels(records)
        deep = {depth: [r for r in records if (value_of(r, self.depth) or 0) == depth] for depth in depths}
        return [
            ((*values, wording.counted(depth, "block")), own)
            for depth, alike in deep.items()
            for values, own in super(Map, self).panels(alike)
        ]

    @override
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        over, up = (shown_of(records[0], name) for name in (self.over, self.up))
        columns, labels = _columns(records if self.depth else every, over.name), telling_labels(every)
        written = shown_of(records[0], self.shown or self.value)
        rows = [
            {
                **self._point(record, written, value_of(record, over.name), labels),
                "y": _label(up.form(value_of(record, up.name))),
                "value": None if math.isnan(number := self._strength(record)) else number,
                "text": _short(written, value_of(record, written.name)) if len(columns) <= LEGIBLE else "",
                "marked": bool(self.boxed and value_of(record, self.boxed)),
            }
            for record in records
        ]
        frame = pd.DataFrame(rows)
        largest = max((abs(number) for record in every if not math.isnan(number := self._strength(record))), default=0)
        return plots.heat(
            frame, over.title.lower(), up.title.lower() if up.title else "", columns=columns,
            full=self.full or largest or 1.0, colours=HUES[self.hue],
            height=28 + 12 * (max(text.count("\n") for text in frame["y"].astype(str))),
        )  # fmt: skip

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        """Half and the whole of the largest number of either sign whose colour shows, or of that from which on the
        colour is full; signs where units differ.

        Where another field is written in the cells, it is that field of the strongest cell of either sign.
        """
        numbers = [number for record in records if not math.isnan(number := self._strength(record))]
        full = self.full or max(map(abs, numbers), default=0.0)
        value = shown_of(records[0], self.value)
        entries = []
        for sign, colour, name in zip((1, -1), HUES[self.hue], ("above 0", "below 0"), strict=True):
            largest = max((sign * number for number in numbers), default=0.0)
            if largest <= FAINT * full:
                continue
            if len({unit_of(record) for record in records}) > 1:
                entries.append(Series(name, colour=colour, area=1.0))
                continue
            if self.shown:  # what is written is on another scale than the colours
                most = max(
                    (r for r in records if not math.isnan(self._strength(r))), key=lambda r: sign * self._strength(r)
                )
                text = _short(shown_of(most, self.shown), value_of(most, self.shown))
                entries.append(Series(text, colour=colour, area=min(1.0, largest / full)))
                continue
            end, beyond = min(largest, full), f" or {'more' if sign > 0 else 'less'}" if largest > full else ""
            sizes = {_short(value, sign * end / 2): end / 2, f"{_short(value, sign * end)}{beyond}": end}
            entries += [Series(text, colour=colour, area=size / full) for text, size in sizes.items()]
        return tuple(entries)

    @override
    def narrow(self, records: Sequence[Record]) -> bool:
        return len(_columns(records, self.over)) <= NARROW

    def _strength(self, record: Record) -> float:
        """The number that a cell's colour stands for; NaN where it has none."""
        blank = self.blank and value_of(record, self.blank)
        return math.nan if blank else _number(value_of(record, self.value), None)


@dataclass(frozen=True)
class Curves(Mark):
    """A line per series with its interval as a band.

    Attributes:
        y: the number, or several of one unit, each of which is a series; over: the horizontal axis; by: fields that
            tell series apart.
        log: whether the horizontal axis is logarithmic.
        low, high: ends of the upright axis; by default those of the numbers.
        lines: as for `Profile`.
        axis: the title of the upright axis; by default that of the number.
        ratio: whether the numbers are ratios: the upright axis is logarithmic and has a line at 1.
    """

    y: str | tuple[str, ...]
    over: str
    by: str | tuple[str, ...] = ()
    log: bool = False
    low: float | None = None
    high: float | None = None
    lines: Mapping[str, str] = field(default_factory=dict)
    axis: str = ""
    ratio: bool = False

    @override
    @plots.unvalidated
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        numbers = [shown_of(records[0], name) for name in names_of(self.y)]
        y, over = numbers[0], shown_of(records[0], self.over)
        names = self._names(self.whole)
        rows = [
            {**self._point(record, number, _number(value_of(record, over.name), over), frozenset()), "series": name}
            for number in numbers
            for record, name in zip(records, self._series_of(records, number, self.whole), strict=True)
        ]
        frame = pd.DataFrame(rows)
        across = self.across(every)
        bounds = [end for number in numbers for end in _ends(every, number)]
        ends = _room([*bounds, *(end for end in (self.low, self.high) if end is not None)])
        upright = Axis(
            self.axis or y.heading,
            ends[0] if self.low is None else self.low,
            ends[1] if self.high is None else self.high,
        )
        if self.ratio:
            upright = ratio_axis(self.axis or y.heading, [1.0, *bounds])
        guide = _guide(rows, [_told(record, number.name) for number in numbers for record in records], over)
        levels = [
            plots.level(value, upright)
            for name in self.lines.values()
            if not math.isnan(value := _number(value_of(records[0], name), y))
        ]
        if self.ratio or min(bounds) < 0 < max(bounds):
            levels.append(plots.level(1.0 if self.ratio else 0.0, upright, dash=(1.0, 0.0)))
        drawn = [name for name in names if name in set(frame["series"])]
        lines = plots.curves(
            frame.drop(columns="tip"),
            across,
            upright,
            drawn,
            numbers=[names.index(name) for name in drawn],
            guide=guide,
        )
        return plots.layered(*levels, lines) if levels else lines

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        lines = [Series(label, colour=theme.SOFT, dash=plots.DASH) for label in self.lines]
        return (*(Series(name, index) for index, name in enumerate(self._names(records)) if name), *lines)

    def across(self, records: Sequence[Record]) -> Axis:
        """The horizontal axis."""
        over = shown_of(records[0], self.over)
        values = [value_of(record, over.name) for record in records]
        places, whole = [_number(value, over) for value in values], all(isinstance(value, int) for value in values)
        room = 0.02 * (max(places) - min(places)) or 0.5
        if self.log:
            return ratio_axis(over.heading.lower(), places, whole=whole)
        return Axis(over.heading.lower(), min(places) - room, max(places) + room, whole=whole)

    def _names(self, records: Sequence[Record]) -> list[str]:
        numbers = [shown_of(records[0], name) for name in names_of(self.y)]
        return list(dict.fromkeys(name for number in numbers for name in self._series_of(records, number, records)))

    def _series_of(self, records: Sequence[Record], number: Shown, every: Sequence[Record]) -> list[str]:
        names = _series(records, self.by, every)
        return (
            [" · ".join(filter(None, (number.title, name))) for name in names] if isinstance(self.y, tuple) else names
        )


@dataclass(frozen=True)
class Points(Mark):
    """A mark for every line, over two numbers, with the interval of the upright one.

    Attributes:
        y: the upright number; x: the other; by: fields that tell series apart; log: whether x is logarithmic.
    """

    y: str
    x: str
    by: str | tuple[str, ...] = ()
    log: bool = False

    @override
    @plots.unvalidated
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        y, across = shown_of(records[0], self.y), shown_of(records[0], self.x)
        names, labels = series_of(self.whole, self.by), telling_labels(every)
        rows = [
            {**self._point(record, y, _number(value_of(record, across.name), across), labels), "series": name}
            for record, name in zip(records, _series(records, self.by, self.whole), strict=True)
        ]
        places = [_number(value_of(record, across.name), across) for record in every]
        horizontal = (
            ratio_axis(across.heading.lower(), places) if self.log else Axis(across.heading.lower(), *_room(places))
        )
        upright = Axis(y.heading, *_room(_ends(every, y)))
        frame = pd.DataFrame(rows)
        tips = alt.Chart(frame).mark_point(size=200, opacity=0).encode(
            x=plots.x(horizontal), y=plots.y(upright), tooltip=plots.tip()
        )  # fmt: skip
        return plots.layered(plots.points(frame, horizontal, upright, names), tips)

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        return tuple(Series(name, index) for index, name in enumerate(series_of(records, self.by)) if name)


@dataclass(frozen=True)
class Bars(Mark):
    """Estimates with their intervals, each in a row of its own, over an axis with a line at 0.

    Attributes:
        value: the estimate; up: fields that name a row; by: a field by which rows are coloured.
        runs: a field of single runs that an estimate is the mean of, drawn small beneath it.
        most: so many rows have room; of more, those furthest from 0 are drawn.
    """

    value: str
    up: str | tuple[str, ...]
    by: str = ""
    runs: str = ""
    most: int = 24

    @override
    def _drawn(self, record: Record) -> bool:
        return super()._drawn(record) and not math.isnan(_number(value_of(record, self.value), None))

    @override
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        value = shown_of(records[0], self.value)
        records = _furthest(records, value, self.most)
        names = series_of(self.whole, self.by)
        colours, labels = {name: theme.tone(index) for index, name in enumerate(names)}, telling_labels(every)
        rows = []
        for record, name in zip(records, _series(records, self.by, self.whole), strict=True):
            point = self._point(record, value, 0.0, labels)
            label = _label(" · ".join(texts(record, names_of(self.up))))
            rows.append({**point, "x": point["y"], "y": label, "colour": colours[name]})
        repeats = [
            {"y": row["y"], "x": _number(run, value), "colour": row["colour"]}
            for record, row in zip(records, rows, strict=True)
            for run in (value_of(record, self.runs) if self.runs else ())
        ]
        runs = [_number(run, value) for record in every if self.runs for run in value_of(record, self.runs)]
        axis = Axis(value.heading, *_room([0.0, *_ends(every, value), *runs]))
        chart = plots.forest(pd.DataFrame(rows), axis, repeats=pd.DataFrame(repeats) if repeats else None)
        dense = len(rows) > DENSE and not repeats and not any("\n" in row["y"] for row in rows)
        return chart.properties(height=20 * len(rows)) if dense else chart

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        names = series_of(records, self.by)
        return tuple(Series(name, index) for index, name in enumerate(names) if name)


def names_of(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """Fields as a tuple; none of an empty name."""
    return names if isinstance(names, tuple) else (names,) * bool(names)


def texts(record: Record, names: Iterable[str]) -> tuple[str, ...]:
    """Fields of a line as they are written."""
    return tuple(shown_of(record, name).write(value_of(record, name)) for name in names)


def grouped(records: Sequence[Record], names: tuple[str, ...]) -> dict[tuple[str, ...], list[Record]]:
    """The lines by the texts of these fields, as they come; a field that never differs is left out."""
    keys = [texts(record, names) for record in records]
    differing = [place for place in range(len(names)) if len({key[place] for key in keys}) > 1]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for key, record in zip(keys, records, strict=True):
        groups.setdefault(tuple(key[place] for place in differing), []).append(record)
    return groups


def _series(records: Sequence[Record], by: str | tuple[str, ...], every: Sequence[Record]) -> list[str]:
    """The series of each line, by the fields that differ between the lines of all panels."""
    differing = [name for name in names_of(by) if len({texts(record, (name,)) for record in every}) > 1]
    return [" · ".join(texts(record, differing)) for record in records]


def series_of(records: Sequence[Record], by: str | tuple[str, ...]) -> list[str]:
    """The names of series, in the order in which they come."""
    return list(dict.fromkeys(_series(records, by, records)))


def _several(wanted: Any) -> Sequence[Any]:
    return tuple(wanted) if isinstance(wanted, tuple | list | set | frozenset) else (wanted,)


def _with_ends(value: Any) -> tuple[Any, float | None, float | None]:
    """A number with the ends of its interval, or of one standard deviation on either side of a mean over runs."""
    if isinstance(value, Estimate):
        return (value.value, value.low, value.high) if value.high is not None else (value.value, None, None)
    if isinstance(value, Mean):
        return value.mean, *((None, None) if value.std is None else (value.mean - value.std, value.mean + value.std))
    return value, None, None


def _number(value: Any, shown: Shown | None) -> float:
    """A number as it is drawn: in the unit of its form; NaN where it is missing."""
    number = _with_ends(value)[0]
    per = shown.form.per if shown is not None and isinstance(shown.form, Form) else 1.0
    return math.nan if unknown(number) else per * float(number)


def _has(record: Record, name: str) -> bool:
    return any(hasattr(row, name) for row in parts_of(record))


def tip(record: Record, names: Sequence[str], labels: frozenset[str]) -> str:
    """What pointing at a mark shows: what tells its line apart, the number with its interval and its test, the rest."""
    apart = [
        f"{shown.title.lower()}{wording.SPACE}{shown.write(getattr(row, shown.name))}"
        for row in parts_of(record)
        for shown in columns_of(type(row))
        if shown.name in labels and not unknown(getattr(row, shown.name)) and getattr(row, shown.name) != ""
    ]
    return "\n".join([*apart, *(f"{shown_of(record, name).title}: {_told(record, name)}" for name in names)])


def _told(record: Record, name: str) -> str:
    """A number with its interval, its unit and its test."""
    value = value_of(record, name)
    p = p_text(value) if isinstance(value, Estimate) else ""
    return f"{shown_of(record, name).sentence(value)}{f'; {p}' if p else ''}"


def _guide(rows: Sequence[dict[str, Any]], numbers: Sequence[str], over: Shown) -> pd.DataFrame:
    """What pointing at a place of the horizontal axis shows of all series."""
    lines: dict[float, list[str]] = {}
    opened: dict[float, dict[str, str]] = {}
    for row, number in zip(rows, numbers, strict=True):
        head = f"{over.title.lower()}{wording.SPACE}{wording.figures(row['x'], 6)}"
        lines.setdefault(row["x"], [head]).append(f"{row['series']}: {number}" if row["series"] else number)
        opened.setdefault(row["x"], {name: row[name] for name in OPENED if name in row})
    return pd.DataFrame([{"x": place, "tip": "\n".join(text), **opened[place]} for place, text in lines.items()])


def _ends(records: Sequence[Record], shown: Shown) -> list[float]:
    """Every number and end of an interval."""
    values = [value_of(record, shown.name) for record in records]
    numbers = [number for value in values for number in _with_ends(value)]
    return [_number(number, shown) for number in numbers if not unknown(number)] or [0.0]


def _furthest(records: Sequence[Record], shown: Shown, most: int) -> list[Record]:
    """As many records as have room, those furthest from 0, as they come."""
    places = sorted(range(len(records)), key=lambda at: -abs(_number(value_of(records[at], shown.name), None)))
    return [records[at] for at in sorted(places[:most])]


def _room(numbers: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that holds all numbers, with some room."""
    known = [number for number in numbers if not math.isnan(number)] or [0.0]
    low, high = min(known), max(known)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    room = 0.05 * (high - low)
    return low - (room if low != 0 else 0.0), high + room


def _short(shown: Shown, value: Any) -> str:
    """A number in a cell of a map: without its interval, as short as can be."""
    number = _with_ends(value)[0]
    form = shown.form
    return Form(0, form.per, signed=form.signed)(number) if isinstance(form, Form) and form.per > 1 else form(number)


def _heading(text: str) -> alt.TitleParams:
    return alt.TitleParams(textwrap.wrap(wording.printable(text), HEADING), fontSize=12, offset=6, frame="bounds")


def _label(text: str) -> str:
    return "\n".join(textwrap.wrap(text, LINE)) or text


def _columns(records: Sequence[Record], name: str) -> list[Any]:
    """The columns of a map: numbers ascending, texts as they come."""
    places = list(dict.fromkeys(value_of(record, name) for record in records))
    return places if any(isinstance(place, str) for place in places) else sorted(places)
