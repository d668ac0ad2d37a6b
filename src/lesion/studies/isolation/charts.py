"""The charts of an evaluation: every task along the share kept or the factor, and the skill against a control."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd

from lesion.report import axes, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.studies.isolation.evaluation import EvaluatedTask, Evaluation, TaskUnderEdit
from lesion.studies.isolation.sweeps import Along, Line

TITLES = {"keep": "share taken of every matrix", "factor": "factor on the selected weights"}
NEAR = 0.45
"""Accuracies that lie within less than this are drawn on an axis of their own range."""
UNCHANGED = 0.05
"""A task that no edit moves further from its baseline than this has no room of its own among the sweeps."""
HEIGHT = 320
LABEL = 0.09, 0.06
"""Room of a label, as shares of the chart's width and height."""
UNEDITED = {"color": theme.INK, "strokeDash": [6, 4], "strokeWidth": 1.2, "opacity": 0.7}
CHANCE = {"color": theme.SOFT, "strokeDash": [1.5, 4], "strokeWidth": 1.4}
TIP = alt.Tooltip(field="tip", type="nominal", title=" ")


def sweep(evaluation: Evaluation, lines: Sequence[Line], task: EvaluatedTask, along: Along) -> alt.LayerChart:
    """One task's accuracy (or perplexity) along the share kept or the factor, a line per series.

    Bars are the effects' intervals; grey bars beside them go from the lowest to the highest random control; small dots
    are repeats, with their mean on the line.
    """
    labels, numbers = [line.label for line in lines], line_numbers(evaluation, lines)
    across = _place_axis([stop.at for line in lines for stop in line.stops], along)
    upright = replace(result_axis(task, lines), title="perplexity" if task.scored else "accuracy")
    points = _points(evaluation, lines, y=task)
    steps = points["series"].map(labels.index) - (len(labels) - 1) / 2
    points = points.assign(x=beside(points["at"], steps, across))
    means = _means(points).rename(columns={"y_low": "low", "y_high": "high"})
    means.loc[means["repeats"] > 1, ["low", "high"]] = math.nan
    random = points.assign(x=beside(points["x"], 0.35, across)).dropna(subset="random_y")
    grey = alt.Chart(random[["x", "random_y", "random_y_low", "random_y_high"]]).encode(x=plots.x(across))
    dots = alt.Chart(_repeats(points)).mark_circle(size=14, opacity=0.6)
    return alt.layer(
        *_levels(task, upright, "y"),
        grey.mark_rule(color=theme.SOFT).encode(
            y=plots.y(upright, "random_y_low"), y2=alt.Y2(field="random_y_high")
        ),
        grey.mark_point(color=theme.SOFT, shape="cross", size=18).encode(y=plots.y(upright, "random_y")),
        dots.encode(x=plots.x(across), y=plots.y(upright), color=plots.colour(labels, numbers)),
        plots.curves(means, across, upright, labels, numbers=numbers, spread="bars"),
    )  # fmt: skip


def tradeoff(
    evaluation: Evaluation, lines: Sequence[Line], skill: EvaluatedTask, control: EvaluatedTask, *, boost: bool
) -> alt.LayerChart:
    """Accuracy on the skill (to the right) against a control (upwards), a line per method.

    After Christ et al. (2024, Figures 2 and 3): the ideal of pruning is the top left (the skill lost, the control
    kept), that of boosting the top right. Bars are intervals, grey those of the random controls; the unedited model is
    dashed, chance dotted. Edits that no other beats in both are labelled.
    """
    # One measure for both accuracies: a trifle of the control must not look like the loss of the skill.
    closer = all(near(results(task, lines)) for task in (skill, control) if not task.scored)
    across, upright = (result_axis(task, lines, closer=closer) for task in (skill, control))
    x, y = plots.x(across), plots.y(upright)
    labels, numbers = [line.label for line in lines], line_numbers(evaluation, lines)
    colour = plots.colour(labels, numbers)
    points = _points(evaluation, lines, x=skill, y=control)
    means = _means(points)
    random = points.dropna(subset=["random_x", "random_y"]).drop(columns=["tip", "edit"])
    tie = alt.Chart(random).mark_rule(color=theme.SOFT, strokeDash=[1, 3], opacity=0.55)
    single = alt.Chart(points[~points["stop"].duplicated(keep=False)]).mark_rule(opacity=0.5).encode(color=colour)
    dots = alt.Chart(_repeats(points)).mark_circle(size=16, opacity=0.6)
    base = alt.Chart(means).encode(x=x, y=y, color=colour)
    return alt.layer(
        *_ideal(boost=boost),
        *_levels(skill, across, "x"),
        *_levels(control, upright, "y"),
        tie.encode(
            x=plots.x(across, "random_x"), y=plots.y(upright, "random_y"), x2=alt.X2(field="x"), y2=alt.Y2(field="y")
        ),
        *_bars(alt.Chart(random).mark_rule(color=theme.SOFT, opacity=0.8), across, upright, "random_"),
        *_bars(single, across, upright),
        base.mark_line().encode(order=alt.Order(field="stop", type="quantitative")),
        dots.encode(x=x, y=y, color=colour, tooltip=TIP),
        base.mark_point(size=46).encode(shape=plots.shape(labels, numbers), tooltip=TIP),
        *_labels(means, across, upright, colour, boost=boost),
    ).properties(height=HEIGHT)


MOST_ROWS = 8
"""Of the chart of drops."""


def drops(evaluation: Evaluation) -> alt.LayerChart | None:
    """The drop of every task under the edits that take most of the first task, random controls as small dots.

    None where no task has an accuracy.
    """
    tasks = [task for task in evaluation.tasks if not task.scored and task.effects]
    if not tasks:
        return None
    main = next((task for task in tasks if task.role == "skill"), tasks[0])
    edits = sorted(main.effects, key=lambda edit: -abs(main.effects[edit].change.value or 0.0))
    tried = {edit.edit for edit in evaluation.tried}
    strongest = [edit for edit in edits if edit in tried][: max(1, MOST_ROWS // len(tasks))]
    several = len(strongest) > 1
    rows, random = [], []
    for edit in strongest:
        for task in tasks:
            effect = task.effects.get(edit)
            if effect is None:
                continue
            name = f"{wording.short(evaluation.name_of(edit), 30)}\n{task.name}" if several else task.name
            change = effect.change
            colour = theme.LOSS if task is main else theme.GAIN
            tip = f"{evaluation.name_of(edit)}\n{task.name}: {effect_text(task, effect)}"
            ends = {"x": change.value, "low": change.low, "high": change.high}
            row: dict[str, object] = {"y": name}
            row |= {field: None if end is None else 100 * end for field, end in ends.items()}  # in points
            row |= {"model": evaluation.model, "task": task.name, "edit": edit}
            rows.append(row | {"colour": colour, "tip": tip})
            base = task.baseline.result.value
            if effect.random is not None and base is not None:
                draws = (effect.random.lowest, effect.random.mean, effect.random.highest)
                random += [
                    {"y": name, "x": 100 * (base - end), "colour": theme.SOFT} for end in draws if end is not None
                ]
    frame = pd.DataFrame(rows)
    known = [value for field in ("x", "low", "high") for value in frame[field] if value is not None]
    known += [float(str(row["x"])) for row in random]
    room = 0.04 * (max(10.0, *known) - min(0.0, *known))
    across = Axis("drop in accuracy, points", min(0.0, *known) - room, max(10.0, *known) + room)
    return plots.forest(frame, across, repeats=pd.DataFrame(random) if random else None)


def _points(evaluation: Evaluation, lines: Sequence[Line], **tasks: EvaluatedTask) -> pd.DataFrame:
    """A row per edit that was evaluated on all tasks, each of which has a channel, x or y.

    A channel has four columns (y, y_low, y_high) and those of its random controls (random_y, …); `stop` numbers the
    stops of all lines, and `label` is what varies along a line.
    """
    rows = []
    stops = [(line, stop) for line in lines for stop in line.stops]
    for number, (line, stop) in enumerate(stops):
        for edit in stop.edits:
            effects = {channel: task.effects.get(edit.edit) for channel, task in tasks.items()}
            if None in effects.values():
                continue
            label = wording.factor(stop.at) if line.along == "factor" else wording.keep(stop.at)
            texts = [f"{task.name}: {effect_text(task, task.effects[edit.edit])}" for task in tasks.values()]
            row: dict[str, object] = {"series": line.label, "stop": number, "at": stop.at}
            tip = "\n".join([evaluation.name_of(edit.edit), *texts])
            row |= {"label": "" if math.isnan(stop.at) else label, "tip": tip}
            row |= {"model": evaluation.model, "task": next(iter(tasks.values())).name, "edit": edit.edit}
            for channel, effect in effects.items():
                assert effect is not None
                result, random = effect.result, effect.random
                row |= {channel: result.value, f"{channel}_low": result.low, f"{channel}_high": result.high}
                row |= {f"random_{channel}": random and random.mean, f"random_{channel}_low": random and random.lowest}
                row |= {f"random_{channel}_high": random and random.highest}
            rows.append(row)
    return pd.DataFrame(rows)


def _means(points: pd.DataFrame) -> pd.DataFrame:
    """A row per stop: the means of x and y over its repeats, what all of them tell, and else what the first has."""
    groups = points.groupby("stop")
    texts = groups["tip"].agg("\n".join)
    means = groups.first().assign(**groups[["x", "y"]].mean(), tip=texts, repeats=groups.size())
    return means.reset_index()


def _repeats(points: pd.DataFrame) -> pd.DataFrame:
    return points[points["stop"].duplicated(keep=False)]


def _bars(base: alt.Chart, across: Axis, upright: Axis, prefix: str = "") -> list[alt.Chart]:
    """Bars in both directions around the points of the columns PREFIXx and PREFIXy."""
    x, y = f"{prefix}x", f"{prefix}y"
    return [
        base.encode(x=plots.x(across, f"{x}_low"), x2=alt.X2(field=f"{x}_high"), y=plots.y(upright, y)),
        base.encode(x=plots.x(across, x), y=plots.y(upright, f"{y}_low"), y2=alt.Y2(field=f"{y}_high")),
    ]


def _labels(means: pd.DataFrame, across: Axis, upright: Axis, colour: alt.Color, *, boost: bool) -> list[alt.Chart]:
    """Labels of the unbeaten marks on their ideal side, where by definition no other mark lies."""
    places: list[tuple[float, float]] = []
    rows = []
    for mark in unbeaten(means, boost=boost, less_is_better=upright.kind == "log").to_dict("records"):
        at, height = _position(mark["x"], across), _position(mark["y"], upright)
        if not mark["label"] or any(abs(at - x) < LABEL[0] and abs(height - y) < LABEL[1] for x, y in places):
            continue
        places.append((at, height))
        right = (at <= 1 - LABEL[0]) if boost else (at < LABEL[0])
        side = {"align": "left", "dx": 6} if right else {"align": "right", "dx": -6}
        rows.append({key: mark[key] for key in ("series", "x", "y", "label")} | side)
    base = alt.Chart(pd.DataFrame(rows, columns=["series", "x", "y", "label", "align", "dx"])).encode(
        x=plots.x(across), y=plots.y(upright), text=alt.Text(field="label", type="nominal")
    )
    style = {"dy": -8, "fontWeight": "bold", "align": alt.ExprRef("datum.align"), "dx": alt.ExprRef("datum.dx")}
    return [
        base.mark_text(color=theme.PAPER, stroke=theme.PAPER, strokeWidth=3, **style),
        base.mark_text(**style).encode(color=colour),
    ]


def unbeaten(marks: pd.DataFrame, *, boost: bool, less_is_better: bool) -> pd.DataFrame:
    """The marks that no other beats on skill (x) and control (y) together: the Pareto front to the ideal corner."""
    x = marks["x"] if boost else -marks["x"]
    y = -marks["y"] if less_is_better else marks["y"]
    beaten = [bool(((x >= a) & (y >= b) & ((x > a) | (y > b))).any()) for a, b in zip(x, y, strict=True)]
    return marks[~np.array(beaten)]


def _position(value: float, axis: Axis) -> float:
    """Where a value lies along an axis, 0…1."""
    scale = math.log if axis.kind == "log" else float
    low, at, high = (scale(end) for end in (axis.low or 0.0, value, axis.high or 1.0))
    return (at - low) / (high - low)


def _ideal(*, boost: bool) -> list[alt.Chart]:
    """The ideal corner: top right for a boost, else top left."""
    corner = alt.Chart(pd.DataFrame([{"text": "ideal"}])).encode(
        x=alt.XValue("width" if boost else 0), y=alt.YValue(0), tooltip=alt.TooltipValue(None)
    )
    begin = math.pi if boost else 0.5 * math.pi
    side = {"align": "right", "dx": -8} if boost else {"align": "left", "dx": 8}
    return [
        corner.mark_arc(theta=begin, theta2=begin + 0.5 * math.pi, outerRadius=52, color=theme.SHARE, opacity=0.22),
        corner.mark_text(dy=40, color=theme.SOFT, **side).encode(text=alt.Text(field="text", type="nominal")),
    ]


def _levels(task: EvaluatedTask, axis: Axis, channel: str) -> list[alt.Chart]:
    """The unedited model as a dashed line, and chance as a dotted one."""
    encode = plots.x if channel == "x" else plots.y
    return [
        alt.Chart(pd.DataFrame([{channel: value}])).mark_rule(**style).encode(**{channel: encode(axis)})
        for value, style in ((task.baseline.result.value, UNEDITED), (task.chance_line, CHANCE))
        if value is not None
    ]


def beside(value: pd.Series[float], steps: pd.Series[float] | float, across: Axis) -> pd.Series[float]:
    """Places so many steps, of a hundredth of the axis each, beside others: marks at one place stay apart."""
    low, high = across.low or 0.0, across.high or 1.0
    return value * (high / low) ** (0.01 * steps) if across.kind == "log" else value + 0.01 * steps * (high - low)


def line_numbers(evaluation: Evaluation, lines: Sequence[Line]) -> list[int]:
    """The number of each line's colour and mark: a method's first line has the same one in every chart."""
    numbers, methods = [], evaluation.methods
    for place, line in enumerate(lines):
        earlier = sum(other.method == line.method for other in lines[:place])
        numbers.append(methods.index(line.method) + len(methods) * earlier)
    return numbers


def legend(evaluation: Evaluation, lines: Sequence[Line], tasks: Iterable[EvaluatedTask]) -> tuple[Series, ...]:
    """A key for each line, the random controls, the unedited model and, where it is drawn, chance."""
    drawn = list(tasks)
    effects = [task.effects.get(edit.edit) for task in drawn for line in lines for edit in line.edits]
    series = [Series(line.label, number) for line, number in zip(lines, line_numbers(evaluation, lines), strict=True)]
    if any(effect is not None and effect.random is not None for effect in effects):
        series.append(Series("matched random controls", theme.SHAPES.index("cross"), colour=theme.SOFT))
    series.append(Series("unedited", colour=theme.INK, dashed=True))
    if any(task.chance_line is not None for task in drawn):
        series.append(Series("chance", colour=theme.SOFT, dashed=True))
    return tuple(series)


def effect_text(task: EvaluatedTask, effect: TaskUnderEdit) -> str:
    """An effect in words: the result and its change with intervals, and the random controls beside it."""
    result, change, random = effect.result, effect.change, effect.random
    if task.scored:
        text = f"perplexity {wording.perplexity(result.value)} {wording.plain_interval(result.low, result.high)}"
        if change.value is not None:
            text += f", ×{change.value:.3f} {wording.plain_interval(change.low, change.high)}"
    else:
        text = f"{wording.percent(result.value)} {wording.interval(result.low, result.high)}"
        if change.value is not None:
            text += f", drop {wording.points(change.value)} {wording.interval(change.low, change.high)}"
    if random is not None and random.mean is not None:
        write = wording.perplexity if task.scored else wording.percent
        text += f"; random {write(random.mean)} ({write(random.lowest)} to {write(random.highest)})"
    return text


def result_axis(task: EvaluatedTask, lines: Sequence[Line], *, closer: bool | None = None) -> Axis:
    """The axis of a task's accuracy in percent, or of its perplexity, logarithmic with less at the far end.

    `closer`: whether accuracies have an axis of their own range; by default where they lie near each other.
    """
    values, name = results(task, lines), wording.short(task.name, 34)
    if task.scored:
        axis = axes.ratio_axis(f"perplexity on {name}", values)
        return replace(axis, low=axis.high, high=axis.low, form=".3~g")
    low, high = min(values, default=0.0), max(values, default=1.0)
    if not (near(values) if closer is None else closer):
        low, high, step = min(0.0, low) - 0.03, max(1.0, high) + 0.03, 0.25
    else:
        room = max(0.02, 0.12 * (high - low))
        low, high = max(-room, low - room), min(1 + room, high + room)
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if (high - low) / step <= 7)
    ticks = [round(number * step, 6) for number in range(round(1 / step) + 1)]
    return Axis(f"accuracy on {name}", low, high, form=".0%", ticks=tuple(tick for tick in ticks if low < tick < high))


def unchanged(task: EvaluatedTask, lines: Sequence[Line]) -> bool:
    """Whether no accuracy along the lines lies further than `UNCHANGED` from the unedited one."""
    base = task.baseline.result.value
    effects = [task.effects.get(edit.edit) for line in lines for edit in line.edits]
    values = [effect.result.value for effect in effects if effect is not None and effect.result.value is not None]
    return not task.scored and base is not None and all(abs(value - base) <= UNCHANGED for value in values)


def near(values: Sequence[float]) -> bool:
    """Whether all accuracies lie within less than `NEAR`."""
    return not values or max(values) - min(values) < NEAR


def results(task: EvaluatedTask, lines: Sequence[Line]) -> list[float]:
    """Everything of a task that a chart draws: results with intervals, random controls, the baseline, chance."""
    baseline = task.baseline.result
    values = [baseline.value, baseline.low, baseline.high, task.chance_line]
    for effect in (task.effects.get(edit.edit) for line in lines for edit in line.edits):
        if effect is not None:
            values += [effect.result.value, effect.result.low, effect.result.high]
            values += [effect.random.lowest, effect.random.highest] if effect.random else []
    return [value for value in values if value is not None]


def _place_axis(places: Sequence[float], along: Along) -> Axis:
    """The axis of the shares kept (logarithmic) or the factors, whose ticks are the values themselves."""
    if along == "keep":
        return replace(axes.ratio_axis(TITLES[along], places, own=True), form=".4~p")
    ticks = sorted({*places, 1.0})
    room = 0.08 * (ticks[-1] - ticks[0]) or 0.1
    return Axis(TITLES[along], ticks[0] - room, ticks[-1] + room, form=".6~g", ticks=tuple(ticks))
