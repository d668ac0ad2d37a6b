"""Dose and response: what each block's factor leaves of the accuracy, from 1 (nothing changed) down to 0 and beyond."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import SHARE, Form, plain
from lesion.report.marks import Curves
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import Estimate, Number
from lesion.statistics.half_dose import DRAWS, HalfDose, half_dose, half_dose_interval
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.sweep import by_edit

FEWEST = 3
"""So many factors beside 1 make a curve."""
MOST = 8
"""So many blocks are told apart in one chart; those that lose most are drawn."""
HALF = Form(2)


@dataclass(frozen=True)
class Doses:
    """One model on one task with one unit under several factors.

    Attributes:
        curves: by factor, ascending; 1 is not among them.
        layers: that are critical under some factor, the largest drop first.
    """

    curves: tuple[Curve, ...]
    layers: tuple[int, ...]

    @property
    def first(self) -> Curve:
        """Any of the curves, for what they share."""
        return self.curves[0]

    def of(self, layer: int) -> list[tuple[float, Cell]]:
        """The factors of a layer with their cells, ascending."""
        cells = [(float(curve.factor), curve.at(layer)) for curve in self.curves]
        return [(factor, cell) for factor, cell in cells if cell is not None]

    def half(self, layer: int) -> float | None:
        """The factor below 1 at which half of the accuracy above guessing is left; None: at none."""
        points = [each for each in self.of(layer) if each[0] < 1]
        left = np.array([[cell.accuracy.value or 0.0 for _, cell in points]])
        baseline = np.array([self.first.result.baseline.accuracy.value or 0.0])
        factors, chance = [factor for factor, _ in points], self.first.result.guessing
        half = float(half_dose(baseline, left, factors, chance)[0])
        return half if math.isfinite(half) else None


class HalfRow(Labels):
    """Where half of a block's accuracy is left.

    Attributes:
        accuracies: by factor.
        critical: the factors under which the block is critical, as text.
        half: the factor at which half of the accuracy above guessing is left, by straight lines between the factors.
        half_reached: share of draws of the items in which half is reached by the factors evaluated; `lowest` of these.
    """

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    layer: int = column("Block", label=True)
    accuracies: dict[str, float | None] = column("{}", SHARE)
    critical: str = column("Critical under", plain)
    half: Estimate = column("Half left at", HALF)
    half_reached: Number = column(default=None)
    lowest: Number = column(default=None)


class DosePoint(Labels):
    """The accuracy of a block under one factor; 1 is the unedited model."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    layer: int = column("Block", label=True)
    factor: float = column("Factor", wording.factor)
    accuracy: Estimate = column("Accuracy", SHARE)


def doses(curves: Sequence[Curve]) -> list[Doses]:
    """Every model, task and unit with enough factors; none where evaluation stopped or nothing can be told."""
    groups: dict[tuple[str, str, str], list[Curve]] = {}
    for curve in curves:
        if not isinstance(curve.factor, str) and curve.factor != 1 and not curve.stopped and not curve.untold:
            groups.setdefault((curve.model, curve.task, curve.unit), []).append(curve)
    every = []
    for own in (own for own in groups.values() if len(own) >= FEWEST):
        largest: dict[int, float] = {}
        for cell in (cell for curve in own for cell in curve.marked):
            largest[cell.layer] = max(largest.get(cell.layer, 0.0), cell.drop.value or 0.0)
        layers = sorted(largest, key=lambda layer: (-largest[layer], layer))
        every.append(Doses(tuple(sorted(own, key=lambda curve: curve.factor)), tuple(layers)))
    return every


def halves(of: Doses, answers: pd.DataFrame, level: float, seed: int) -> dict[int, HalfDose]:
    """The half doses of the critical blocks with intervals, from the answers to each factor below 1."""
    if answers.empty:
        return {}
    own = answers[(answers["model_name"] == of.first.model) & (answers["task"] == of.first.task)]
    frames = by_edit(own)
    baseline = frames[str(BASELINE)]["correct"]
    found = {}
    for layer in of.layers:
        points = [(factor, cell.edit) for factor, cell in of.of(layer) if factor < 1]
        if points:
            right = [frames[edit].loc[baseline.index, "correct"].to_numpy(dtype=bool) for _, edit in points]
            factors = [factor for factor, _ in points]
            unedited = baseline.to_numpy(dtype=bool)
            chance = of.first.result.guessing
            found[layer] = half_dose_interval(unedited, np.stack(right), factors, level, seed, chance=chance)
    return found


def part(material: Material) -> Part | None:
    """A curve per critical block, and where half is left; None with too few factors."""
    every = doses(material.curves)
    if not every:
        return None
    study = material.summary.study
    rows = [row for of in every for row in _rows(of, halves(of, material.answers, study.level, study.seed))]
    table = Rows("doses", rows, (HalfRow,), "Where half of the accuracy is left", "Accuracies in %.")
    points = Curves("accuracy", "factor", ("layer",), panel=("model", "task", "unit"), low=0.0, high=100.0)
    figure = points.figure([point for of in every for point in _points(of)], "")
    about = (
        f"Drawn are blocks that are critical under some factor; at 1 nothing is changed. Half: by straight lines"
        f" between the factors, with a bootstrap interval over {DRAWS:,} draws of items."
    )
    own = (figure,) if figure is not None else ()
    return Part("Dose and response", table, (), half_left(rows), about, "Doses", own)


def _rows(of: Doses, known: dict[int, HalfDose]) -> Iterable[HalfRow]:
    for layer in of.layers:
        cells, half = of.of(layer), known.get(layer)
        ends = {} if half is None else {"half_reached": half.reached, "lowest": half.lowest}
        yield HalfRow(
            model=of.first.model, task=of.first.task, unit=of.first.unit, layer=layer,
            accuracies={f"accuracy at {factor:g}": cell.accuracy.value for factor, cell in cells},
            critical=", ".join(wording.factor(factor) for factor, cell in cells if cell.critical),
            half=Estimate(value=of.half(layer), low=half and half.low, high=half and half.high), **ends,
        )  # fmt: skip


def _points(of: Doses) -> Iterable[DosePoint]:
    where = {"model": of.first.model, "task": of.first.task, "unit": of.first.unit}
    for layer in sorted(of.layers[:MOST]):
        accuracies = [(factor, cell.accuracy) for factor, cell in of.of(layer)]
        unedited = (1.0, of.first.result.baseline.accuracy)
        for factor, accuracy in sorted([*accuracies, unedited], key=lambda point: point[0]):
            yield DosePoint(**where, layer=layer, factor=factor, accuracy=accuracy)


@rule(
    "Half of the accuracy [above guessing] on A is left at ×f of block L.",
    needs=f"blocks that are critical under some factor of at least {FEWEST}; the interval is a bootstrap over items",
)
def half_left(rows: Sequence[HalfRow]) -> Iterable[Claim]:
    """Where half is left, the block that needs the least dose first."""
    for model, task, unit in dict.fromkeys((row.model, row.task, row.unit) for row in rows):
        own = [row for row in rows if (row.model, row.task, row.unit) == (model, task, unit)]
        known = sorted((row for row in own if row.half.value is not None), key=lambda row: -(row.half.value or 0.0))
        if known:
            where = [
                f"{wording.factor(round(row.half.value or 0.0, 2))} of block{wording.SPACE}{row.layer}" for row in known
            ]
            what = "" if unit == "block" else f" ({wording.UNIT_NAMES[unit]})"
            several = len({row.model for row in rows}) > 1
            text = f"Half of the accuracy on {task}{what} is left at {wording.listed(where[:MOST])}."
            interval = f"The interval of the first is {HALF.interval(known[0].half.low, known[0].half.high)}."
            yield Claim(
                (text, interval) if known[0].half.low is not None else (text,), tuple(known), model if several else ""
            )
