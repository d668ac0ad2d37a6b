"""The charts of the recall laboratory: training with its two phases, truncations beside controls, p(τ) against α."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from lesion.report import axes, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Panel, Series
from lesion_labs.curves import over_training, step_axis
from lesion_labs.recall.recipe import Recipe
from lesion_labs.recall.result import Phases, Point, RecallSummary, Spread
from lesion_labs.recall.study_findings import group_name
from lesion_labs.recall.study_result import Group

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
RANKED = ("F1.in", "F1.out", "F1", "F2.in", "F2.out", "F2", "W_OV1", "W_OV2", "W_K1", "W_K2")
"""The matrices whose soft ranks are drawn."""
DASHES = {"strokeDash": [6, 4], "strokeWidth": 1.4}

Curves = Mapping[str, Callable[[Point], float]]
Kept = Iterable[tuple[float | None, Spread]]
"""Shares of the rank kept, with a measure of the model then."""


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
    margins: Curves = {name: _named("margins", name) for name in points[-1].margins}
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
    soft_ranks: Curves = {name: _named("soft_ranks", name) for name in RANKED if name in summary.matrices}

    def values(curves: Curves) -> list[float]:
        return [value(point) for value in curves.values() for point in points]

    around = [0.0, *values(margins)]
    room = 0.05 * ((max(around) - min(around)) or 1.0)
    margin_axis = Axis("logit of τ over the next best", min(around) - room, max(around) + room)
    norms = axes.from_zero("‖W‖ Frobenius / spectral", values(soft_ranks))
    panels = [
        ("Predictions on clean sequences", answers, axes.shares("mean, %"), 100 * summary.recipe.noise),
        ("Loss", losses, axes.from_zero("nats", values(losses)), summary.floor),
        ("Trigger margins of the feed-forwards", margins, margin_axis, 0.0),
        ("Where the heads attend", masses, axes.shares("mean mass, %"), None),
        ("Probes of the matrices", probes, axes.shares("share remembered, %"), None),
        ("Soft ranks", soft_ranks, norms, None),
    ]
    return [
        _over_training(title, points, curves, upright, reference, summary.phases)
        for title, curves, upright, reference in panels
        if curves
    ]


def _named(field: str, name: str) -> Callable[[Point], float]:
    return lambda point: float(getattr(point, field)[name])


def _over_training(
    title: str, points: Sequence[Point], curves: Curves, upright: Axis, reference: float | None, phases: Phases
) -> Panel:
    frame = plots.data(
        (name, point.step, value(point), None, None) for name, value in curves.items() for point in points
    )
    moments = [
        alt.Chart(pd.DataFrame([{"x": step}]))
        .mark_rule(color=theme.tone(tone), **DASHES)
        .encode(x=plots.x(step_axis(frame["x"])))
        for step, tone in zip(phase_steps(phases), PHASE_TONES, strict=True)
        if step is not None
    ]
    chart = over_training(frame, upright, list(curves), reference=reference, moments=moments)
    return Panel((chart,), title, tuple(Series(name, index) for index, name in enumerate(curves)))


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


def truncations(summary: RecallSummary, matrix: str) -> list[Panel]:
    """Accuracy, p(τ) and noisy loss against the share of a matrix's rank that is kept, with the spread over draws."""
    (deleted,) = summary.rows(matrix, "deletion")
    sides = [summary.rows(matrix, side="top"), summary.rows(matrix, side="bottom")]
    panels = []
    for measure in MEASURES:
        kept: list[Kept] = [[(row.keep, Spread.over([row.of(measure)])) for row in rows] for rows in sides]
        drawn = [(row.keep, summary.drawn(matrix, row.rank, measure)) for row in sides[0]]
        kept.append([(keep, spread) for keep, spread in drawn if spread])
        panels += _truncation(matrix, measure, kept, summary.full.of(measure), deleted.of(measure))
    return panels


def study_truncations(group: Group) -> list[Panel]:
    """Accuracy and p(τ) of the central matrices' truncations, means over seeds with bars from lowest to highest."""
    panels = []
    for matrix in group.central:
        (deleted,) = group.rows(matrix, "deletion")
        sides = [group.rows(matrix, side="top"), group.rows(matrix, side="bottom"), group.rows(matrix, "random")]
        for measure in ("clean_accuracy", "p_noise"):
            kept = [[(row.keep, row.of(measure)) for row in rows] for rows in sides]
            panels += _truncation(matrix, measure, kept, group.full.of(measure).mean, deleted.of(measure).mean)
    return panels


def _truncation(matrix: str, measure: str, kept: Sequence[Kept], full: float, deleted: float) -> list[Panel]:
    """A measure against the share of the rank that is kept; nothing where no share above 0 is.

    Args:
        kept: for each of `KEPT`.
        full: the measure of the full model.
        deleted: with the whole matrix deleted.
    """
    title, name = MEASURES[measure]
    unit = 1.0 if measure == "noisy_loss" else 100.0
    frame = plots.data(
        _row(series.name, 100 * keep, spread, unit)
        for series, spreads in zip(KEPT, kept, strict=True)
        for keep, spread in spreads
        if keep
    )
    if frame.empty:
        return []
    across = axes.ratio_axis("rank kept, %", frame["x"], own=True)
    upright = axes.shares(name)
    if measure == "noisy_loss":
        upright = axes.from_zero(name, [*frame["y"], *frame["high"], full, deleted])
    chart = plots.curves(
        frame,
        across,
        upright,
        [series.name for series in KEPT],
        numbers=[series.index for series in KEPT],
        spread="bars",
        guide=plots.readings(frame, lambda keep: f"{keep:g}{wording.SPACE}% of the rank kept"),
    )
    whole = plots.level(unit * full, upright, colour=FULL.colour, dash=(6.0, 4.0))
    return [Panel((alt.layer(whole, plots.level(unit * deleted, upright), chart),), f"{matrix}: {title}")]


def _row(name: str, x: float, spread: Spread, unit: float) -> plots.Row:
    low, high = (None if end is None else unit * end for end in spread.ends)
    return name, x, unit * spread.mean, low, high


def truncation_legend(*, random: bool = True) -> tuple[Series, ...]:
    """The legend of a figure of truncations; without random projections where there are none."""
    return (*KEPT[: 3 if random else 2], FULL, DELETED)


def noise(groups: Sequence[Group]) -> tuple[Panel, tuple[Series, ...]] | None:
    """The full model's p(τ) against α, a line for each recipe otherwise alike, and its legend; None of one α."""
    noises = sorted({group.recipe.noise for group in groups})
    if len(noises) < 2:
        return None
    alike: dict[Recipe, list[Group]] = {}
    for group in groups:
        alike.setdefault(replace(group.recipe, noise=0.0, seed=0), []).append(group)
    curves = {
        group_name(members[0]).partition(", ")[2] if len(alike) > 1 else "the full model": members
        for members in alike.values()
    }
    frame = plots.data(
        _row(name, group.recipe.noise, group.full.p_noise, 100.0)
        for name, members in curves.items()
        for group in sorted(members, key=lambda group: group.recipe.noise)
    )
    room = 0.06 * (noises[-1] - noises[0])
    across = Axis("α", noises[0] - room, noises[-1] + room, form="~g", ticks=tuple(noises))
    upright = axes.shares("p(τ) on clean sequences, %")
    ends = pd.DataFrame([{"x": end, "y": 100 * end} for end in (noises[0], noises[-1])])
    equal = alt.Chart(ends).mark_line(color=theme.tone(6), **DASHES).encode(x=plots.x(across), y=plots.y(upright))
    guide = plots.readings(frame, lambda noise: f"α {noise:g}")
    chart = plots.curves(frame, across, upright, list(curves), spread="bars", guide=guide)
    legend = [Series(name, index) for index, name in enumerate(curves)]
    return Panel((alt.layer(equal, chart),)), (*legend, Series("p(τ) = α", colour=theme.tone(6), dashed=True))
