"""Which tasks lose less of their skill than one for which a place is critical, by a test of the difference."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report.values import Estimate
from lesion.statistics.critical import Pairs
from lesion.statistics.paired import ALPHA, holm
from lesion.statistics.relative_losses import difference, p_loses_more
from lesion.studies.ablation.cell import Apart, Cell
from lesion.studies.ablation.result import TaskResult
from lesion.studies.ablation.sweep import PlaceEdit, by_kind


def apart(tasks: Sequence[TaskResult], edits: Sequence[PlaceEdit], level: float) -> list[TaskResult]:
    """The tasks of a model, with what is `apart` of their critical cells.

    Tested are other tasks for which the place is neither critical nor spared. p is corrected over all places of the
    family and all other tasks, whether they are tested or not.
    """
    if len(tasks) < 2 or any(result.stopping for result in tasks):
        return list(tasks)
    sizes = {(kind[0].unit, kind[0].factor): len(kind) for kind in by_kind(edits)}
    others = {result.task: {_place(cell): cell for cell in result.cells} for result in tasks}
    updated = []
    for result in tasks:
        of_cells: dict[Cell, list[Apart]] = {}
        for kind, size in sizes.items():
            tested = [
                (cell, other, against)
                for cell in result.cells
                if cell.critical and (cell.unit, cell.factor) == kind
                for other in tasks
                if other.task != result.task
                for against in [others[other.task].get(_place(cell))]
                if against is not None and against.outcome == "cannot be told"
            ]
            counts = [((_pairs(result, cell)), _pairs(other, against)) for cell, other, against in tested]
            chances = [(result.guessing, other.guessing) for _, other, _ in tested]
            p = [p_loses_more(*both, *chance) for both, chance in zip(counts, chances, strict=True)]
            corrected = holm([*p, *[1.0] * (size * (len(tasks) - 1) - len(p))])
            for number, (cell, other, _) in enumerate(tested):
                if corrected[number] <= ALPHA:
                    of = Estimate.of(difference(*counts[number], *chances[number], level), p[number], corrected[number])
                    of_cells.setdefault(cell, []).append(Apart(task=other.task, difference=of))
        cells = [cell.model_copy(update={"apart": tuple(of_cells.get(cell, ()))}) for cell in result.cells]
        updated.append(result.model_copy(update={"cells": tuple(cells)}))
    return updated


def _place(cell: Cell) -> tuple[object, ...]:
    return cell.layer, cell.unit, cell.factor, cell.part


def _pairs(result: TaskResult, cell: Cell) -> Pairs:
    right = round((result.baseline.accuracy.value or 0.0) * result.items)
    lost, won = cell.lost or 0, cell.won or 0
    return Pairs(lost, right - lost, won, result.items - right - won)
