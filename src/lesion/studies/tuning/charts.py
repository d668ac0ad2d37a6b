"""The charts of a tuning study: what every arm gains, seed by seed, its loss or reward, and the blocks' drops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import pandas as pd

from lesion.report import heatmap, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.studies.tuning.result import ArmResult, Change, Drops, TuningSummary
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM

POINTS = "change of accuracy, points"
TONES = {CRITICAL: 1, LEAST: 0, RANDOM: 6, ALL_ADAPTER: 2, ALL_FULL: 3}
"""Colours of the arms with names; arms of named blocks have the others, in order."""
OTHERS = tuple(index for index in range(len(theme.TONES)) if index not in TONES.values())
MARKS = 12
"""A curve has about so many marks."""
CROWDED = 40
"""From so many blocks on, cells are too narrow for a number."""


class Row(NamedTuple):
    """A row of a chart of changes."""

    label: str
    change: Change
    tone: int


def tones(summary: TuningSummary) -> dict[str, int]:
    """The number of every arm's colour and mark, by its name."""
    others = [arm.name for arm in summary.arms if arm.name not in TONES]
    return {**TONES, **{name: OTHERS[place % len(OTHERS)] for place, name in enumerate(others)}}


def gains(summary: TuningSummary, task: int) -> list[Row]:
    """The change of every arm on a task, by its place among the tasks: the studied one is 0, controls follow."""
    colours = tones(summary)
    return [Row(arm.label, arm.tasks[task].change, colours[arm.name]) for arm in summary.arms]


def differences(summary: TuningSummary) -> list[Row]:
    """Critical blocks minus the others, on the studied task."""
    colours, labels = tones(summary), {arm.name: arm.label for arm in summary.arms}
    return [Row(f"over {labels[pair.second]}", pair, colours[pair.second]) for pair in summary.differences]


def changes_chart(rows: Sequence[Row], beside: Sequence[Row] = ()) -> alt.LayerChart:
    """Changes in points with their intervals, from the top down, and a small dot for every seed.

    `beside` are rows of other charts that should have the same axis.
    """
    frame = pd.DataFrame(
        [
            {"y": row.label, "x": 100 * row.change.value, "low": 100 * row.change.low, "high": 100 * row.change.high}
            | {"colour": theme.tone(row.tone), "tip": _tip(row)}
            for row in rows
        ]
    )
    repeats = pd.DataFrame(
        [
            (row.label, 100 * value, theme.tone(row.tone))
            for row in rows
            for value in row.change.seeds
            if len(row.change.seeds) > 1
        ],
        columns=["y", "x", "colour"],
    )
    changes = [row.change for row in (*rows, *beside)]
    ends = [0.0, *(100 * value for change in changes for value in (change.low, change.high, *change.seeds))]
    room = max(0.05 * (max(ends) - min(ends)), 0.5)
    return plots.forest(
        frame, Axis(POINTS, float(math.floor(min(ends) - room)), float(math.ceil(max(ends) + room))), repeats=repeats
    )


def _tip(row: Row) -> str:
    change = row.change
    text = f"{row.label}\n{wording.signed(change.value)} points {wording.interval(change.low, change.high)}"
    if len(change.seeds) > 1:
        text += f"\nseeds: {', '.join(map(wording.signed, change.seeds))}"
    return text


def learned(summary: TuningSummary) -> list[ArmResult]:
    """The arms whose curve can be drawn."""
    return [arm for arm in summary.arms if arm.course(summary.measure)]


def course_chart(summary: TuningSummary) -> alt.LayerChart:
    """The loss or the reward of every arm at its learning rate, mean over seeds."""
    arms, colours = learned(summary), tones(summary)
    names, numbers = [arm.label for arm in arms], [colours[arm.name] for arm in arms]
    rows = [(arm.label, step, value) for arm in arms for step, value in arm.course(summary.measure)]
    frame = pd.DataFrame(rows, columns=["series", "x", "y"])
    steps = sorted(set(frame["x"]))
    across = Axis("step", 0.0, float(steps[-1]), whole=True)
    upright = Axis("mean reward", 0.0, 1.0) if summary.measure == "reward" else Axis("nats per answer token", low=0.0)
    guide = []
    for step, of_step in frame.groupby("x", sort=True):
        pairs = zip(of_step["series"], of_step["y"], strict=True)
        lines = [f"{name}: {wording.figures(value, 4)}" for name, value in pairs]
        guide.append({"x": step, "tip": "\n".join([f"step {step:,}", *lines])})
    tips = pd.DataFrame(guide)
    curves = plots.curves(frame, across, upright, names, numbers=numbers, spread="none", marks=False, guide=tips)
    marks = alt.Chart(frame[frame["x"].isin(steps[:: math.ceil(len(steps) / MARKS)])]).mark_point().encode(
        x=plots.x(across), y=plots.y(upright), color=plots.colour(names, numbers), shape=plots.shape(names, numbers)
    )  # fmt: skip
    return alt.layer(marks, curves)


def course_legend(summary: TuningSummary) -> tuple[Series, ...]:
    """The series of the chart of losses or rewards."""
    colours = tones(summary)
    return tuple(Series(arm.label, colours[arm.name]) for arm in learned(summary))


def drops_chart(drops: Drops) -> alt.LayerChart:
    """The drop of accuracy without each block; critical blocks are boxed."""
    rows = []
    for block, drop in enumerate(drops.drops):
        points, critical = wording.points(drop), block in drops.critical
        tip = f"{wording.place('block', block)}: {points} points{', critical' if critical else ''}"
        text = points if len(drops.drops) < CROWDED else ""
        rows.append({"x": block, "y": "drop", "value": drop, "marked": critical, "text": text, "tip": tip})
    full = max(0.05, *map(abs, drops.drops))
    chart = heatmap.heat(pd.DataFrame(rows), "block switched off", "", full=full, height=34)
    return chart.properties(width=theme.WIDTH)
