"""Heads in a layer study: the edits of a sweep over them, and its cells as maps of blocks × heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lesion.edits.edit import Unit
from lesion.report import wording
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.sweep import Factor, is_heads

if TYPE_CHECKING:  # what reads a study need not wait for torch
    from lesion.studies.ablation.result import AblationSummary, Cell, ModelResult


def maps(summary: AblationSummary) -> tuple[Curve, ...]:
    """Every model on every task under the heads of one factor: curves whose cells are by block and head."""
    return tuple(curve for model in summary.models for curve in _of_model(model))


def _of_model(model: ModelResult) -> list[Curve]:
    kinds: dict[tuple[Unit, Factor], None] = {}
    for result in model.tasks:
        kinds |= {(cell.unit, cell.factor): None for cell in result.cells if is_heads(cell.unit)}
    return [
        Curve(model.model, model.model, result, unit, factor, cells)
        for result in model.tasks
        for unit, factor in kinds
        if (cells := tuple(sorted(result.of(unit, factor), key=lambda cell: (cell.layer, cell.head or 0))))
    ]


def tests(curve: Curve) -> int:
    """How many heads the study plans, which the correction counts; where evaluation stopped, those that it has."""
    own = [
        reach.tests for reach in curve.result.sensitivity if (reach.unit, reach.factor) == (curve.unit, curve.factor)
    ]
    return own[0] if own else len(curve.cells)


def named(cells: Sequence[Cell], unit: Unit) -> str:
    """`head 9.6`, `heads 9.6, 9.9 and 10.0`."""
    if len(cells) == 1:
        return wording.place(unit, cells[0].layer, cells[0].head)
    return (
        f"{wording.UNIT_NAMES[unit]}s{wording.SPACE}{wording.listed([f'{cell.layer}.{cell.head}' for cell in cells])}"
    )
