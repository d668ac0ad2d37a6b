"""The trade-off chart: accuracy on the skill against a control, a line per method.

After Christ et al. (2024, Figures 2 and 3): the ideal of pruning is the top left (the skill lost, the control kept),
that of boosting the top right. Edits that no other beats in both are labelled; the rest tell their numbers on pointing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from lesion.report import plots, theme, wording
from lesion.report.plots import Axis
from lesion.studies.isolation.charts import CHANCE, UNEDITED, effect_text, line_numbers, near, result_axis, results
from lesion.studies.isolation.evaluation import EvaluatedTask, Evaluation, mean
from lesion.studies.isolation.sweeps import Line, Stop

HEIGHT = 320
LABEL = 0.09, 0.06
"""Room of a label, as shares of the chart's width and height."""


class Mark(NamedTuple):
    """A stop in the plane of two tasks: the means over its edits."""

    line: Line
    stop: Stop
    x: float
    y: float


def tradeoff(
    evaluation: Evaluation, lines: Sequence[Line], skill: EvaluatedTask, control: EvaluatedTask, *, boost: bool
) -> alt.LayerChart:
    """Every line with its intervals, random controls in grey, the unedited model dashed, chance dotted.

    Args:
        evaluation: what was measured.
        lines: what is drawn.
        skill: whose accuracy goes to the right.
        control: whose accuracy, or perplexity, goes upwards.
        boost: the ideal corner is the top right.
    """
    edits = [edit.edit for line in lines for stop in line.stops for edit in stop.edits]
    # One measure for both accuracies: a trifle of the control must not look like the loss of the skill.
    closer = all(near(results(task, edits)) for task in (skill, control) if not task.scored)
    across, upright = (result_axis(task, edits, closer=closer) for task in (skill, control))
    x, y = plots.x(across), plots.y(upright)
    labels, numbers = [line.label for line in lines], line_numbers(evaluation, lines)
    colour = plots.colour(labels, numbers)
    marks = middles(lines, skill, control)
    layers = [*_ideal(boost=boost), *_levels(skill, control, across, upright)]
    random = pd.DataFrame(_random(marks, skill, control))
    if not random.empty:
        grey = alt.Chart(random).encode()
        layers += [
            grey.mark_rule(color=theme.SOFT, strokeDash=[1, 3], opacity=0.55).encode(
                x=x, y=y, x2=alt.X2(field="edit_x"), y2=alt.Y2(field="edit_y")
            ),
            grey.mark_rule(color=theme.SOFT, opacity=0.8).encode(
                x=plots.x(across, "x_low"), x2=alt.X2(field="x_high"), y=y
            ),
            grey.mark_rule(color=theme.SOFT, opacity=0.8).encode(
                x=x, y=plots.y(upright, "y_low"), y2=alt.Y2(field="y_high")
            ),
        ]
    points = pd.DataFrame(_edits(evaluation, marks, skill, control))
    if points.empty:
        return alt.layer(*layers).properties(height=HEIGHT)
    tip = alt.Tooltip(field="tip", type="nominal", title=" ")
    single, repeated = (points[points["single"] == chosen] for chosen in (True, False))
    if not single.empty:
        base = alt.Chart(single).encode(color=colour)
        layers += [
            base.mark_rule(opacity=0.5).encode(x=plots.x(across, "x_low"), x2=alt.X2(field="x_high"), y=y),
            base.mark_rule(opacity=0.5).encode(x=x, y=plots.y(upright, "y_low"), y2=alt.Y2(field="y_high")),
        ]
    means = pd.DataFrame(_means(evaluation, marks, skill, control))
    base = alt.Chart(means).encode(color=colour)
    layers.append(base.mark_line().encode(x=x, y=y, order=alt.Order(field="order", type="quantitative")))
    if not repeated.empty:
        dots = alt.Chart(repeated).mark_circle(size=16, opacity=0.6)
        layers.append(dots.encode(x=x, y=y, color=colour, tooltip=tip))
    layers.append(base.mark_point(size=46).encode(x=x, y=y, shape=plots.shape(labels, numbers), tooltip=tip))
    layers += _labels(marks, across, upright, colour, boost=boost)
    return alt.layer(*layers).properties(height=HEIGHT)


def middles(lines: Sequence[Line], skill: EvaluatedTask, control: EvaluatedTask) -> list[Mark]:
    """The stops that were evaluated on both tasks."""
    marks = []
    for line in lines:
        for stop in line.stops:
            both = [edit.edit for edit in stop.edits if edit.edit in skill.effects and edit.edit in control.effects]
            x, y = (mean(task.effects[edit].result.value for edit in both) for task in (skill, control))
            if x is not None and y is not None:
                marks.append(Mark(line, stop, x, y))
    return marks


def stop_name(line: Line, stop: Stop) -> str:
    """What varies along a line, at one of its stops: `5 %` or `×1.1`; empty for an edit without a keep."""
    if line.along == "factor":
        return wording.factor(stop.at)
    return "" if math.isnan(stop.at) else wording.keep(stop.at)


def unbeaten(marks: Sequence[Mark], *, boost: bool, less_is_better: bool) -> list[Mark]:
    """The marks that no other beats on skill and control together (the Pareto front), towards the ideal corner."""

    def merits(mark: Mark) -> tuple[float, float]:
        return (mark.x if boost else -mark.x), (-mark.y if less_is_better else mark.y)

    def beaten(mark: Mark) -> bool:
        own = merits(mark)
        others = (merits(other) for other in marks)
        return any(other != own and other[0] >= own[0] and other[1] >= own[1] for other in others)

    return [mark for mark in marks if not beaten(mark)]


def _labels(marks: Sequence[Mark], across: Axis, upright: Axis, colour: alt.Color, *, boost: bool) -> list[alt.Chart]:
    """Labels of the unbeaten marks on their ideal side, where by definition no other mark lies."""
    kept: list[tuple[float, float]] = []
    rows = []
    for mark in unbeaten(marks, boost=boost, less_is_better=upright.kind == "log"):
        place = _share(mark.x, across), _share(mark.y, upright)
        text = stop_name(mark.line, mark.stop)
        if not text or any(abs(place[0] - x) < LABEL[0] and abs(place[1] - y) < LABEL[1] for x, y in kept):
            continue
        kept.append(place)
        edge = place[0] > 1 - LABEL[0] if boost else place[0] < LABEL[0]
        rows.append({"series": mark.line.label, "x": mark.x, "y": mark.y, "label": text, "edge": edge})
    layers = []
    for edge in (False, True):
        frame = pd.DataFrame([row for row in rows if row["edge"] == edge])
        if frame.empty:
            continue
        align: dict[str, Any] = {"align": "left", "dx": 6} if boost != edge else {"align": "right", "dx": -6}
        base = alt.Chart(frame).encode(
            x=plots.x(across), y=plots.y(upright), text=alt.Text(field="label", type="nominal")
        )
        style: dict[str, Any] = {"dy": -8, "fontWeight": "bold", **align}
        layers.append(base.mark_text(color=theme.PAPER, stroke=theme.PAPER, strokeWidth=3, **style))
        layers.append(base.mark_text(**style).encode(color=colour))
    return layers


def _share(value: float, axis: Axis) -> float:
    """Where a value lies along an axis, 0…1."""
    assert axis.low is not None
    assert axis.high is not None
    low, high = (axis.low, axis.high) if axis.kind == "linear" else (math.log(axis.low), math.log(axis.high))
    return ((value if axis.kind == "linear" else math.log(value)) - low) / (high - low)


def _edits(
    evaluation: Evaluation, marks: Sequence[Mark], skill: EvaluatedTask, control: EvaluatedTask
) -> list[dict[str, Any]]:
    """A row for every edit: its results with intervals, whether it stands alone at its stop, and what it tells."""
    rows = []
    for mark in marks:
        for edit in mark.stop.edits:
            if edit.edit not in skill.effects or edit.edit not in control.effects:
                continue
            x, y = skill.effects[edit.edit], control.effects[edit.edit]
            rows.append(
                {"series": mark.line.label, "x": x.result.value, "x_low": x.result.low, "x_high": x.result.high}
                | {"y": y.result.value, "y_low": y.result.low, "y_high": y.result.high}
                | {"single": len(mark.stop.edits) == 1, "tip": _tip(evaluation, edit.edit, skill, control)}
                | {"model": evaluation.model, "task": skill.name, "edit": edit.edit}
            )
    return rows


def _means(
    evaluation: Evaluation, marks: Sequence[Mark], skill: EvaluatedTask, control: EvaluatedTask
) -> list[dict[str, Any]]:
    """A row for every stop, in the order of its line."""
    rows = []
    for order, mark in enumerate(marks):
        edits = [e.edit for e in mark.stop.edits if e.edit in skill.effects and e.edit in control.effects]
        tip = "\n".join(_tip(evaluation, edit, skill, control) for edit in edits)
        rows.append(
            {"series": mark.line.label, "order": order, "x": mark.x, "y": mark.y, "tip": tip}
            | {"model": evaluation.model, "task": skill.name, "edit": edits[0]}
        )
    return rows


def _tip(evaluation: Evaluation, edit: str, skill: EvaluatedTask, control: EvaluatedTask) -> str:
    lines = [f"{task.name}: {effect_text(task, task.effects[edit])}" for task in (skill, control)]
    return "\n".join([evaluation.name_of(edit), *lines])


def _random(marks: Sequence[Mark], skill: EvaluatedTask, control: EvaluatedTask) -> list[dict[str, float | None]]:
    """The matched random controls of every edit: their means with the lowest and highest, and the edit's mark."""
    rows = []
    for mark in marks:
        for edit in mark.stop.edits:
            x, y = (task.effects[edit.edit].random if edit.edit in task.effects else None for task in (skill, control))
            if x is not None and y is not None:
                rows.append(
                    {"x": x.mean, "x_low": x.lowest, "x_high": x.highest, "edit_x": mark.x}
                    | {"y": y.mean, "y_low": y.lowest, "y_high": y.highest, "edit_y": mark.y}
                )
    return rows


def _levels(skill: EvaluatedTask, control: EvaluatedTask, across: Axis, upright: Axis) -> list[alt.Chart]:
    """The unedited model as dashed lines of both tasks, and chance as dotted ones."""
    layers = []
    for value, style in ((skill.baseline.result.value, UNEDITED), (skill.chance_line, CHANCE)):
        if value is not None:
            layers.append(alt.Chart(pd.DataFrame([{"x": value}])).mark_rule(**style).encode(x=plots.x(across)))
    for value, style in ((control.baseline.result.value, UNEDITED), (control.chance_line, CHANCE)):
        if value is not None:
            layers.append(alt.Chart(pd.DataFrame([{"y": value}])).mark_rule(**style).encode(y=plots.y(upright)))
    return layers


def _ideal(*, boost: bool) -> list[alt.Chart]:
    """The ideal corner: top right for a boost, else top left."""
    corner = alt.Chart(pd.DataFrame([{"text": "ideal"}])).encode(
        x=alt.value("width" if boost else 0), y=alt.value(0), tooltip=alt.value(None)
    )
    first, last = (math.pi, 1.5 * math.pi) if boost else (0.5 * math.pi, math.pi)
    side: dict[str, Any] = {"align": "right", "dx": -8} if boost else {"align": "left", "dx": 8}
    return [
        corner.mark_arc(theta=first, theta2=last, outerRadius=52, color=theme.SHARE, opacity=0.22),
        corner.mark_text(dy=40, color=theme.SOFT, **side).encode(text=alt.Text(field="text", type="nominal")),
    ]
