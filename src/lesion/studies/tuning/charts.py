"""The charts of a tuning study: what every arm gains, seed by seed, and the loss over its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lesion.report import charts, line_charts, wording
from lesion.report.line_charts import Curve, Point
from lesion.report.scales import Scale, spaced
from lesion.report.wording import signed

SIZES = {"wide": (700, 190), "narrow": (350, 0)}
"""Width of a dot plot, and how much of it the names take; 0: they stand above their rows."""
ROW, ROW_NARROW = 38, 52
TOP, BOTTOM = 8, 42
TONES = {"critical": 1, "least": 0, "random": 6, "all-adapter": 2, "all-full": 3}
"""Colours of the arms; layers that were named have the next one."""
CURVES = (400, 270)


@dataclass(frozen=True)
class Dot:
    """A row of a dot plot: a change of accuracy with its interval, and that of every seed."""

    label: str
    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    tone: int


def tone(arm: str) -> int:
    """The colour of an arm."""
    return TONES.get(arm, 4)


def gains(summary: Mapping[str, Any], task: int) -> list[Dot]:
    """The change of every arm on a task, by its place among the tasks: the studied one is 0, controls follow."""
    return [_dot(arm["label"], arm["tasks"][task]["change"], tone(arm["arm"])) for arm in summary["arms"]]


def differences(summary: Mapping[str, Any]) -> list[Dot]:
    """Critical blocks minus the others, on the studied task."""
    labels = {arm["arm"]: arm["label"] for arm in summary["arms"]}
    return [_dot(f"over {labels[one['second']]}", one, tone(one["second"])) for one in summary["differences"]]


def _dot(label: str, change: Mapping[str, Any], colour: int) -> Dot:
    return Dot(label, change["mean"], change["low"], change["high"], tuple(change["seeds"]), colour)


def dots(name: str, rows: Sequence[Dot], axis: str, reach: Sequence[Dot] = ()) -> list[tuple[str, Markup]]:
    """A dot plot for wide screens and one for narrow ones, each with its class.

    Args:
        name: for readers who do not see it.
        rows: from the top down.
        axis: what the numbers are.
        reach: rows of other plots that should have the same axis.
    """
    return [(f"on-{kind}", _dots(name, rows, axis, size, [*rows, *reach])) for kind, size in SIZES.items()]


def _dots(name: str, rows: Sequence[Dot], axis: str, size: tuple[int, int], reach: Sequence[Dot]) -> Markup:
    width, room = size
    row = ROW if room else ROW_NARROW
    height = TOP + row * len(rows) + BOTTOM
    x = _axis(reach, room + 14.0, width - 14.0)
    floor = height - BOTTOM
    parts = []
    for value, text in spaced(x, 34.0):
        parts.append(
            Markup(
                '<path class="grid{}" d="M{:.1f} {}V{}"/>'
                '<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
            ).format(" zero" if value == 0 else "", x.at(value), TOP, floor, x.at(value), floor + 16, text)
        )
    parts.append(
        Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            (x.start + x.end) / 2, height - 6, wording.short(axis, 60)
        )
    )
    for index, one in enumerate(rows):
        middle = TOP + row * index + (row / 2 if room else row - 16)
        label = Markup('<text class="label" x="{}" y="{:.1f}" text-anchor="{}">{}</text>').format(
            room if room else 14, middle + 4 if room else middle - 16, "end" if room else "start",
            wording.short(one.label, 34 if room else 48),
        )  # fmt: skip
        drawn = Markup('<path class="stroke" d="M{:.1f} {:.1f}H{:.1f}"/>').format(x.at(one.low), middle, x.at(one.high))
        for end in (one.low, one.high):
            drawn += Markup('<path class="stroke" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                x.at(end), middle - 5, middle + 5
            )
        if len(one.seeds) > 1:
            for value in one.seeds:
                drawn += Markup('<circle class="repeat" cx="{:.1f}" cy="{:.1f}" r="2.6"/>').format(
                    x.at(value), middle + 9
                )
        drawn += Markup('<circle class="mark critical" cx="{:.1f}" cy="{:.1f}" r="4.6"/>').format(
            x.at(one.mean), middle
        )
        told = f"{one.label}\n{signed(one.mean)} points {wording.interval(one.low, one.high)}"
        if len(one.seeds) > 1:
            told += f"\nseeds: {', '.join(map(signed, one.seeds))}"
        hit = Markup('<rect class="point" data-tip="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}"/>').format(
            told, x.start, middle - 14, x.end - x.start, 28
        )
        parts.append(Markup('<g class="t{}">{}{}</g>{}').format(one.tone % charts.SERIES, label, drawn, hit))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, name, Markup("").join(parts)
    )


def _axis(rows: Sequence[Dot], start: float, end: float) -> Scale:
    """A linear axis in points with 0 in it."""
    values = [0.0, *(value for one in rows for value in (one.low, one.high, *one.seeds))]
    low, high = min(values), max(values)
    span = max(high - low, 0.02)
    steps = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    step = next((step for step in steps if span / step <= 7), 0.5)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:
        first, last = first - 1, last + 1
    ticks = tuple((index * step, signed(index * step)) for index in range(first, last + 1))
    return Scale(first * step, last * step, start, end, ticks)


def losses(summary: Mapping[str, Any]) -> tuple[Markup, list[Any]] | None:
    """The loss of every arm at its learning rate, mean over seeds, with its legend; None with nothing to draw."""
    curves = []
    for arm in summary["arms"]:
        chosen = [curve["points"] for curve in arm["curves"] if curve["rate"] == arm["rate"]]
        steps = [point["step"] for point in chosen[0]] if chosen else []
        if len(steps) < 2 or any([point["step"] for point in points] != steps for points in chosen):
            continue
        of_step = [[points[index]["loss"] for points in chosen] for index in range(len(steps))]
        if any(loss is None for losses in of_step for loss in losses):
            continue
        points = tuple(
            Point(float(step), sum(losses) / len(losses)) for step, losses in zip(steps, of_step, strict=True)
        )
        curves.append(Curve(arm["label"], tone(arm["arm"]), points))
    if not curves:
        return None
    last = max(point.x for curve in curves for point in curve.points)
    stride = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10**9) if last / s <= 6)
    ticks = tuple((float(at), f"{at:,}") for at in range(0, int(last) + 1, stride))
    x = Scale(0.0, last, line_charts.LEFT, CURVES[0] - line_charts.RIGHT, ticks)
    y = line_charts.upwards([point.y for curve in curves for point in curve.points], CURVES)
    drawn = line_charts.chart("Loss over the steps", curves, x, y, ("step", "nats per answer token"), CURVES)
    return drawn, line_charts.legend(curves)
