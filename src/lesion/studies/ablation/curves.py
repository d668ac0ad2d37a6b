"""The cells of a layer study as curves over layers, and which curves are drawn together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lesion.edits.edit import Unit

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary, Cell, ModelResult, Scores, TaskResult


@dataclass(frozen=True)
class Curve:
    """One model on one task under one unit and factor.

    Attributes:
        label: its name in a legend.
        result: of this model and task, with the baseline.
        cells: by layer, ascending.
        missing: layers that the study will have, or another task of the model has, and this curve has not.
    """

    label: str
    model: str
    result: TaskResult
    unit: Unit
    factor: float
    cells: tuple[Cell, ...]
    missing: tuple[int, ...] = ()

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.result.task

    @property
    def items(self) -> int:
        """Items of the baseline; where evaluation stopped, the most that any cell has."""
        return self.result.items

    @property
    def drawn(self) -> int | None:
        """Where evaluation stopped, how many items were drawn; None in a full table."""
        return self.result.stopping.items if self.result.stopping else None

    @property
    def stopped(self) -> bool:
        """Whether its cells were evaluated only until they were decided."""
        return self.result.stopping is not None

    @property
    def finished(self) -> bool:
        """Whether no more is evaluated of its cells because all is decided or no item is left."""
        return self.result.stopping is None or self.result.stopping.finished

    @property
    def fewest(self) -> int:
        """The items of the cell that has the fewest."""
        return min((cell.items for cell in self.cells), default=self.items)

    @property
    def marked(self) -> list[Cell]:
        """Its marked cells, the largest drop first."""
        cells = (cell for cell in self.cells if cell.marked)
        return sorted(cells, key=lambda cell: (-(cell.drop.value or 0.0), cell.layer))

    def at(self, layer: int) -> Cell | None:
        """The cell of a layer, where there is one."""
        return next((cell for cell in self.cells if cell.layer == layer), None)

    def baseline_of(self, cell: Cell) -> Scores:
        """The unedited model on the items of a cell."""
        return cell.baseline or self.result.baseline


@dataclass(frozen=True)
class View:
    """Curves of one unit (and of one factor, unless they differ by it), in one panel per task.

    Attributes:
        slug: the name of its files.
        panels: task → its curves, in the same order in every panel; absent ones are left out.
        labels: of the curves, in the order of their colours.
        layers: of all curves, the missing ones too, ascending.
    """

    unit: Unit
    factor: float | None
    slug: str
    panels: dict[str, tuple[Curve, ...]]
    labels: tuple[str, ...]
    layers: tuple[int, ...]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves of all panels."""
        return tuple(curve for panel in self.panels.values() for curve in panel)

    @property
    def stopped(self) -> bool:
        """Whether cells of it were evaluated only until they were decided."""
        return any(curve.stopped for curve in self.curves)


def curves(summary: AblationSummary) -> tuple[Curve, ...]:
    """Every curve of a summary, in its order: model, task, unit, factor."""
    return tuple(curve for model in summary.models for curve in _of_model(model))


def _of_model(model: ModelResult) -> list[Curve]:
    layers: dict[tuple[Unit, float], set[int]] = {}
    for result in model.tasks:
        for cell in result.cells:
            layers.setdefault((cell.unit, cell.factor), set()).add(cell.layer)
    planned = {layer for result in model.tasks for layer in result.planned}
    return [
        Curve(
            label=model.model,
            model=model.model,
            result=result,
            unit=unit,
            factor=factor,
            cells=cells,
            missing=tuple(sorted((expected | planned) - {cell.layer for cell in cells})),
        )
        for result in model.tasks
        for (unit, factor), expected in layers.items()
        for cells in [result.of(unit, factor)]
    ]


def views(summary: AblationSummary) -> tuple[View, ...]:
    """One view per unit and factor; one model with several factors has one per unit, with a curve per factor."""
    every = summary.curves
    several_models = len({curve.model for curve in every}) > 1
    drawn: list[View] = []
    for unit in dict.fromkeys(curve.unit for curve in every):
        of_unit = [curve for curve in every if curve.unit == unit]
        factors = list(dict.fromkeys(curve.factor for curve in of_unit))
        if len(factors) > 1 and not several_models:
            labelled = [replace(curve, label=f"factor {curve.factor:g}") for curve in of_unit]
            drawn.append(view(labelled, unit, None, unit))
        else:
            drawn += [
                view([curve for curve in of_unit if curve.factor == factor], unit, factor, f"{unit}-{factor:g}")
                for factor in factors
            ]
    return tuple(drawn)


def view(shown: Sequence[Curve], unit: Unit, factor: float | None, slug: str) -> View:
    """Curves as one view."""
    layers = {layer for curve in shown for layer in (*curve.missing, *(cell.layer for cell in curve.cells))}
    return View(
        unit=unit,
        factor=factor,
        slug=slug,
        panels={
            task: tuple(curve for curve in shown if curve.task == task)
            for task in dict.fromkeys(curve.task for curve in shown)
        },
        labels=tuple(dict.fromkeys(curve.label for curve in shown)),
        layers=tuple(sorted(layers)),
    )


def full_drop(shown: Iterable[Curve]) -> float:
    """The drop at which a heat map's colour is full: the largest, rounded up to a tenth, at least 0.2."""
    drops = (abs(cell.drop.value) for curve in shown for cell in curve.cells if cell.drop.value is not None)
    return max(0.2, math.ceil(round(max(drops, default=0.0) * 10, 6)) / 10)
