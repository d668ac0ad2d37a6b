"""Dose and response: what each block's factor leaves of the accuracy, from 1 (nothing changed) down to 0 and beyond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from lesion.core.rates import by_edit, verdicts
from lesion.core.values import alike
from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves
from lesion.report.parts import Part
from lesion.report.rows import Rows, column
from lesion.report.values import SHARE, Estimate, Form, Number, plain
from lesion.statistics.half_dose import DRAWS, half_dose, half_dose_interval
from lesion.studies.ablation.cell import AtBlock, Curve
from lesion.studies.ablation.result import Material

FEWEST = 3
"""So many factors beside 1 make a curve."""
MOST = 8
"""So many blocks are told apart in one chart; those that lose most are drawn."""
HALF = Form(2)


class HalfRow(AtBlock):
    """Where half of a block's accuracy is left.

    Attributes:
        accuracies: by factor.
        critical: the factors under which the block is critical, as text.
        half: the factor at which half of the accuracy above guessing is left, by straight lines between the factors.
        half_reached: share of draws of the items in which half is reached by the factors evaluated; `lowest` of these.
    """

    accuracies: dict[str, float | None] = column("{}", SHARE)
    critical: str = column("Critical under", plain)
    half: Estimate = column("Half left at", HALF)
    half_reached: Number = column(default=None)
    lowest: Number = column(default=None)


class DosePoint(AtBlock):
    """The accuracy of a block under one factor; 1 is the unedited model."""

    factor: float = column("Factor", wording.factor)
    accuracy: Estimate = column("Accuracy", SHARE)


def doses(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Curves of one model, task and unit under enough factors, ascending; none where evaluation stopped."""
    scaled = (curve for curve in curves if not isinstance(curve.factor, str) and curve.factor != 1)
    groups = alike((curve for curve in scaled if not curve.stopped and not curve.untold), "model", "task", "unit")
    return [sorted(own, key=lambda curve: float(curve.factor)) for own in groups if len(own) >= FEWEST]


def critical_layers(curves: Sequence[Curve]) -> list[int]:
    """The layers that are critical under some factor, the largest drop first."""
    largest: dict[int, float] = {}
    for cell in (cell for curve in curves for cell in curve.marked):
        largest[cell.layer] = max(largest.get(cell.layer, 0.0), cell.size)
    return sorted(largest, key=lambda layer: (-largest[layer], layer))


def rows(curves: Sequence[Curve], material: Material) -> Iterator[HalfRow]:
    """Where half is left at every critical layer, with an interval where the answers to each factor are at hand."""
    first, answers, study = curves[0], material.answers, material.summary.study
    frames = {}
    if not answers.empty:
        frames = by_edit(answers[(answers["model_name"] == first.model) & (answers["task"] == first.task)])
    accuracy, chance = first.result.baseline.accuracy.value or 0.0, first.result.guessing
    for layer in critical_layers(curves):
        cells = [cell for curve in curves for cell in [curve.at(layer)] if cell is not None]
        below = [cell for cell in cells if float(cell.factor) < 1]
        factors = [float(cell.factor) for cell in below]
        left = np.array([[cell.accuracy.value or 0.0 for cell in below]])
        half = float(half_dose(np.array([accuracy]), left, factors, chance)[0])
        ends: dict[str, float | None] = {}
        if frames and below:
            unedited = frames[str(BASELINE)]
            right = np.stack([verdicts(frames[cell.edit].loc[unedited.index]) for cell in below])
            how = (factors, study.level, study.seed)
            ends = vars(half_dose_interval(verdicts(unedited), right, *how, chance=chance))
        yield HalfRow(
            **dict(first.labels), unit=first.unit, layer=layer,
            accuracies={f"accuracy at {cell.factor:g}": cell.accuracy.value for cell in cells},
            critical=", ".join(wording.factor(float(cell.factor)) for cell in cells if cell.critical),
            half=Estimate(value=half, low=ends.get("low"), high=ends.get("high")),
            half_reached=ends.get("reached"), lowest=ends.get("lowest"),
        )  # fmt: skip


def _points(curves: Sequence[Curve]) -> Iterator[DosePoint]:
    first = curves[0]
    for layer in sorted(critical_layers(curves)[:MOST]):
        cells = [cell for curve in curves for cell in curve.cells if cell.layer == layer]
        accuracies = {1.0: first.result.baseline.accuracy, **{float(cell.factor): cell.accuracy for cell in cells}}
        for factor, accuracy in sorted(accuracies.items()):
            yield DosePoint(**dict(first.labels), unit=first.unit, layer=layer, factor=factor, accuracy=accuracy)


def part(material: Material) -> Part | None:
    """A curve per critical block, and where half is left; None with too few factors."""
    every = doses(material.curves)
    if not every:
        return None
    lines = [row for curves in every for row in rows(curves, material)]
    table = Rows("doses", lines, (HalfRow,), "Half left", "Accuracies in %.")
    points = Curves("accuracy", "factor", ("layer",), panel=("model", "task", "unit"), low=0.0, high=100.0)
    figure = points.figure([point for curves in every for point in _points(curves)], "")
    about = (
        f"Drawn are blocks that are critical under some factor; at 1 nothing is changed. Half: by straight lines"
        f" between the factors, with a bootstrap interval over {DRAWS:,} draws of items."
    )
    own = tuple(filter(None, (figure,)))
    return Part("Dose and response", table, (), half_left(lines), about, "Doses", own)


@rule
def half_left(rows: Sequence[HalfRow]) -> Iterable[Claim]:
    """Where half is left, the block that needs the least dose first.

    Says: Half of the accuracy [above guessing] on A is left at ×f of block L.
    Needs: blocks that are critical under some factor of at least 3; the interval is a bootstrap over items
    """
    for own in alike(rows, "model", "task", "unit"):
        known = sorted((row for row in own if row.half.value is not None), key=lambda row: -(row.half.value or 0.0))
        if known:
            where = [
                f"×{HALF.text(row.half, interval=row is known[0])} of block{wording.SPACE}{row.layer}"
                for row in known[:MOST]
            ]
            text = f"Half of the accuracy on {own[0].task} is left at {wording.listed(where)}."
            yield Claim((text,), tuple(known), wording.among(own[0].model, [row.model for row in rows]))
