"""Curves over training, as both laboratories draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import altair as alt
import pandas as pd

from lesion.report import axes, plots
from lesion.report.axes import Axis

MARKED = 12
"""A curve over training has at most so many marks."""


def over_training(
    frame: pd.DataFrame,
    upright: Axis,
    names: Sequence[str],
    *,
    numbers: Sequence[int] | None = None,
    reference: float | None = None,
    foot: float | None = None,
    moments: Iterable[alt.Chart] = (),
) -> alt.LayerChart:
    """Curves against the logarithm of the step, with a few marks.

    Args:
        frame: columns series, x (the step), y, low and high.
        upright: the axis of y.
        names: of the series, in the order of their colours.
        numbers: of their colours, where these are not 0, 1, 2, …
        reference: a level that is drawn behind the curves.
        foot: what is below it is drawn there.
        moments: more that is drawn behind the curves.
    """
    across = step_axis(frame["x"])
    drawn = frame.assign(**frame[["y", "low", "high"]].clip(lower=foot))
    marked = drawn[drawn["x"].isin(marked_steps(sorted(set(frame["x"]))))].assign(low=None, high=None)
    return alt.layer(
        *([] if reference is None else [plots.level(reference, upright)]),
        *moments,
        plots.curves(drawn, across, upright, names, numbers=numbers, marks=False),
        plots.points(marked, across, upright, names, numbers=numbers),
        plots.guides(plots.readings(frame, step_name), across),
    )


def marked_steps(steps: Sequence[float | int]) -> set[float | int]:
    """The steps that have a mark: those nearest to places that are evenly apart on a logarithmic axis."""
    first, ratio = steps[0], steps[-1] / steps[0]
    places = [first * ratio ** (number / (MARKED - 1)) for number in range(MARKED)]
    return {min(steps, key=lambda step: abs(math.log(step / place))) for place in places}


def step_axis(steps: Iterable[float | int]) -> Axis:
    """The logarithmic axis of steps."""
    return axes.ratio_axis("step", steps, whole=True)


def step_name(step: float | int) -> str:
    """`step 1,000`."""
    return f"step {step:,.0f}"
