"""The charts of an isolation and its evaluation: accuracy along the share kept or the factor, overlap, distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from lesion.report import plots, theme, wording
from lesion.report.blocks import Series
from lesion.report.plots import Axis
from lesion.studies.isolation.distribution import HEAD, Count, Distribution, share
from lesion.studies.isolation.evaluation import (
    EvaluatedTask,
    Evaluation,
    RandomControls,
    TaskUnderEdit,
    mean,
)
from lesion.studies.isolation.result import Overlap
from lesion.studies.isolation.sweeps import Along, Line

TITLES = {"keep": "share taken of every matrix", "factor": "factor on the selected weights"}
MOST_NUMBERED = 16
"""With more blocks the cells of a distribution have no number in them."""
NEAR = 0.45
"""Accuracies that lie within less than this are drawn on an axis of their own range."""


def sweep(evaluation: Evaluation, lines: Sequence[Line], task: EvaluatedTask, along: Along) -> alt.LayerChart:
    """One task's accuracy (or perplexity) along the share kept or the factor, a line per series.

    Bars are the effects' intervals; grey bars beside them go from the lowest to the highest random control; small dots
    are repeats, with their mean on the line.
    """
    stops = [
        (line, place, stop, [task.effects[edit.edit] for edit in stop.edits if edit.edit in task.effects])
        for place, line in enumerate(lines)
        for stop in line.stops
    ]
    measured = [(line, place, stop, effects) for line, place, stop, effects in stops if effects]
    across = place_axis([stop.at for _, _, stop, _ in measured], along)
    upright = result_axis(task, [edit.edit for line in lines for stop in line.stops for edit in stop.edits])
    upright = replace(upright, title="perplexity" if task.scored else "accuracy")
    rows, random, repeats = [], [], []
    for line, place, stop, effects in measured:
        at = _beside(stop.at, place - (len(lines) - 1) / 2, across)
        one = effects[0].result if len(effects) == 1 else None
        tip = "\n".join(f"{evaluation.name_of(effect.edit)}: {effect_text(task, effect)}" for effect in effects)
        rows.append(
            {"series": line.label, "x": at, "y": mean(effect.result.value for effect in effects), "tip": tip}
            | {"low": one and one.low, "high": one and one.high}
            | {"model": evaluation.model, "task": task.name, "edit": stop.edits[0].edit}
        )
        if len(effects) > 1:
            repeats += [{"series": line.label, "x": at, "y": effect.result.value} for effect in effects]
        random += [
            {"x": _beside(at, 0.35, across), "low": controls.lowest, "y": controls.mean, "high": controls.highest}
            for controls in (effect.random for effect in effects)
            if controls is not None
        ]
    labels, numbers = [line.label for line in lines], line_numbers(evaluation, lines)
    layers: list[alt.Chart | alt.LayerChart] = [*_levels(task, upright)]
    if random:
        base = alt.Chart(pd.DataFrame(random)).encode(x=plots.x(across))
        layers += [
            base.mark_rule(color=theme.SOFT).encode(y=plots.y(upright, "low"), y2=alt.Y2(field="high")),
            base.mark_point(color=theme.SOFT, shape="cross", size=18).encode(y=plots.y(upright)),
        ]
    if repeats:
        dots = alt.Chart(pd.DataFrame(repeats)).mark_circle(size=14, opacity=0.6)
        layers.append(dots.encode(x=plots.x(across), y=plots.y(upright), color=plots.colour(labels, numbers)))
    columns = ["series", "x", "y", "low", "high", "tip", "model", "task", "edit"]
    frame = pd.DataFrame(rows, columns=columns)
    layers.append(plots.curves(frame, across, upright, labels, numbers=numbers, spread="bars"))
    return alt.layer(*layers)


def consistency(overlaps: Sequence[Overlap]) -> alt.LayerChart:
    """Mean IoU between repeats against the number of samples, a line per method and keep; dashed: by chance."""
    labels = overlap_labels(overlaps)
    samples = sorted({overlap.samples for overlap in overlaps})
    room = max(1.3, (samples[-1] / samples[0]) ** 0.06)
    ends = samples[0] / room, samples[-1] * room
    across = Axis("texts of each data set", *ends, form=",d", kind="log", ticks=tuple(map(float, samples)))
    upright = Axis("overlap of sets (IoU)", 0.0, 1.02, form="~g", ticks=(0.0, 0.25, 0.5, 0.75, 1.0))
    rows, chance = [], []
    for overlap in sorted(overlaps, key=lambda one: one.samples):
        at = _beside(float(overlap.samples), labels.index(overlap.label) - (len(labels) - 1) / 2, across)
        low, high = overlap.spread or (None, None)
        rows.append(
            {"series": overlap.label, "x": at, "y": overlap.mean.value, "low": low, "high": high}
            | {"tip": overlap_text(overlap)}
        )
        if overlap.chance is not None:
            chance.append({"series": overlap.label, "x": float(overlap.samples), "chance": overlap.chance})
    several = {label for label in labels if sum(row["series"] == label for row in chance) > 1}
    dashed = {"strokeDash": [6, 4], "strokeWidth": 1.2}
    layers: list[alt.Chart | alt.LayerChart] = []
    for single in (False, True):
        frame = pd.DataFrame([row for row in chance if (row["series"] not in several) == single])
        if frame.empty:
            continue
        base = alt.Chart(frame).encode(y=plots.y(upright, "chance"), color=plots.colour(labels))
        # One point is no line: chance then crosses the whole chart.
        layers.append(base.mark_rule(**dashed) if single else base.mark_line(**dashed).encode(x=plots.x(across)))
    return alt.layer(*layers, plots.curves(pd.DataFrame(rows), across, upright, labels, spread="bars"))


def distribution(one: Distribution) -> alt.LayerChart:
    """Share selected per kind of matrix (rows) and block (columns), with sums; the head in a row of its own."""
    whole, blocks = "all", [str(block) for block in one.blocks]
    every = "all of the block"
    cells: list[tuple[str, str, Count | None, str]] = []
    for kind in one.kinds:
        cells += [(str(block), kind, one.at(kind, block), f"{kind}, block {block}") for block in one.blocks]
        cells.append((whole, kind, one.of_kind(kind), f"{kind}, all blocks"))
    cells += [(str(block), every, one.of_block(block), f"all matrices, block {block}") for block in one.blocks]
    cells.append((whole, every, one.whole, "everything scored, the whole model"))
    rows = [*one.kinds, every]
    if one.head is not None:
        cells.append((whole, HEAD, one.head, f"{HEAD}, after the last block"))
        rows.append(HEAD)
    frame = pd.DataFrame(
        [
            {"x": column, "y": row, "value": count.share if count else None, "tip": _count_text(name, count)}
            | {"text": share(count.share if count else None) if len(blocks) <= MOST_NUMBERED or column == whole else ""}
            | {"marked": False}
            for column, row, count, name in cells
        ]
    )
    colours = (theme.SHARE, theme.SHARE)
    columns = [*blocks, whole]
    heat = plots.heat(frame, "block", "", full=one.full, columns=columns, rows=rows, colours=colours, height=26)
    return heat.properties(width=max(theme.WIDTH, 22 * len(columns)))


def _count_text(name: str, count: Count | None) -> str:
    if count is None or count.share is None:
        return f"{name}\nnot scored"
    matrices = f"\n{count.matrices} matrices" if count.matrices > 1 else ""
    return f"{name}\n{count.selected:,} of {count.total:,} weights, {wording.percent(count.share, 3)}{matrices}"


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
    effects = [task.effects.get(edit.edit) for task in drawn for line in lines for stop in line.stops
               for edit in stop.edits]  # fmt: skip
    series = [Series(line.label, number) for line, number in zip(lines, line_numbers(evaluation, lines), strict=True)]
    if any(effect is not None and effect.random is not None for effect in effects):
        series.append(Series("matched random controls", theme.SHAPES.index("cross"), colour=theme.SOFT))
    series.append(Series("unedited", colour=theme.INK, dashed=True))
    if any(task.chance_line is not None for task in drawn):
        series.append(Series("chance", colour=theme.SOFT, dashed=True))
    return tuple(series)


def overlap_legend(overlaps: Sequence[Overlap]) -> tuple[Series, ...]:
    """A key for each line of the consistency chart, and for chance."""
    lines = [Series(label, number) for number, label in enumerate(overlap_labels(overlaps))]
    return (*lines, Series("random sets of that size", colour=theme.SOFT, dashed=True))


def overlap_labels(overlaps: Sequence[Overlap]) -> list[str]:
    """The lines of the consistency chart, in their order."""
    return list(dict.fromkeys(overlap.label for overlap in overlaps))


def overlap_text(overlap: Overlap) -> str:
    """`MathNeuro, keep 5 %, 100 texts: IoU 0.950 (pairs 0.940 to 0.960), by chance 0.026`."""
    text = f"{overlap.label}, {wording.counted(overlap.samples, 'text')}: IoU {overlap.mean.value:.3f}"
    if overlap.spread is not None:
        text += f" (pairs {overlap.spread[0]:.3f} to {overlap.spread[1]:.3f})"
    elif overlap.repeats == 2:
        text += " (one pair, no interval)"
    return text if overlap.chance is None else f"{text}, by chance {overlap.chance:.3f}"


def effect_text(task: EvaluatedTask, effect: TaskUnderEdit) -> str:
    """An effect in words: the result and its change with intervals, and the random controls beside it."""
    result, change = effect.result, effect.change
    if task.scored:
        text = f"perplexity {wording.perplexity(result.value)} {wording.plain_interval(result.low, result.high)}"
        if change.value is not None:
            text += f", ×{change.value:.3f} {wording.plain_interval(change.low, change.high)}"
    else:
        text = f"{wording.percent(result.value)} {wording.interval(result.low, result.high)}"
        if change.value is not None:
            text += f", drop {wording.points(change.value)} {wording.interval(change.low, change.high)}"
    random = effect.random
    if random is not None and random.mean is not None:
        write = wording.perplexity if task.scored else wording.percent
        text += f"; random {write(random.mean)} ({write(random.lowest)} to {write(random.highest)})"
    return text


def result_axis(task: EvaluatedTask, edits: Sequence[str], *, closer: bool | None = None) -> Axis:
    """The axis of a task's accuracy in percent, or of its perplexity, logarithmic with less at the far end.

    Args:
        task: whose results are drawn.
        edits: under which.
        closer: whether accuracies have an axis of their own range; by default where they lie near each other.
    """
    values = results(task, edits)
    name = wording.short(task.name, 34)
    if task.scored:
        positive = [value for value in values if value > 0] or [1.0, 10.0]
        low, high = min(positive), max(positive)
        room = max(1.08 if high > low else 1.6, (high / low) ** 0.06)
        low, high = low / room, high * room
        return Axis(f"perplexity on {name}", high, low, form=".3~g", kind="log", ticks=round_numbers(low, high))
    low, high = min(values, default=0.0), max(values, default=1.0)
    if near(values) if closer is None else closer:
        room = max(0.02, 0.12 * (high - low))
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if (high - low + 2 * room) / step <= 7)
        low = max(-room, math.floor(round((low - room) / step, 6)) * step)
        high = min(1 + room, math.ceil(round((high + room) / step, 6)) * step)
    else:
        low, high, step = min(0.0, low) - 0.03, max(1.0, high) + 0.03, 0.25
    ticks = (round(number * step, 6) for number in range(math.ceil(low / step), math.floor(high / step) + 1))
    return Axis(f"accuracy on {name}", low, high, form=".0%", ticks=tuple(t for t in ticks if 0 <= t <= 1 and t > low))


def round_numbers(low: float, high: float) -> tuple[float, ...]:
    """Round numbers between two others, at most seven: the ticks of a logarithmic axis."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for marks in ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        inside = [float(f"{mark * power:.6g}") for power in powers for mark in marks if low <= mark * power <= high]
        if 2 <= len(inside) <= 7:
            return tuple(inside)
    return (low, math.sqrt(low * high), high) if len(inside) < 2 else tuple(inside[:: -(-len(inside) // 7)])


def near(values: Sequence[float]) -> bool:
    """Whether all accuracies lie within less than `NEAR`."""
    return not values or max(values) - min(values) < NEAR


def results(task: EvaluatedTask, edits: Sequence[str]) -> list[float]:
    """Everything of a task that a chart draws: results with intervals, random controls, the baseline, chance."""
    baseline = task.baseline.result
    values = [baseline.value, baseline.low, baseline.high, task.chance_line]
    for effect in (task.effects[edit] for edit in edits if edit in task.effects):
        random = effect.random or RandomControls(draws=0, mean=None, lowest=None, highest=None)
        values += [effect.result.value, effect.result.low, effect.result.high, random.lowest, random.highest]
    return [value for value in values if value is not None]


def place_axis(places: Sequence[float], along: Along) -> Axis:
    """The axis of the shares kept (logarithmic) or the factors, whose ticks are the values themselves."""
    known = sorted(set(places) | ({1.0} if along == "factor" else set())) or [1.0]
    low, high = known[0], known[-1]
    if along == "keep":
        room = max(1.15 if high > low else 1.6, (high / low) ** 0.06)
        return Axis(TITLES[along], low / room, high * room, form=".4~p", kind="log", ticks=tuple(known))
    room = 0.08 * (high - low) or 0.1
    return Axis(TITLES[along], low - room, high + room, form="~g", ticks=tuple(known))


def _levels(task: EvaluatedTask, upright: Axis) -> list[alt.Chart]:
    """The unedited model as a dashed line, and chance as a dotted one."""
    layers = []
    for value, style in ((task.baseline.result.value, UNEDITED), (task.chance_line, CHANCE)):
        if value is not None:
            rule = alt.Chart(pd.DataFrame([{"y": value}])).mark_rule(**style)
            layers.append(rule.encode(y=plots.y(upright)))
    return layers


UNEDITED = {"color": theme.INK, "strokeDash": [6, 4], "strokeWidth": 1.2, "opacity": 0.7}
CHANCE = {"color": theme.SOFT, "strokeDash": [1.5, 4], "strokeWidth": 1.4}


def _beside(value: float, steps: float, across: Axis) -> float:
    """A place so many steps, of a hundredth of the axis each, beside a value: marks at one place stay apart."""
    low, high = across.low or 0.0, across.high or 1.0
    if across.kind == "log":
        return float(value * (high / low) ** (0.01 * steps))
    return value + 0.01 * steps * (high - low)
