"""The charts of the recall laboratory: training with its two phases, truncations beside controls, p(τ) against α."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from lesion.labs.recall.recipe import Recipe
from lesion.labs.recall.result import MatrixCuts, Measures, Phases, Point, RecallSummary, Spread
from lesion.labs.recall.study_findings import group_name
from lesion.labs.recall.study_result import Group
from lesion.report import plots, theme, wording
from lesion.report.blocks import Panel, Series
from lesion.report.plots import Axis

KEPT = (Series("the largest kept", 0), Series("the smallest kept", 1), Series("random projections", 6))
FULL = Series("nothing cut", colour=theme.tone(3), dashed=True)
DELETED = Series("all deleted", colour=theme.SOFT, dashed=True)
MEASURES = {
    "clean_accuracy": ("accuracy on clean sequences", "accuracy, %"),
    "p_noise": ("p(τ) on clean sequences", "p(τ), %"),
    "noisy_loss": ("loss on noisy sequences", "nats"),
}
"""What is drawn of a truncation: title of the panel and of its upright axis."""
PHASES = ("a feed-forward prefers τ after q, for good", "recall attention passes half")
PHASE_TONES = (3, 4)
MARKED = 12
"""A curve over training has at most so many marks."""
COLUMNS = ["series", "x", "y", "low", "high"]

Curves = Mapping[str, Callable[[Point], float]]
Row = tuple[float, float, float | None, float | None]
"""Share of the rank kept, a measure, and from where to where it spreads."""


# -- one training


def training(summary: RecallSummary) -> list[Panel]:
    """Everything measured over training, a panel for each subject; none of an untrained model."""
    points = [point for point in summary.training if point.step > 0]
    if not points:
        return []
    answers: Curves = {
        "p(ȳ)": lambda point: 100 * point.p_correct,
        "p(τ)": lambda point: 100 * point.p_noise,
        "accuracy": lambda point: 100 * point.clean_accuracy,
    }
    losses: Curves = {
        "clean sequences": lambda point: point.clean_loss,
        "noisy sequences": lambda point: point.noisy_loss,
    }
    margins: Curves = {name: _margin(name) for name in summary.training[-1].margins}
    masses: Curves = {
        "second head on ȳ, clean": lambda point: 100 * point.attention.answer,
        "second head on ȳ, noisy": lambda point: 100 * point.attention.noisy_answer,
        "second head on τ, noisy": lambda point: 100 * point.attention.noisy_noise,
        "first head on the token before": lambda point: 100 * point.attention.previous,
    }
    probes: Curves = {
        "W_OV2: predicts what it attends to": lambda point: 100 * point.probes.copying,
        "W_K1: looks one back": lambda point: 100 * point.probes.previous,
        "W_K2: finds what followed": lambda point: 100 * point.probes.following,
    }
    ranked = ("F1.in", "F1.out", "F1", "F2.in", "F2.out", "F2", "W_OV1", "W_OV2", "W_K1", "W_K2")
    soft_ranks: Curves = {name: _soft_rank(name) for name in ranked if name in summary.matrices}
    panels = [
        ("Predictions on clean sequences", answers, _shares("mean, %"), 100 * summary.recipe.noise),
        ("Loss", losses, Axis("nats", 0.0, _top(points, losses)), summary.floor),
        (
            "Trigger margins of the feed-forwards",
            margins,
            _around("logit of τ over the next best", points, margins),
            0.0,
        ),
        ("Where the heads attend", masses, _shares("mean mass, %"), None),
        ("Probes of the matrices", probes, _shares("share remembered, %"), None),
        ("Soft ranks", soft_ranks, Axis("‖W‖ Frobenius / spectral", 0.0, _top(points, soft_ranks)), None),
    ]
    return [
        _over_training(title, points, curves, upright, reference, summary.phases)
        for title, curves, upright, reference in panels
        if curves
    ]


def _margin(name: str) -> Callable[[Point], float]:
    return lambda point: point.margins[name]


def _soft_rank(name: str) -> Callable[[Point], float]:
    return lambda point: point.soft_ranks[name]


def _over_training(
    title: str, points: Sequence[Point], curves: Curves, upright: Axis, reference: float | None, phases: Phases
) -> Panel:
    frame = pd.DataFrame(
        [
            {"series": name, "x": point.step, "y": value(point), "low": None, "high": None}
            for name, value in curves.items()
            for point in points
        ],
        columns=COLUMNS,
    )
    across, series = _steps(points), list(curves)
    layers: list[alt.Chart | alt.LayerChart] = []
    if reference is not None:
        layers.append(plots.level(reference, upright))
    for step, tone in zip(phase_steps(phases), PHASE_TONES, strict=True):
        if step is not None:
            layers.append(_upright(step, across, theme.tone(tone)))
    layers.append(plots.curves(frame, across, upright, series, spread="none", marks=False))
    marked = frame[frame["x"].isin(marked_steps([point.step for point in points]))]
    layers.append(
        alt.Chart(marked)
        .mark_point()
        .encode(x=plots.x(across), y=plots.y(upright), color=plots.colour(series), shape=plots.shape(series))
    )
    tips = [
        "\n".join([f"step {point.step:,}", *(f"{name}: {_number(value(point))}" for name, value in curves.items())])
        for point in points
    ]
    layers.append(plots.guides(pd.DataFrame({"x": [point.step for point in points], "tip": tips}), across))
    legend = tuple(Series(name, index) for index, name in enumerate(series))
    return Panel((alt.layer(*layers),), title, legend)


def marked_steps(steps: Sequence[int]) -> set[int]:
    """The steps that have a mark: those nearest to places that are evenly apart on a logarithmic axis."""
    first, ratio = steps[0], steps[-1] / steps[0]
    places = [first * ratio ** (number / (MARKED - 1)) for number in range(MARKED)]
    return {min(steps, key=lambda step: abs(math.log(step / place))) for place in places}


def phase_steps(phases: Phases) -> tuple[int | None, int | None]:
    """The step of each of the two phases, None where it did not come."""
    return min(phases.learned.values(), default=None), phases.attention


def phase_legend(phases: Phases) -> tuple[Series, ...]:
    """The dashed uprights: a line for each phase that came."""
    return tuple(
        Series(f"{name}: step {step:,}", colour=theme.tone(tone), dashed=True)
        for name, step, tone in zip(PHASES, phase_steps(phases), PHASE_TONES, strict=True)
        if step is not None
    )


def _steps(points: Sequence[Point]) -> Axis:
    first, last = points[0].step, points[-1].step
    room = max(1.08, (last / first) ** 0.06)
    ticks = [mark * 10.0**power for power in range(math.floor(math.log10(last)) + 1) for mark in (1, 3)]
    return Axis(
        "step", first / room, last * room, form=",d", kind="log", ticks=tuple(tick for tick in ticks if tick <= last)
    )


def _upright(step: int, across: Axis, colour: str) -> alt.Chart:
    """A dashed upright line at a step."""
    return (
        alt.Chart(pd.DataFrame([{"x": step}]))
        .mark_rule(color=colour, strokeDash=[6, 4], strokeWidth=1.4)
        .encode(x=plots.x(across))
    )


def _shares(title: str) -> Axis:
    """An axis of shares in percent."""
    return Axis(title, -3.0, 103.0, ticks=(0.0, 25.0, 50.0, 75.0, 100.0))


def _top(points: Sequence[Point], curves: Curves) -> float:
    """The end of an axis from 0 over all values of some curves."""
    return 1.06 * (max(value(point) for value in curves.values() for point in points) or 1.0)


def _around(title: str, points: Sequence[Point], curves: Curves) -> Axis:
    """An axis with 0 in it."""
    values = [0.0, *(value(point) for value in curves.values() for point in points)]
    room = 0.05 * ((max(values) - min(values)) or 1.0)
    return Axis(title, min(values) - room, max(values) + room)


# -- truncations


def truncations(cuts: MatrixCuts, full: Measures) -> list[Panel]:
    """Accuracy, p(τ) and noisy loss of a matrix against the fraction of its rank that is kept."""
    panels = [
        _truncation(cuts.matrix, measure, _kept(cuts, measure), full.of(measure), cuts.deleted.of(measure))
        for measure in MEASURES
    ]
    return [panel for panel in panels if panel is not None]


def _kept(cuts: MatrixCuts, measure: str) -> list[list[Row]]:
    series: list[list[Row]] = [
        [(row.keep, row.of(measure), None, None) for row in rows if row.keep] for rows in (cuts.top, cuts.bottom)
    ]
    drawn = [(row.keep, cuts.drawn(row.rank, measure)) for row in cuts.top if row.keep]
    return [*series, [(keep, spread.mean, spread.least, spread.most) for keep, spread in drawn if spread]]


def study_truncations(group: Group) -> list[Panel]:
    """Accuracy and p(τ) of the central matrices' truncations, means over seeds with bars from lowest to highest."""
    panels = []
    for matrix in group.central:
        deleted = group.control(matrix, "deletion")
        rows = [group.rows(matrix, side="top"), group.rows(matrix, side="bottom"), group.rows(matrix, "random")]
        for measure in ("clean_accuracy", "p_noise"):
            kept = [[_row(row.keep, row.of(measure)) for row in of_series if row.keep] for of_series in rows]
            panel = _truncation(matrix, measure, kept, group.full.of(measure).mean, deleted.of(measure).mean)
            panels += [panel] if panel else []
    return panels


def _row(x: float, spread: Spread) -> Row:
    several = spread.std is not None
    return x, spread.mean, spread.least if several else None, spread.most if several else None


def _truncation(matrix: str, measure: str, kept: Sequence[Sequence[Row]], full: float, deleted: float) -> Panel | None:
    """A measure against the share of the rank that is kept; None where no share above 0 is.

    Args:
        kept: the rows of each of `KEPT`.
        full: the measure of the full model.
        deleted: with the whole matrix deleted.
    """
    title, name = MEASURES[measure]
    unit = 1.0 if measure == "noisy_loss" else 100.0
    rows = [
        {"series": series.name, "x": 100 * x, "y": unit * y}
        | {"low": None if low is None else unit * low, "high": None if high is None else unit * high}
        for series, of_series in zip(KEPT, kept, strict=True)
        for x, y, low, high in of_series
    ]
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=COLUMNS).astype({"low": float, "high": float})
    keeps = sorted(set(frame["x"]))
    room = max(1.08 if len(keeps) > 1 else 1.6, (keeps[-1] / keeps[0]) ** 0.06)
    across = Axis("rank kept, %", keeps[0] / room, keeps[-1] * room, form="~g", kind="log", ticks=tuple(keeps))
    if measure == "noisy_loss":
        upright = Axis(name, 0.0, 1.06 * max(frame["y"].max(), frame["high"].fillna(0).max(), full, deleted))
    else:
        upright = _shares(name)
    chart = plots.curves(
        frame,
        across,
        upright,
        [series.name for series in KEPT],
        numbers=[series.index for series in KEPT],
        spread="bars",
        guide=_guide(frame, f"{wording.SPACE}% of the rank kept"),
    )
    levels = (
        plots.level(unit * full, upright, colour=FULL.colour, dash=(6.0, 4.0)),
        plots.level(unit * deleted, upright),
    )
    return Panel((alt.layer(*levels, chart),), f"{matrix}: {title}")


def truncation_legend(*, random: bool = True) -> tuple[Series, ...]:
    """The legend of a figure of truncations; without random projections where there are none."""
    return (*KEPT[: 3 if random else 2], FULL, DELETED)


# -- the noise


def noise(groups: Sequence[Group]) -> tuple[Panel, tuple[Series, ...]] | None:
    """The full model's p(τ) against α, a line for each recipe otherwise alike, and its legend; None of one α."""
    noises = sorted({group.recipe.noise for group in groups})
    if len(noises) < 2:
        return None
    alike: dict[Recipe, list[Group]] = {}
    for group in groups:
        alike.setdefault(replace(group.recipe, noise=0.0, seed=0), []).append(group)
    rows = []
    names = []
    for members in alike.values():
        names.append(group_name(members[0]).partition(", ")[2] if len(alike) > 1 else "the full model")
        for group in sorted(members, key=lambda group: group.recipe.noise):
            _, mean, low, high = _row(group.recipe.noise, group.full.p_noise)
            spread = {"low": None if low is None else 100 * low, "high": None if high is None else 100 * high}
            rows.append({"series": names[-1], "x": group.recipe.noise, "y": 100 * mean, **spread})
    frame = pd.DataFrame(rows, columns=COLUMNS).astype({"low": float, "high": float})
    room = 0.06 * (noises[-1] - noises[0])
    across = Axis("α", noises[0] - room, noises[-1] + room, form="~g", ticks=tuple(noises))
    upright = _shares("p(τ) on clean sequences, %")
    equal = (
        alt.Chart(pd.DataFrame([{"x": end, "y": 100 * end} for end in (noises[0], noises[-1])]))
        .mark_line(color=theme.tone(6), strokeDash=[6, 4], strokeWidth=1.4)
        .encode(x=plots.x(across), y=plots.y(upright))
    )
    guide = _guide(frame, before="α ")
    chart = plots.curves(frame, across, upright, names, spread="bars", guide=guide)
    legend = (
        *(Series(name, index) for index, name in enumerate(names)),
        Series("p(τ) = α", colour=theme.tone(6), dashed=True),
    )
    return Panel((alt.layer(equal, chart),)), legend


def _guide(frame: pd.DataFrame, after: str = "", before: str = "") -> pd.DataFrame:
    """What pointing at a place of the horizontal axis tells: the numbers of all series there."""
    of_x: dict[float, list[str]] = {}
    for row in frame.astype(object).to_dict("records"):
        lines = of_x.setdefault(row["x"], [f"{before}{wording.figures(row['x'], 6)}{after}"])
        known = pd.notna(row["low"]) and pd.notna(row["high"])
        spread = f" {wording.plain_interval(row['low'], row['high'])}" if known else ""
        lines.append(f"{row['series']}: {_number(row['y'])}{spread}")
    return pd.DataFrame([{"x": x, "tip": "\n".join(lines)} for x, lines in of_x.items()], columns=["x", "tip"])


def _number(value: float) -> str:
    return wording.figures(value, 4).replace("-", wording.MINUS)
