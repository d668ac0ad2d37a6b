"""Line charts over categories as inline SVG, for the report of a truncation search: curves, legend, axes.

Colours come from the page's style sheet by class; every text in a chart is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale

LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 12.0, 40.0
NO_MARK = Markup("")
SIZES = ((400, 290), (560, 340))  # width and height in SVG units, on a phone and with room


@dataclass(frozen=True)
class Place:
    """A height over the place `at` of a category axis, with its interval, and what pointing at it tells."""

    at: int
    y: float
    low: float | None
    high: float | None
    told: str


@dataclass(frozen=True)
class Curve:
    """One line over categories; `tone` is its colour, `shape` its mark, `dashed` for the unedited model."""

    name: str
    tone: int
    shape: int
    dashed: bool
    places: tuple[Place, ...]


def over(
    categories: Sequence[str], curves: Sequence[Curve], y: Scale, names: tuple[str, str], size: tuple[int, int],
    line: float | None = None, *, beside: bool = True,
) -> Markup:  # fmt: skip
    """Curves over categories, with error bars, `beside` each other or not; `line` is a height of reference."""
    width, height = size
    step = (width - LEFT - RIGHT) / len(categories)
    middle = (len(curves) - 1) / 2
    apart = min(9.0, 0.5 * step / max(1, len(curves)))  # bars of neighbours must not cover each other
    x = Scale(-0.5, len(categories) - 0.5, LEFT, width - RIGHT)
    parts = scales.axes(x, y, ("", names[1]), height)
    room = max(5, int(step / 6.2))
    stride = 1 if len(categories) < 3 else max(1, -(-len(categories) * 44 // int(width - LEFT - RIGHT)))
    for index, name in enumerate(categories):
        if index % stride == 0:
            parts.append(
                Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(
                    x.at(float(index)), y.start + 15, wording.short(name, room * stride)
                )
            )
    parts.append(
        Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            (LEFT + width - RIGHT) / 2, height - 5, names[0]
        )
    )
    if line is not None and y.low <= line <= y.high:
        parts.append(Markup('<path class="guess" d="M{} {:.1f}H{}"/>').format(LEFT, y.at(line), width - RIGHT))
    hits: list[Markup] = []
    for index, curve in enumerate(curves):
        shift = apart * (index - middle) if beside else 0.0
        at = [(x.at(float(place.at)) + shift, y.at(place.y), place) for place in curve.places]
        stroke = Markup("")
        if len(at) > 1:
            stroke += Markup('<path class="{}" d="M{}"/>').format(
                "baseline" if curve.dashed else "stroke", "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in at)
            )
        for across, up, place in at:
            if place.low is not None and place.high is not None:
                stroke += Markup('<path class="error" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                    across, y.at(place.low), y.at(place.high)
                )
            stroke += charts.mark(across, up, 3.8, curve.shape, critical=not curve.dashed)
            hits.append(
                Markup('<circle class="point" data-tip="{}" cx="{:.1f}" cy="{:.1f}" r="9"/>').format(
                    place.told, across, up
                )
            )
        parts.append(Markup('<g class="t{}">{}</g>').format(curve.tone % charts.SERIES, stroke))
    return drawn(f"{names[1]}; the numbers stand in a table.", size, [*parts, *hits])


def legend(curves: Sequence[Curve]) -> list[tuple[Markup, str]]:
    """A picture and a name per curve, each name once."""
    found: dict[str, Markup] = {}
    for curve in curves:
        mark = charts.mark(17.0, 7.0, 4.2, curve.shape, critical=not curve.dashed)
        found.setdefault(curve.name, swatch(curve.tone, "baseline" if curve.dashed else "stroke", mark))
    return [(picture, name) for name, picture in found.items()]


def swatch(tone: int, kind: str, mark: Markup = NO_MARK) -> Markup:
    """The legend's picture of a line: a stroke of a style class, with its mark."""
    picture = '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true"><path class="{}" d="M1 7H33"/>{}</svg>'
    return Markup(picture).format(tone % charts.SERIES, kind, mark)


def heights(curves: Sequence[Curve]) -> list[float]:
    """Every height with the ends of its interval."""
    return [
        value
        for curve in curves
        for place in curve.places
        for value in (place.y, place.low, place.high)
        if value is not None
    ]


def around_zero(values: Sequence[float], size: tuple[int, int]) -> Scale:
    """A linear axis of nats that has 0 on it."""
    low, high = min([0.0, *values]), max([0.0, *values])
    return _linear(low, high, 0.08 * (high - low) or 0.5, size)


def close(values: Sequence[float], size: tuple[int, int]) -> Scale:
    """A linear axis of log-probabilities close around its values."""
    low, high = min(values), max(values)
    return _linear(low, high, 0.12 * (high - low) or 0.1, size)


def _linear(low: float, high: float, room: float, size: tuple[int, int]) -> Scale:
    low, high = low - room, high + room
    steps = (digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= 7)
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    ticks = tuple((i * step, f"{i * step:.6g}".replace("-", wording.MINUS)) for i in places)
    return Scale(low, high, size[1] - BOTTOM, TOP, ticks)


def drawn(name: str, size: tuple[int, int], parts: Sequence[Markup]) -> Markup:
    """The parts as a chart with a name for those who cannot see it."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        *size, name, Markup("").join(parts)
    )
