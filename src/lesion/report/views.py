"""A summary seen as figures: views of panels of lines of points, which the page and the PNGs both draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lesion.edits.edit import SCALES, Unit
from lesion.errors import LesionError

Summary = Mapping[str, Any]
OPTIONAL = (
    *("low", "high", "drop", "drop_low", "drop_high"),
    *("p", "p_corrected", "p_critical", "p_critical_corrected"),
    *("truncated", "unparsed", "nonfinite", "looped"),
)
BASELINE_NUMBERS = ("accuracy", "low", "high", "truncated", "unparsed", "looped")


@dataclass(frozen=True)
class Baseline:
    """The unedited model on a task: accuracies and rates in 0…1, `None` where not known yet."""

    accuracy: float | None
    low: float | None
    high: float | None
    truncated: float | None
    unparsed: float | None
    looped: float | None = None


@dataclass(frozen=True)
class Point:
    """One model on one task under one edit: accuracies, drops, rates in 0…1, `None` where unknown.

    Attributes:
        items: how many items it was asked.
        baseline: the unedited model on these items.
        p, p_corrected: of "the edit changes nothing"; p_critical, p_critical_corrected: of "it takes at most half".
        critical: None where asking stopped: only a full table says it.
        decided: where asking stopped, `exceeds` (the effect), `not` or `open`; None in a full table.
        drawn: where asking stops as soon as a cell is decided, how many items there are; None in a full table.
    """

    layer: int
    unit: Unit
    factor: float
    accuracy: float
    low: float | None
    high: float | None
    drop: float | None
    drop_low: float | None
    drop_high: float | None
    p: float | None
    p_corrected: float | None
    critical: bool | None
    truncated: float | None
    unparsed: float | None
    nonfinite: float | None
    items: int
    baseline: Baseline
    decided: str | None = None
    drawn: int | None = None
    looped: float | None = None
    p_critical: float | None = None
    p_critical_corrected: float | None = None

    @property
    def called(self) -> bool:
        """Whether it is marked: critical, or where asking stopped, found to exceed the effect."""
        return bool(self.critical) if self.decided is None else self.decided == "exceeds"

    @property
    def edit(self) -> str:
        """The text form of the edit: the name under which its answers are stored."""
        return str(SCALES[self.unit](self.layer, self.factor))


@dataclass(frozen=True)
class Line:
    """One model on one task with one unit and factor: what is drawn as one line.

    Attributes:
        label: what the legend says.
        items: how many items the unedited model was asked; where asking stopped, the most that any cell was.
        points: by layer, ascending.
        missing: layers that the study will have and this line has not yet.
        drawn: where asking stops as soon as a cell is decided, how many items there are; None in a full table.
        finished: whether no more is asked, since all is decided or all items have been asked.
    """

    label: str
    model: str
    task: str
    unit: Unit
    factor: float
    items: int
    baseline: Baseline
    points: tuple[Point, ...]
    missing: tuple[int, ...]
    drawn: int | None = None
    finished: bool = True

    @property
    def stopped(self) -> bool:
        """Whether its cells were asked only until they were decided."""
        return self.drawn is not None

    @property
    def fewest(self) -> int:
        """How many items the cell that was asked the fewest was asked."""
        return min((point.items for point in self.points), default=self.items)

    def at(self, layer: int) -> Point | None:
        """The point of a layer, or `None`."""
        return next((point for point in self.points if point.layer == layer), None)


@dataclass(frozen=True)
class View:
    """One figure: a unit (and a factor, unless the lines differ by it), one panel of lines per task.

    Attributes:
        slug: the name of its files and anchors.
        panels: task → its lines; every panel has the same lines in the same order, absent ones left out.
        layers: every layer of every line, also the missing ones, ascending.
    """

    unit: Unit
    factor: float | None
    slug: str
    panels: dict[str, tuple[Line, ...]]
    labels: tuple[str, ...]
    layers: tuple[int, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of all panels."""
        return tuple(line for lines in self.panels.values() for line in lines)

    @property
    def stopped(self) -> bool:
        """Whether cells of it were asked only until they were decided."""
        return any(line.stopped for line in self.lines)


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def baseline_of(task: Mapping[str, Any]) -> Baseline:
    """The baseline entry of one task of a summary; all `None` where it was not answered yet."""
    return _baseline(task.get("baseline") or {})


def _baseline(entry: Mapping[str, Any]) -> Baseline:
    return Baseline(*(_number(entry.get(name)) for name in BASELINE_NUMBERS))


def _point(entry: Mapping[str, Any], task: Mapping[str, Any]) -> Point | None:
    accuracy = _number(entry.get("accuracy"))
    if accuracy is None:
        return None
    optional = {name: _number(entry.get(name)) for name in OPTIONAL}
    return Point(
        layer=int(entry["layer"]),
        unit=entry.get("unit", "block"),
        factor=float(entry.get("factor", 0.0)),
        accuracy=accuracy,
        critical=None if entry.get("decided") is not None else bool(entry.get("critical", False)),
        items=int(entry.get("items") or task["items"]),
        baseline=_same_items(entry, task),
        decided=entry.get("decided"),
        drawn=int(task["stopping"]["items"]) if task.get("stopping") else None,
        **optional,
    )


def _same_items(entry: Mapping[str, Any], task: Mapping[str, Any]) -> Baseline:
    """The baseline on the items of a cell: where asking stopped, not that of the task, which was asked more."""
    if not task.get("stopping"):
        return baseline_of(task)
    accuracy, drop = _number(entry.get("accuracy")), _number(entry.get("drop"))
    found = _baseline({name: entry.get(f"baseline_{name}") for name in BASELINE_NUMBERS})
    if found.accuracy is None and accuracy is not None and drop is not None:
        return replace(found, accuracy=accuracy + drop)  # as the drop is paired
    return found


def lines(summary: Summary) -> tuple[Line, ...]:
    """Every line of a summary, in its order: model, task, unit, factor.

    A layer is missing from a line when another task of the same model has it with the same unit and factor,
    or when the task's optional `planned` (a list of layers) names it.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    try:
        return tuple(line for model in summary["models"] for line in _lines_of(model))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one that a study wrote ({type(error).__name__}: {error}). "
            "Run the study again on the same folder: what was answered is kept."
        ) from error


def _lines_of(model: Mapping[str, Any]) -> list[Line]:
    expected: dict[tuple[Unit, float], set[int]] = {}
    points: dict[str, dict[tuple[Unit, float], list[Point]]] = {}
    for task in model["tasks"]:
        kept = points.setdefault(task["task"], {})
        for entry in task["layers"]:
            key = (entry.get("unit", "block"), float(entry.get("factor", 0.0)))
            expected.setdefault(key, set()).add(int(entry["layer"]))
            point = _point(entry, task)
            if point is not None:
                kept.setdefault(key, []).append(point)
    for task in model["tasks"]:
        for layers in expected.values():
            layers.update(int(layer) for layer in task.get("planned") or ())
    return [
        Line(
            label=model["model"],
            model=model["model"],
            task=task["task"],
            unit=unit,
            factor=factor,
            items=int(task["items"]),
            baseline=baseline_of(task),
            points=tuple(sorted(found, key=lambda point: point.layer)),
            missing=tuple(sorted(layers - {point.layer for point in found})),
            drawn=int(task["stopping"]["items"]) if task.get("stopping") else None,
            finished=bool(task["stopping"]["finished"]) if task.get("stopping") else True,
        )
        for task in model["tasks"]
        for (unit, factor), layers in expected.items()
        for found in [points[task["task"]].get((unit, factor), [])]
    ]


def views(summary: Summary) -> tuple[View, ...]:
    """The figures of a summary: one per unit and factor with a line per model; one model with several factors
    gets one per unit with a line per factor.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    every = lines(summary)
    models = list(dict.fromkeys(line.model for line in every))
    found: list[View] = []
    for unit in dict.fromkeys(line.unit for line in every):
        of_unit = [line for line in every if line.unit == unit]
        factors = list(dict.fromkeys(line.factor for line in of_unit))
        if len(models) == 1 and len(factors) > 1:
            relabelled = [Line(**{**vars(line), "label": f"factor {line.factor:g}"}) for line in of_unit]
            found.append(_view(relabelled, unit, None))
        else:
            found.extend(_view([line for line in of_unit if line.factor == factor], unit, factor) for factor in factors)
    return tuple(found)


def _view(of_view: Sequence[Line], unit: Unit, factor: float | None) -> View:
    tasks = dict.fromkeys(line.task for line in of_view)
    layers = {layer for line in of_view for layer in line.missing}
    layers |= {point.layer for line in of_view for point in line.points}
    return View(
        unit=unit,
        factor=factor,
        slug=unit if factor is None else f"{unit}-{factor:g}",
        panels={task: tuple(line for line in of_view if line.task == task) for task in tasks},
        labels=tuple(dict.fromkeys(line.label for line in of_view)),
        layers=tuple(sorted(layers)),
    )


def runs(line: Line, layers: Sequence[int]) -> list[list[Point]]:
    """The points of a line cut where a layer of `layers` is missing: what may be joined by a stroke."""
    found: list[list[Point]] = [[]]
    for layer in layers:
        point = line.at(layer)
        if point is None:
            found.append([])
        else:
            found[-1].append(point)
    return [run for run in found if run]


def drop_scale(of_lines: Sequence[Line]) -> float:
    """The drop at which the heat map's colour is full: the largest, rounded up to a tenth, at least 0.2."""
    largest = max(
        (abs(point.drop) for line in of_lines for point in line.points if point.drop is not None), default=0.0
    )
    return max(0.2, math.ceil(round(largest * 10, 6)) / 10)
