"""The cells of a layer study as curves: each model on each task under one unit and factor."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from lesion.edits.place import UNITS, Part, Unit
from lesion.report import wording
from lesion.report.rows import Record, Row
from lesion.statistics.detectable import near_guessing
from lesion.studies.ablation.cell import Cell, Labels, Scores, Unedited
from lesion.studies.ablation.sweep import Factor, is_inner

if TYPE_CHECKING:
    from lesion.studies.ablation.result import ModelResult, Sensitivity, TaskResult

MOST_COLUMNS = 128
"""Parts of more names or numbers than this have no map: they are listed."""


@dataclass(frozen=True)
class Curve:
    """One model on one task under one unit and factor: of blocks and branches by layer, of parts by layer and part.

    Attributes:
        missing: layers that the study will have, or another task of the model has, and this curve has not.
    """

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
    def labels(self) -> Labels:
        """Its model and task."""
        return Labels(model=self.model, task=self.task)

    def record(self, cell: Cell) -> Record:
        """A line about one of its cells."""
        return self.labels, cell

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
    def reach(self) -> Sensitivity | None:
        """What the rule can find; None where evaluation stopped."""
        kind = self.unit, self.factor
        return next((reach for reach in self.result.sensitivity if (reach.unit, reach.factor) == kind), None)

    @property
    def tests(self) -> int:
        """How many places the study plans, which the correction counts; where evaluation stopped, those that it has."""
        return self.reach.tests if self.reach else len(self.cells)

    @property
    def near_guessing(self) -> bool:
        """Whether the unedited model is hardly better than guessing, so that a loss of the skill can hardly show."""
        return not self.stopped and near_guessing(self.right, self.items, self.result.guessing)

    @property
    def untold(self) -> str:
        """Why it cannot be told what its cells are critical for, `3 of 20 right`; empty where it can."""
        right = f"{self.right:,} of {self.items:,} right"
        if self.reach and self.reach.right < self.reach.fewest_right:
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

    @property
    def drawable(self) -> bool:
        """Whether a map of blocks and parts can be read: columns are numbers from 0, or names."""
        parts = {cell.part for cell in self.cells}
        numbers = [part for part in parts if isinstance(part, int)]
        return (1 + max(numbers) if numbers else len(parts)) <= MOST_COLUMNS

    def at(self, layer: int, part: Part | None = None) -> Cell | None:
        """The cell of a layer, or of one of its parts, where there is one."""
        return next((cell for cell in self.cells if (cell.layer, cell.part) == (layer, part)), None)

    def columns(self, cell: Cell) -> tuple[Row | None, ...]:
        """A cell beside the unedited model on its items, as files have it."""
        unedited = Unedited.of(self.baseline_of(cell), self.result.forced, self.result.guessing)
        return unedited, cell.forced, cell.clustered, cell

    def baseline_of(self, cell: Cell) -> Scores:
        """The unedited model on the items of a cell."""
        return cell.baseline or self.result.baseline


def curves(models: Sequence[ModelResult], *, inner: bool = False) -> tuple[Curve, ...]:
    """Every model on every task under one unit and factor, in the order of the summary.

    Args:
        models: of the summary.
        inner: those of heads, matrices, experts and neurons, in place of those of blocks and branches.
    """
    every = []
    for model in models:
        planned = set() if inner else {layer for result in model.tasks for layer in result.planned}
        layers: dict[tuple[Unit, Factor], set[int]] = {}
        for cell in (cell for result in model.tasks for cell in result.cells if is_inner(cell.unit) == inner):
            layers.setdefault((cell.unit, cell.factor), set(planned)).add(cell.layer)
        for result in model.tasks:
            for (unit, factor), expected in layers.items():
                cells = result.of(unit, factor)
                missing = tuple(sorted(expected - {cell.layer for cell in cells}))
                if cells or not inner:
                    every.append(Curve(model.model, result, unit, factor, cells, missing))
    return tuple(every)


def alike(every: Iterable[Curve], *names: str) -> list[list[Curve]]:
    """The curves that have the same model, task, unit or factor, by the names of these."""
    groups: dict[Hashable, list[Curve]] = {}
    for curve in every:
        groups.setdefault(attrgetter(*names)(curve), []).append(curve)
    return list(groups.values())


def manner(factor: Factor) -> str:
    """` scaled by 0.5`, ` replaced by its mean`; empty for a place that is switched off, which goes without saying."""
    return f" {wording.changed(factor)}" if factor != 0 else ""


def under(place: str, factor: Factor) -> str:
    """`without block 2`, `with the MLP of block 3 scaled by 0.5`."""
    return f"with {place}{manner(factor)}" if factor != 0 else f"without {place}"


def plural(unit: Unit, count: int) -> bool:
    """Whether a verb about so many places stands in the plural: `the MLP of blocks 2 and 5` is one subject."""
    return count > 1 and unit not in UNITS[1:]


def places(unit: Unit, layers: Sequence[int]) -> str:
    """`block 3`, `blocks 0–2 and 5`, `the MLP of block 3`, or an empty string."""
    prefix = f"the {wording.UNIT_NAMES[unit]} of " * (unit != "block")
    return f"{prefix}{wording.numbered('block', layers)}" * bool(layers)


def named(cells: Sequence[Cell], most: int | None = None) -> str:
    """`blocks 0–2 and 5`; of parts `head 9.6`, `heads 9.6, 9.9 and 10.0`, and how many more than `most` there are."""
    unit = cells[0].unit
    if not is_inner(unit):
        return places(unit, [cell.layer for cell in cells])
    if len(cells) == 1:
        return wording.place(unit, cells[0].layer, cells[0].part)
    listed = wording.listed([f"{cell.layer}.{cell.part}" for cell in cells[:most]])
    more = f" and {len(cells) - most:,} more" if most and len(cells) > most else ""
    return f"{wording.plural(wording.UNIT_NAMES[unit])}{wording.SPACE}{listed}{more}"
