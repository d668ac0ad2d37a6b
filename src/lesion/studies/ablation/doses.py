"""Dose and response: what each block's factor leaves of the accuracy, from 1 (nothing changed) down to 0 and beyond."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from lesion.edits.edit import BASELINE
from lesion.report import plots, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Figure, Panel, Prose, Section, Series
from lesion.report.finding import Finding
from lesion.report.table import Column, Table
from lesion.statistics.half_dose import DRAWS, HalfDose, half_dose, half_dose_interval
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.sweep import by_edit

FEWEST = 3
"""So many factors beside 1 make a curve."""
MOST = 8
"""So many blocks are told apart in one chart; those that lose most are drawn."""
ACCURACY = Axis("accuracy", 0.0, 1.03, form=".0%", ticks=(0.0, 0.25, 0.5, 0.75, 1.0))


@dataclass(frozen=True)
class Doses:
    """One model on one task with one unit under several factors.

    Attributes:
        curves: by factor, ascending; 1 is not among them.
        layers: that are critical under some factor, the largest drop first.
        halves: their half doses with intervals; empty where no answers were at hand.
    """

    curves: tuple[Curve, ...]
    layers: tuple[int, ...]
    halves: Mapping[int, HalfDose] = field(default_factory=dict)

    @property
    def first(self) -> Curve:
        """Any of the curves, for what they share."""
        return self.curves[0]

    @property
    def baseline(self) -> float:
        """The accuracy of the unedited model."""
        return self.first.result.baseline.accuracy.value or 0.0

    def of(self, layer: int) -> list[tuple[float, Cell]]:
        """The factors of a layer with their cells, ascending."""
        cells = [(float(curve.factor), curve.at(layer)) for curve in self.curves]
        return [(factor, cell) for factor, cell in cells if cell is not None]

    def half(self, layer: int) -> float | None:
        """The factor below 1 at which half of the accuracy above guessing is left; None: at none."""
        points = [each for each in self.of(layer) if each[0] < 1]
        left = np.array([[cell.accuracy.value or 0.0 for _, cell in points]])
        factors, chance = [factor for factor, _ in points], self.first.result.guessing
        half = float(half_dose(np.array([self.baseline]), left, factors, chance)[0])
        return half if math.isfinite(half) else None


def doses(
    curves: Sequence[Curve], answers: pd.DataFrame | None = None, level: float = 0.95, seed: int = 0
) -> list[Doses]:
    """Every model, task and unit with enough factors; none where evaluation stopped or nothing can be told.

    Args:
        curves: of a study.
        answers: its answers, from which half doses have intervals; None: they have none.
        level: of the intervals.
        seed: of the draws of items.
    """
    groups: dict[tuple[str, str, str], list[Curve]] = {}
    for curve in curves:
        if not isinstance(curve.factor, str) and curve.factor != 1 and not curve.stopped and not curve.untold:
            groups.setdefault((curve.model, curve.task, curve.unit), []).append(curve)
    every = []
    for own in groups.values():
        if len(own) >= FEWEST:
            largest: dict[int, float] = {}
            for cell in (cell for curve in own for cell in curve.marked):
                largest[cell.layer] = max(largest.get(cell.layer, 0.0), cell.drop.value or 0.0)
            layers = sorted(largest, key=lambda layer: (-largest[layer], layer))
            of = Doses(tuple(sorted(own, key=lambda curve: curve.factor)), tuple(layers))
            every.append(of if answers is None else replace(of, halves=_halves(of, answers, level, seed)))
    return every


def _halves(of: Doses, answers: pd.DataFrame, level: float, seed: int) -> dict[int, HalfDose]:
    """The half doses of the critical blocks, from the answers to each factor below 1."""
    own = answers[(answers["model_name"] == of.first.model) & (answers["task"] == of.first.task)]
    frames = by_edit(own)
    baseline = frames[str(BASELINE)]["correct"]
    halves = {}
    for layer in of.layers:
        points = [(factor, cell.edit) for factor, cell in of.of(layer) if factor < 1]
        if points:
            right = [frames[edit].loc[baseline.index, "correct"].to_numpy(dtype=bool) for _, edit in points]
            factors = [factor for factor, _ in points]
            halves[layer] = half_dose_interval(
                baseline.to_numpy(dtype=bool), np.stack(right), factors, level, seed, chance=of.first.result.guessing
            )
    return halves


def findings(summary: AblationSummary, answers: pd.DataFrame | None = None) -> list[Finding]:
    """For every model: under which factors which blocks are critical, and where half of what is above guessing is left.

    With the answers, half doses have intervals.
    """
    by_model: dict[str, list[Doses]] = {}
    for each in doses(summary.curves, answers, summary.study.level, summary.study.seed):
        by_model.setdefault(each.first.model, []).append(each)
    several = len(summary.models) > 1
    found = []
    for model, own in by_model.items():
        sentences = [text for each in own for text in _sentences(each)]
        subject = f"{model}, dose and response" if several else "Dose and response"
        found.append(Finding(subject, tuple(sentences[:1]), tuple(sentences[1:])))
    return found


def _sentences(of: Doses) -> list[str]:
    first = of.first
    about = first.task if first.unit == "block" else f"{first.task}, {wording.UNIT_NAMES[first.unit]}"
    by_factor = []
    for curve in of.curves:
        layers = [cell.layer for cell in curve.marked]
        named = wording.numbered("block", layers) if layers else "none that is shown"
        by_factor.append(f"{named} under {wording.factor(float(curve.factor))}")
    sentences = [f"{about}: critical are {wording.listed(by_factor)}."]
    halves = sorted(
        ((half, layer) for layer in of.layers if (half := of.half(layer)) is not None),
        key=lambda pair: (-pair[0], pair[1]),
    )
    if halves:
        places = [
            f"{wording.factor(round(half, 2))}{_interval(of.halves.get(layer))} of block{wording.SPACE}{layer}"
            for half, layer in halves[:MOST]
        ]
        above = " above guessing" if first.result.guessing else ""
        sentences.append(f"{about}: half of the accuracy{above} is left at {wording.listed(places)}.")
    return sentences


def _interval(of: HalfDose | None) -> str:
    """` [0.54, 0.70]`; ` [below −1, 0.40]` where the lower end is not reached by the factors evaluated."""
    if of is None:
        return ""
    below = f"below {wording.factor(of.lowest).removeprefix('×')}"
    low, high = (below if end is None else f"{end:.2f}".replace("-", wording.MINUS) for end in (of.low, of.high))
    return f" [{low},{wording.SPACE}{high}]"


def section(summary: AblationSummary, answers: pd.DataFrame | None = None) -> Section | None:
    """A chart per model, a panel per task and unit, and the table; None with too few factors.

    With the answers, half doses have intervals.
    """
    every = doses(summary.curves, answers, summary.study.level, summary.study.seed)
    if not every:
        return None
    by_model: dict[str, list[Doses]] = {}
    for each in every:
        by_model.setdefault(each.first.model, []).append(each)
    figures = [_figure(model, own) for model, own in by_model.items() if any(each.layers for each in own)]
    note = (
        "Every factor has its own tests, corrected over its own blocks. Drawn are blocks that are critical under some"
        " factor. Half: the factor at which half of the unedited accuracy is left, by straight lines between the"
        f" factors evaluated, with a bootstrap interval over {DRAWS:,} draws of items, the same under all factors."
        " Where an end is below the lowest factor, half is not reached there."
    )
    return Section("Doses", "Dose and response", (Prose((note,)), *figures, _table(every)))


def _figure(model: str, own: Sequence[Doses]) -> Figure:
    drawn = [each for each in own if each.layers]
    layers = list(dict.fromkeys(layer for each in drawn for layer in each.layers[:MOST]))[:MOST]
    names = {layer: f"block{wording.SPACE}{layer}" for layer in sorted(layers)}
    panels = []
    for each in drawn:
        unit = "" if each.first.unit == "block" else f", {wording.UNIT_NAMES[each.first.unit]}"
        panels.append(Panel((_chart(each, names),), f"{each.first.task}{unit}"))
    series = tuple(Series(name, index) for index, name in enumerate(names.values()))
    caption = f"{model}: accuracy against the factor of one block at a time; at 1 nothing is changed."
    return Figure("", tuple(panels), caption, series, small=len(panels) > 2)


@plots.unvalidated
def _chart(of: Doses, names: dict[int, str]) -> alt.LayerChart:
    unedited = of.first.result.baseline.accuracy
    rows: list[plots.Row] = []
    for layer, name in names.items():
        points = [(factor, cell.accuracy) for factor, cell in of.of(layer)]
        for factor, accuracy in sorted([*points, (1.0, unedited)], key=lambda point: point[0]):
            rows.append((name, factor, accuracy.value or 0.0, accuracy.low, accuracy.high))
    frame = plots.data(rows)
    across = Axis("factor", float(frame["x"].min()), float(frame["x"].max()))
    guide = plots.readings(frame, lambda factor: wording.factor(factor))
    level = plots.level(unedited.value or 0.0, ACCURACY, dash=(6.0, 4.0))
    return alt.layer(level, plots.curves(frame, across, ACCURACY, list(names.values()), spread="bars", guide=guide))


def _table(every: Sequence[Doses]) -> Table:
    factors = sorted({float(curve.factor) for each in every for curve in each.curves})
    keys = {factor: f"accuracy at {factor:g}" for factor in factors}
    rows = []
    for each in every:
        for layer in each.layers:
            cells = each.of(layer)
            critical = ", ".join(wording.factor(factor) for factor, cell in cells if cell.critical)
            rows.append(
                {"model": each.first.model, "task": each.first.task, "unit": each.first.unit, "layer": layer}
                | {keys[factor]: cell.accuracy.value for factor, cell in cells}
                | {"critical": critical, "half": each.half(layer)}
                | _ends(each.halves.get(layer))
            )
    names = ("critical", "half", "half_low", "half_high", "half_reached", "lowest")
    frame = pd.DataFrame(rows, columns=["model", "task", "unit", "layer", *keys.values(), *names])
    models, units = (frame[name].nunique() > 1 for name in ("model", "unit"))
    return Table(
        "doses",
        frame,
        (
            *([Column("model", "Model", number=False)] if models else []),
            Column("task", "Task", number=False),
            *([Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False)] if units else []),
            Column("layer", "Block"),
            *(Column(key, wording.factor(factor), wording.points) for factor, key in keys.items()),
            Column("critical", "Critical under", lambda text: text or wording.DASH, number=False),
            Column("half", "Half", row=_half),
        ),
        title="Accuracy under every factor, of blocks that are critical under some",
        caption="Accuracy in %.",
    )


def _ends(of: HalfDose | None) -> dict[str, object]:
    """The interval as columns; an end that is not reached is empty."""
    if of is None:
        return {}
    return {"half_low": of.low, "half_high": of.high, "half_reached": of.reached, "lowest": of.lowest}


def _half(row: Mapping[str, Any]) -> str:
    value, low, high = (None if pd.isna(row[key]) else row[key] for key in ("half", "half_low", "half_high"))
    half = "not reached" if value is None else f"{value:.2f}".replace("-", wording.MINUS)
    if pd.isna(row["half_reached"]):
        return half
    return f"{half}{_interval(HalfDose(value, low, high, row['half_reached'], row['lowest']))}"
