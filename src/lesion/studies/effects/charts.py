"""The charts of a study of effects: lens by layer, direct and total effect by block, block influence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt
import pandas as pd

from lesion.edits.place import Unit
from lesion.report import heatmap, plots, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.report.values import Estimate
from lesion.studies.effects.class_findings import accuracy_text
from lesion.studies.effects.result import ClassEffect, ClassTable, TaskEffects

EFFECTS = ("direct effect", "total effect")
"""The series of a chart of effects, in the order of their colours."""


def lens_chart(tasks: Sequence[TaskEffects], measure: str, title: str) -> alt.LayerChart:
    """One measure of the lens by layer, a curve per task with its interval as a band.

    Args:
        tasks: of one model.
        measure: `log_probability` or `top`.
        title: of the upright axis.
    """
    rows = [_row(task.task, layer.layer, getattr(layer, measure)) for task in tasks for layer in task.lens]
    upright = Axis(title, 0.0, 1.0) if measure == "top" else Axis(title)
    return _curves(rows, Axis("layer", -0.3, len(tasks[0].lens) - 0.7, whole=True), upright, [t.task for t in tasks])


def effects_chart(task: TaskEffects, unit: Unit) -> alt.LayerChart:
    """Direct and total effect of every place of a unit, with their intervals as bars."""
    places = task.of(unit)
    rows = [_row(EFFECTS[0], place.layer, place.direct) for place in places]
    rows += [_row(EFFECTS[1], place.layer, place.total) for place in places]
    zero = plots.level(0.0, upright := Axis("gold logit"))
    chart = _curves(rows, Axis("block", -0.5, len(places) - 0.5, whole=True), upright, EFFECTS, spread="bars")
    return alt.layer(zero, chart)


def heads_chart(task: TaskEffects, measure: str) -> alt.LayerChart:
    """`direct` or `total` effect of every head: a map of blocks × heads, both measures in the same colours."""
    heads = task.of("head")
    full = max(abs(value) for head in heads for value in (head.direct.value or 0.0, head.total.value or 0.0))
    rows = [
        {
            "x": head.layer,
            "y": head.head,
            "value": getattr(head, measure).value,
            "text": "",
            "marked": head.is_repaired_by_blocks,
            "tip": f"{wording.capital(wording.place('head', head.layer, head.head))}\n"
            + "\n".join(
                f"{name} {wording.figures(estimate.value or 0.0, 3)}".replace("-", wording.MINUS)
                for name, estimate in zip(EFFECTS, (head.direct, head.total), strict=True)
            ),
        }
        for head in heads
    ]
    names = sorted({row["y"] for row in rows})
    return heatmap.heat(pd.DataFrame(rows), "block", "head", full=full or 1.0, rows=names, height=20)


def influence_chart(tasks: Sequence[TaskEffects]) -> alt.LayerChart:
    """Block influence by block, a curve per task."""
    rows = [
        _row(task.task, place.layer, place.influence)
        for task in tasks
        for place in task.of("block")
        if place.influence is not None
    ]
    across = Axis("block", -0.5, max(row[1] for row in rows) + 0.5, whole=True)
    return _curves(rows, across, Axis("1 − cosine", 0.0), [task.task for task in tasks])


def classes_chart(table: ClassTable, unit: Unit) -> alt.LayerChart:
    """What every place of a unit takes from every class: cells hold the accuracy that is left, boxed where it is lost
    beyond chance.
    """
    labels = {
        each.name: f"{each.name}\n{wording.percent(each.accuracy.value, 0)} unedited"
        for each in table.present
        if each.accuracy is not None
    }
    rows = [
        {
            "x": place.layer,
            "y": labels[effect.name],
            "value": effect.drop.value,
            "text": wording.points(effect.accuracy.value, 0),
            "marked": effect.is_lost,
            "tip": _class_tip(table, unit, place.layer, effect),
        }
        for place in table.of(unit)
        for effect in place.effects
    ]
    across = wording.axis_name(unit, 0.0)
    return heatmap.heat(pd.DataFrame(rows), across, "", full=1.0, rows=[*labels.values()], height=34)


def _class_tip(table: ClassTable, unit: Unit, layer: int, effect: ClassEffect) -> str:
    p = "" if effect.drop.p is None else f"\ncorrected p {wording.p_value(effect.drop.p_corrected)}"
    loss = "" if effect.loss.value is None else f"\nloss {wording.figures(effect.loss.value, 3)} nats per token"
    tip = f"{wording.place(unit, layer)}, {effect.name}\n{accuracy_text(table, effect)}{p}{loss}"
    return tip.replace("-", wording.MINUS)


def legend(names: Iterable[str]) -> tuple[Series, ...]:
    """The series of a figure."""
    return tuple(Series(name, index) for index, name in enumerate(names))


def _row(series: str, place: int, estimate: Estimate) -> plots.Row:
    value = float("nan") if estimate.value is None else estimate.value
    return series, place, value, estimate.low, estimate.high


def _curves(
    rows: Sequence[plots.Row], across: Axis, upright: Axis, series: Sequence[str], *, spread: str = "band"
) -> alt.LayerChart:
    frame: pd.DataFrame = plots.data(rows)
    guide = plots.readings(frame, lambda place: f"{across.title}{wording.SPACE}{place:g}")
    return plots.curves(frame, across, upright, series, spread=spread, guide=guide)
