"""Heads, matrices, experts and neurons in a layer study: its cells by block and part, and how they are named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lesion.edits.place import Part, Unit
from lesion.report import wording
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.sweep import Factor, is_inner

if TYPE_CHECKING:  # what reads a study need not wait for torch
    from lesion.studies.ablation.cell import Cell, Place
    from lesion.studies.ablation.result import AblationSummary, ModelResult

MOST_COLUMNS = 128
"""Parts of more names or numbers than this have no map: they are listed."""


def maps(summary: AblationSummary) -> tuple[Curve, ...]:
    """Every model on every task under the inner units of one kind and factor: curves whose cells are by block and
    part.
    """
    return tuple(curve for model in summary.models for curve in _of_model(model))


def _of_model(model: ModelResult) -> list[Curve]:
    kinds: dict[tuple[Unit, Factor], None] = {}
    for result in model.tasks:
        kinds |= {(cell.unit, cell.factor): None for cell in result.cells if is_inner(cell.unit)}
    return [
        Curve(model.model, model.model, result, unit, factor, cells)
        for result in model.tasks
        for unit, factor in kinds
        if (cells := result.of(unit, factor))
    ]


def columns(places: Iterable[Place]) -> list[Part]:
    """The columns of a map: numbers from 0, or names of matrices in the order of the blocks."""
    parts = list(dict.fromkeys(place.part for place in places if place.part is not None))
    numbers = [part for part in parts if isinstance(part, int)]
    return [*range(1 + max(numbers))] if numbers else parts


def drawable(places: Iterable[Place]) -> bool:
    """Whether a map of blocks and parts can be read."""
    return len(columns(places)) <= MOST_COLUMNS


def tests(curve: Curve) -> int:
    """How many parts the study plans, which the correction counts; where evaluation stopped, those that it has."""
    own = [
        reach.tests for reach in curve.result.sensitivity if (reach.unit, reach.factor) == (curve.unit, curve.factor)
    ]
    return own[0] if own else len(curve.cells)


def named(cells: Sequence[Cell], unit: Unit) -> str:
    """`head 9.6`, `heads 9.6, 9.9 and 10.0`, `matrix 3.mlp.up`."""
    if len(cells) == 1:
        return wording.place(unit, cells[0].layer, cells[0].part)
    listed = wording.listed([f"{cell.layer}.{cell.part}" for cell in cells])
    return f"{wording.plural(wording.UNIT_NAMES[unit])}{wording.SPACE}{listed}"
