"""The charts of the recall laboratory: training with its two phases, and truncations beside their controls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lesion.labs.recall.rows import Cuts
from lesion.report import line_charts, scales, wording
from lesion.report.line_charts import BOTTOM, LEFT, RIGHT, TOP, Curve, Point
from lesion.report.scales import Scale

SIZE = (400, 290)  # width and height of a chart in SVG units
PHASES = ("a feed-forward prefers τ behind q, for good", "recall attention passes half")
SIDES = {"top": ("the largest kept", 0), "bottom": ("the smallest kept", 1)}
RANDOM = ("random projections", 6)

Training = Sequence[Mapping[str, Any]]
Panel = tuple[str, Markup]


def training(summary: Mapping[str, Any]) -> tuple[list[tuple[Markup, str]], list[tuple[Panel, list[Any]]]]:
    """Everything measured over training: the legend of the phases, and a panel with its own legend for each subject."""
    points = [point for point in summary["training"] if point["step"] > 0]
    if not points:
        return [], []
    x = scales.ratios([float(point["step"]) for point in points], LEFT, SIZE[0] - RIGHT)
    shares = scales.shares([0.0, 1.0], SIZE[1] - BOTTOM, TOP, closer=False)
    found: list[tuple[Panel, list[Any]]] = []

    def add(title: str, name: str, curves: list[Curve], y: Scale, line: float | None = None) -> None:
        curves = [curve for curve in curves if curve.points]
        if not curves:
            return
        marks = [Curve(curve.name, curve.tone, _upright(curve, y), "dashed") for curve in _phases(summary)]
        drawn = line_charts.chart(title, [*marks, *curves], x, y, ("step", name), SIZE, line)
        found.append(((title, drawn), line_charts.legend(curves)))

    said = [
        _curve(points, "p(ȳ)", 0, "p_correct"),
        _curve(points, "p(τ)", 1, "p_noise"),
        _curve(points, "accuracy", 2, "clean_accuracy"),
    ]
    add("What is said where no noise is", "mean, %", said, shares, summary["noise"])
    losses = [_curve(points, "clean sequences", 0, "clean_loss"), _curve(points, "noisy sequences", 1, "noisy_loss")]
    add("Loss", "nats", losses, line_charts.upwards(_heights(losses), SIZE), summary["floor"])
    margins = [
        _curve(points, name, tone, "margins", name) for tone, name in enumerate(summary["training"][-1]["margins"])
    ]
    add("Trigger margins of the feed-forwards", "logit τ over the next best", margins, _around(_heights(margins)), 0.0)
    masses = [
        _curve(points, "second head on ȳ, clean", 0, "attention", "answer"),
        _curve(points, "second head on ȳ, noisy", 5, "attention", "noisy_answer"),
        _curve(points, "second head on τ, noisy", 1, "attention", "noisy_noise"),
        _curve(points, "first head on the token before", 2, "attention", "previous"),
    ]
    add("Where the heads look", "mean mass, %", masses, shares)
    probes = [
        _curve(points, "W_OV2: says what it sees", 0, "probes", "W_OV2"),
        _curve(points, "W_K1: looks one back", 2, "probes", "W_K1"),
        _curve(points, "W_K2: finds what followed", 4, "probes", "W_K2"),
    ]
    add("Memories", "share remembered, %", probes, shares)
    ranked = [name for name in ("F1.in", "F1.out", "F1", "F2.in", "F2.out", "F2", "W_OV1", "W_OV2", "W_K1", "W_K2")
              if name in summary["matrices"]]  # fmt: skip
    soft = [_curve(points, name, tone, "soft_ranks", name) for tone, name in enumerate(ranked)]
    add("Soft ranks", "‖W‖ Frobenius / spectral", soft, line_charts.upwards(_heights(soft), SIZE))
    return line_charts.legend(_phases(summary)), found


def truncations(cuts: Cuts, full: Mapping[str, float]) -> list[Panel]:
    """Accuracy, p(τ), p(ȳ) and noisy loss of a matrix against the fraction of its rank that is kept."""
    keeps = [row["keep"] for row in cuts.top if row["keep"] > 0]
    if not keeps:
        return []
    x = scales.ratios(keeps, LEFT, SIZE[0] - RIGHT, "keep")
    found = []
    for number, title in (
        ("clean_accuracy", "accuracy on clean sequences, %"),
        ("p_noise", "p(τ) on clean sequences, %"),
        ("noisy_loss", "loss on noisy sequences, nats"),
    ):
        curves = _kept(cuts, number)
        ends = (min(keeps), max(keeps))
        curves.append(Curve("nothing cut", 3, tuple(Point(keep, full[number]) for keep in ends), "dashed"))
        if number == "noisy_loss":
            y = line_charts.upwards([*_heights(curves), cuts.deleted[number]], SIZE)
        else:
            y = scales.shares([0.0, 1.0], SIZE[1] - BOTTOM, TOP, closer=False)
        drawn = line_charts.chart(
            f"{cuts.matrix}, {title}", curves, x, y, ("rank kept, %", title), SIZE, cuts.deleted[number]
        )
        found.append((title, drawn))
    return found


def truncation_legend(cuts: Cuts) -> list[tuple[Markup, str]]:
    """The legend of a matrix's truncation panels."""
    return line_charts.legend([*_kept(cuts, "p_noise"), Curve("nothing cut", 3, (), "dashed")])


def _kept(cuts: Cuts, number: str) -> list[Curve]:
    found = []
    for side, rows in (("top", cuts.top), ("bottom", cuts.bottom)):
        name, tone = SIDES[side]
        points = tuple(Point(row["keep"], row[number]) for row in rows if row["keep"] > 0)
        found.append(Curve(name, tone, points, "marked"))
    drawn = []
    for row in cuts.top:
        spread = cuts.drawn(row["rank"], number)
        if spread is not None:
            drawn.append(Point(row["keep"], spread.mean, spread.least, spread.most))
    if drawn:
        found.append(Curve(RANDOM[0], RANDOM[1], tuple(drawn), "marked"))
    return found


def _curve(points: Training, name: str, tone: int, *path: str) -> Curve:
    found = []
    for point in points:
        value: Any = point
        for key in path:
            value = value[key]
        found.append(Point(float(point["step"]), float(value)))
    return Curve(name, tone, tuple(found))


def _phases(summary: Mapping[str, Any]) -> list[Curve]:
    """The two phases, where they came, as curves without height."""
    already = summary["phases"].get("untrained", ())
    margins = [step for name, step in summary["phases"]["margins"].items() if step and name not in already]
    steps = (min(margins, default=None), summary["phases"]["attention"])
    return [
        Curve(f"{name}: step {step:,}", tone, (Point(float(step), 0.0),), "dashed")
        for name, step, tone in zip(PHASES, steps, (3, 4), strict=True)
        if step
    ]


def _upright(curve: Curve, y: Scale) -> tuple[Point, ...]:
    return (Point(curve.points[0].x, y.low), Point(curve.points[0].x, y.high))


def _heights(curves: Iterable[Curve]) -> list[float]:
    found = []
    for curve in curves:
        for point in curve.points:
            found += [value for value in (point.y, point.low, point.high) if value is not None]
    return found


def _around(values: Sequence[float]) -> Scale:
    """A linear axis with 0 in it."""
    low, high = min([*values, 0.0]), max([*values, 0.0])
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if span / s <= 6)
    ticks = tuple(
        (i * step, wording.figures(i * step, 3).replace("-", wording.MINUS))
        for i in range(math.ceil(low / step), math.floor(high / step) + 1)
    )
    return Scale(low - 0.05 * span, high + 0.05 * span, SIZE[1] - BOTTOM, TOP, ticks)
