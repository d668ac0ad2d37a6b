"""The cells of a layer study as curves over layers, and which curves are drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lesion.edits.place import Unit
from lesion.report import wording
from lesion.statistics.detectable import near_guessing
from lesion.studies.ablation.sweep import Factor

if TYPE_CHECKING:
    from lesion.studies.ablation.cell import Cell, Scores
    from lesion.studies.ablation.result import ModelResult, TaskResult


@dataclass(frozen=True)
class Curve:
    """One model on one task under one unit and factor, by layer.

    Attributes:
        label: its name in a legend.
        missing: layers that the study will have, or another task of the model has, and this curve has not.
    """

    label: str
    model: str
    result: TaskResult
    unit: Unit
    factor: Factor
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
        """Whether nothing more is evaluated, because all is decided or no item is left."""
        return self.result.stopping is None or self.result.stopping.finished

    @property
    def counts(self) -> tuple[int, int, int | None]:
        """The items of the cell that has the fewest, `items` and `drawn`: what `wording.of_drawn` writes."""
        return min((cell.items for cell in self.cells), default=self.items), self.items, self.drawn

    @property
    def needed(self) -> int | None:
        """How many right answers the unedited model would need for any cell to be critical; None: it has enough."""
        for reach in self.result.sensitivity:
            if (reach.unit, reach.factor) == (self.unit, self.factor) and reach.right < reach.fewest_right:
                return reach.fewest_right
        return None

    @property
    def near_guessing(self) -> bool:
        """Whether the unedited model is hardly better than guessing, so that a loss of the skill can hardly show."""
        return not self.stopped and near_guessing(self.right, self.items, self.result.guessing)

    @property
    def untold(self) -> str:
        """Why it cannot be told what its cells are critical for, `3 of 20 right`; empty where it can."""
        right = f"{self.right:,} of {self.items:,} right"
        if self.needed is not None:
            return right
        return f"{right}, near guessing" if self.near_guessing and not self.marked else ""

    @property
    def right(self) -> int:
        """How many items the unedited model has right."""
        return round((self.result.baseline.accuracy.value or 0.0) * self.items)

    @property
    def marked(self) -> list[Cell]:
        """Its marked cells, the largest drop first."""
        cells = (cell for cell in self.cells if cell.marked)
        return sorted(cells, key=lambda cell: (-(cell.drop.value or 0.0), cell.layer))

    @property
    def layers(self) -> set[int]:
        """The layers that it has or will have."""
        return {*self.missing, *(cell.layer for cell in self.cells)}

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
        labels: of the curves, in the order of their colours.
        layers: of all curves, the missing ones too, ascending.
    """

    unit: Unit
    factor: Factor | None
    slug: str
    panels: dict[str, tuple[Curve, ...]]
    labels: tuple[str, ...]
    layers: tuple[int, ...]

    @classmethod
    def of(cls, shown: Sequence[Curve], unit: Unit, factor: Factor | None, slug: str) -> View:
        """Curves as one view."""
        tasks = dict.fromkeys(curve.task for curve in shown)
        panels = {task: tuple(curve for curve in shown if curve.task == task) for task in tasks}
        labels = tuple(dict.fromkeys(curve.label for curve in shown))
        return cls(unit, factor, slug, panels, labels, tuple(sorted(set().union(*(curve.layers for curve in shown)))))

    @classmethod
    def of_factors(cls, shown: Sequence[Curve], unit: Unit) -> View:
        """Curves of one model and unit as one view, each named by its factor."""
        kinds = any(isinstance(curve.factor, str) for curve in shown)
        labels = [replace(curve, label=_label(curve.factor, kinds)) for curve in shown]
        return cls.of(labels, unit, None, unit)

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves of all panels."""
        return tuple(curve for panel in self.panels.values() for curve in panel)

    @property
    def stopped(self) -> bool:
        """Whether cells of it were evaluated only until they were decided."""
        return any(curve.stopped for curve in self.curves)


def of_model(model: ModelResult) -> list[Curve]:
    """The curves of one model, by task, unit and factor."""
    layers: dict[tuple[Unit, Factor], set[int]] = {}
    planned = {layer for result in model.tasks for layer in result.planned}
    for result in model.tasks:
        for cell in (cell for cell in result.cells if cell.part is None):  # inner units are maps: `parts.py`
            layers.setdefault((cell.unit, cell.factor), set(planned)).add(cell.layer)
    return [
        Curve(model.model, model.model, result, unit, factor, cells, missing)
        for result in model.tasks
        for (unit, factor), expected in layers.items()
        for cells in [result.of(unit, factor)]
        for missing in [tuple(sorted(expected - {cell.layer for cell in cells}))]
    ]


def views(every: Sequence[Curve]) -> tuple[View, ...]:
    """A view per unit and factor; one model with several factors has one per unit, with a curve per factor."""
    one_model = len({curve.model for curve in every}) < 2
    drawn: list[View] = []
    for unit in dict.fromkeys(curve.unit for curve in every):
        own = [curve for curve in every if curve.unit == unit]
        factors = list(dict.fromkeys(curve.factor for curve in own))
        if len(factors) > 1 and one_model:
            drawn.append(View.of_factors(own, unit))
            continue
        for factor in factors:
            shown = [curve for curve in own if curve.factor == factor]
            drawn.append(View.of(shown, unit, factor, f"{unit}-{wording.factor_name(factor).replace(' ', '-')}"))
    return tuple(drawn)


def _label(factor: Factor, kinds: bool) -> str:
    """A factor in a legend: `factor 0.5`, `mean`; factor 0 beside other kinds of ablation: `zero`."""
    if factor == 0 and kinds:
        return "zero"
    return factor if isinstance(factor, str) else f"factor {factor:g}"
