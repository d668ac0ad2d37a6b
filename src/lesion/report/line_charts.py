"""Line charts as inline SVG: curves over two axes, with marks, bars or bands, all drawn by one function."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale

LEFT, RIGHT, TOP, BOTTOM = 66.0, 14.0, 10.0, 40.0
"""Space around the axes."""


@dataclass(frozen=True)
class Point:
    """A place on a curve; `low` and `high` are None where nothing spreads."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        tone: number of its colour, and of its mark.
        how: `line`, `marked` (with marks and bars), `banded` (with a band), `dashed`, `marks` (no line).
    """

    name: str
    tone: int
    points: tuple[Point, ...]
    how: str = "line"


def chart(
    name: str, curves: Sequence[Curve], x: Scale, y: Scale, axes: tuple[str, str], size: tuple[int, int],
    line: float | None = None,
) -> Markup:  # fmt: skip
    """Curves over two axes; `line` is a height of reference. Pointing at a mark or a line's point tells its numbers."""
    parts = scales.axes(x, y, axes, size[1])
    if line is not None:
        parts.append(Markup('<path class="guess" d="M{:.1f} {:.1f}H{:.1f}"/>').format(x.start, y.at(line), x.end))
    hits: list[Markup] = []
    for curve in curves:
        places = [(x.at(p.x), y.at(p.y), p) for p in curve.points]
        found = Markup("")
        spread = [(at, y.at(p.low), y.at(p.high)) for at, _, p in places if p.low is not None and p.high is not None]
        if curve.how == "banded" and len(spread) > 1:
            outline = [f"{a:.1f} {h:.1f}" for a, _, h in spread] + [f"{a:.1f} {low:.1f}" for a, low, _ in spread[::-1]]
            found += Markup('<path class="band" d="M{}Z"/>').format("L".join(outline))
        elif curve.how in ("marked", "marks"):
            for at, low, high in spread:
                found += Markup('<path class="error" d="M{:.1f} {:.1f}V{:.1f}"/>').format(at, low, high)
        if curve.how != "marks" and len(places) > 1:
            drawn = "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in places)
            kind = "baseline" if curve.how == "dashed" else "stroke"
            found += Markup('<path class="{}" d="M{}"/>').format(kind, drawn)
        for at, height, point in places if curve.how != "dashed" else []:
            if curve.how in ("marked", "marks"):
                found += charts.mark(at, height, 3.2, curve.tone)
            told = f"{curve.name}\n{axes[0]} {wording.figures(point.x, 6)}: {wording.figures(point.y, 4)}"
            if point.low is not None and point.high is not None:
                told += f" {wording.plain_interval(point.low, point.high)}"
            hits.append(
                Markup('<circle class="point" data-tip="{}" cx="{:.1f}" cy="{:.1f}" r="6"/>').format(told, at, height)
            )
        parts.append(Markup('<g class="t{}">{}</g>').format(curve.tone % charts.SERIES, found))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        *size, name, Markup("").join(parts + hits)
    )


def legend(curves: Sequence[Curve]) -> list[tuple[Markup, str]]:
    """A picture and a name per curve, each name once."""
    found: dict[str, Markup] = {}
    for curve in curves:
        kind = "baseline" if curve.how == "dashed" else "stroke"
        stroke = Markup('<path class="{}" d="M1 7H33"/>').format(kind) if curve.how != "marks" else Markup("")
        marked = charts.mark(17.0, 7.0, 4.2, curve.tone) if curve.how in ("marked", "marks") else Markup("")
        picture = Markup('<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true">{}{}</svg>')
        found.setdefault(curve.name, picture.format(curve.tone % charts.SERIES, stroke, marked))
    return [(picture, name) for name, picture in found.items()]


def upwards(values: Iterable[float], size: tuple[int, int]) -> Scale:
    """A linear axis from 0 to a round number above all values."""
    high = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
    step = 10.0 ** math.floor(math.log10(high))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if high / s <= 6)
    ticks = tuple((i * step, wording.figures(i * step, 3)) for i in range(math.floor(1.02 * high / step) + 1))
    return Scale(0.0, 1.06 * high, size[1] - BOTTOM, TOP, ticks)
