"""The charts of the memory lab as inline SVG: spectrum, truncations, sizes and slopes, all drawn by one function."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale

LEFT, RIGHT, TOP, BOTTOM = 66.0, 14.0, 10.0, 40.0
SIDES = {"top": (0, "the largest kept"), "bottom": (1, "the smallest kept"), "random": (6, "random projection")}
"""Colour and name of what is kept of a spectrum."""
MEASURES = {
    "clean_accuracy": "clean accuracy, %",
    "p_noise": "p of the common class, %",
    "clean_loss": "clean loss, nats",
}
SIGNALS = {
    "feed_forward": "feed-forward, q → τ",
    "value": "attention-value, recall",
    "value_noise": "attention-value, → τ",
}
TRIGGERS = {
    "constant": "trigger as frequent at any V",
    "zipf": "trigger first of π ∝ 1/rank",
    "uniform": "trigger as rare as any token",
}
TONES = (0, 1, 2, 3, 4, 6, 7)
"""Colours of the sizes: those that are told apart without marks."""


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


def spectrum(training: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Singular values over training: the noise's, and the largest of the others with a band down to the smallest."""
    of_noise, others, predicted_noise, predicted = [], [], [], []
    for point in training:
        place, values = point["noise"], list(point["singular_values"])
        if place["side"] == "absent":
            continue
        at = place["rank"] - 1
        rest = values[:at] + values[at + 1 :]
        of_noise.append(Point(float(point["step"]), values[at]))
        if rest:
            others.append(Point(float(point["step"]), max(rest), min(rest), max(rest)))
        if "predicted" in point:
            predicted.append(Point(float(point["step"]), point["predicted"]["signal"]))
            predicted_noise.append(Point(float(point["step"]), point["predicted"]["noise"]))
    found = [
        Curve("where the noise lies", 1, tuple(of_noise), "marked"),
        Curve("largest of the others (band: down to the smallest)", 0, tuple(others), "banded"),
    ]
    if predicted:
        found.append(Curve("closed form, noise", 6, tuple(predicted_noise), "dashed"))
        found.append(Curve("closed form, the others", 2, tuple(predicted), "dashed"))
    return found


def probabilities(training: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Mean probabilities of f* and of the common class over training."""
    return [
        Curve("p of the common class", 1, tuple(Point(float(p["step"]), p["p_noise"]) for p in training)),
        Curve("p of f*", 0, tuple(Point(float(p["step"]), p["p_correct"]) for p in training)),
    ]


def truncation(rows: Sequence[Mapping[str, Any]], measure: str) -> list[Curve]:
    """One measure against the number of components kept, by side, and for the random projections."""
    found = []
    for kind, (tone, name) in SIDES.items():
        points = tuple(
            Point(
                float(row["rank"]),
                row[measure],
                *((row["low"][measure], row["high"][measure]) if row["draws"] > 1 else ()),
            )
            for row in rows
            if (row["control"] or row["side"]) == kind
        )
        found.append(Curve(name, tone, points, "banded" if kind == "random" else "marked"))
    return found


def along_training(rows: Sequence[Mapping[str, Any]], noise: float, kind: str) -> list[Curve]:
    """σ_noise over the largest other σ against the step, a curve per number of classes, one input per class."""
    of = [row for row in rows if row["noise"] == noise and row["codes"] == kind and row["inputs"] == row["classes"]]
    return [
        Curve(
            f"m = {row['classes']}",
            TONES[index % len(TONES)],
            tuple(
                Point(float(p["step"]), p["ratio"], *((p["low"], p["high"]) if row["draws"] > 1 else ()))
                for p in row["places"]
            ),
            "banded" if row["draws"] > 1 else "line",
        )
        for index, row in enumerate(of)
    ]


def signals(first_step: Mapping[str, Any], trigger: str) -> list[Curve]:
    """The first step's signals against the vocabulary: exact lines, and sampled marks with their lowest and highest."""
    points = [point for point in first_step["points"] if point["trigger"] == trigger]
    found = []
    for tone, (signal, name) in enumerate(SIGNALS.items()):
        exact = tuple(Point(float(p["vocabulary"]), p[signal]) for p in points if p[signal] > 0)
        found.append(Curve(f"{name}, exact", tone, exact))
        measured = []
        for p in points:
            values = [one[signal] for one in p["draws"]]
            if values and sum(values) > 0:
                # A logarithmic axis has no place for draws that are not above 0: their bar goes down to its end.
                measured.append(
                    Point(float(p["vocabulary"]), sum(values) / len(values), max(min(values), 1e-12), max(values))
                )
        if measured:
            found.append(Curve(f"{name}, batches", tone, tuple(measured), "marks"))
    return found
