"""What a study found, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.views import Line, Point, View

CONTROL_LEVEL = 0.5
"""Share of failing answers hitting the token limit from which a loss is said to be one of stopping."""


def findings(of_views: Sequence[View]) -> list[str]:
    """A few sentences on what the cuts did: per view and model, which places are critical for what."""
    told: list[str] = []
    for view in of_views:
        if view.factor is None:
            told.extend(_model(view, label) for label in view.labels)
        else:
            told.extend(_model(view, label) for label in view.labels)
            told.extend(_shared(view))
    return [sentence for sentence in told if sentence]


def critical(line: Line) -> list[Point]:
    """The critical points of a line, the largest drop first."""
    found = [point for point in line.points if point.critical]
    return sorted(found, key=lambda point: (-(point.drop or 0.0), point.layer))


def critical_places(line: Line) -> str:
    """`block 3`, `blocks 0–2, 5`, `the MLP of block 3`, or an empty string."""
    return _places(line.unit, [point.layer for point in critical(line)])


def _places(unit: str, layers: Sequence[int]) -> str:
    if not layers:
        return ""
    prefix = "" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of "
    return f"{prefix}block{'s' if len(layers) > 1 else ''} {wording.layer_runs(layers)}"


def _model(view: View, label: str) -> str:
    of_model = [line for line in view.lines if line.label == label and line.points]
    if not of_model:
        return ""
    told = [_task(line) for line in of_model]
    subject = of_model[0].model
    if view.factor is None or view.factor != 0:
        subject += f", {_unit(view)} scaled by {of_model[0].factor:g}"
    elif view.unit != "block":
        subject += f", {_unit(view)} switched off"
    told.extend(_selective(of_model))
    return f"{subject}: {' '.join(told)}"


def _unit(view: View) -> str:
    return wording.UNIT_NAMES[view.unit]


def _task(line: Line) -> str:
    base = line.baseline
    if base.accuracy == 0:
        n = wording.counted(line.items, "item")
        return f"{line.task} was never answered rightly ({n}), so no cut can show a loss."
    found = critical(line)
    if not found:
        whole = "" if not line.missing else " so far"
        largest = max(line.points, key=lambda point: point.drop or 0.0)
        return (
            f"No {wording.UNIT_NAMES[line.unit]} is critical for {line.task}{whole}; the largest drop is "
            f"{wording.points(largest.drop)} points {wording.interval(largest.drop_low, largest.drop_high)} "
            f"at {wording.place('block', largest.layer)}."
        )
    worst = found[0]
    verb = "is" if len(found) == 1 else "are"
    places = critical_places(line)
    sentence = (
        f"{places[0].upper()}{places[1:]} {verb} critical for {line.task}: without "
        f"{'it' if len(found) == 1 else wording.place('block', worst.layer)} accuracy falls from "
        f"{wording.percent(base.accuracy)} {wording.interval(base.low, base.high)} to "
        f"{wording.percent(worst.accuracy)} {wording.interval(worst.low, worst.high)}"
    )
    wrong = 1 - worst.accuracy
    if worst.truncated is not None and wrong > 0 and worst.truncated >= CONTROL_LEVEL * wrong:
        sentence += (
            f" (there {wording.percent(worst.truncated, 0)} of the answers hit the token limit: part of the loss "
            "may be one of stopping)"
        )
    return f"{sentence}."


def _selective(of_model: Sequence[Line]) -> list[str]:
    """Places critical for one task only, where the other tasks were measured too."""
    if len(of_model) < 2:
        return []
    told = []
    for line in of_model:
        others = [other for other in of_model if other is not line]
        alone = [
            point.layer
            for point in critical(line)
            if all((there := other.at(point.layer)) is not None and not there.critical for other in others)
        ]
        if alone:
            told.append(f"Critical for {line.task} alone: {_places(line.unit, alone)}.")
    return told


def _shared(view: View) -> list[str]:
    """Places critical for a task in every model of the view."""
    told = []
    for task, of_task in view.panels.items():
        if len(of_task) < 2:
            continue
        sets = [{point.layer for point in line.points if point.critical} for line in of_task]
        common = sorted(set.intersection(*sets))
        if common:
            verb = "is" if len(common) == 1 else "are"
            told.append(
                f"In all {len(of_task)} models {_places(view.unit, common)} {verb} critical for {task}."
            )
        elif any(sets):
            told.append(f"No {_unit(view)} is critical for {task} in all {len(of_task)} models.")
    return told


def missing(of_views: Sequence[View]) -> list[str]:
    """What a study in progress has not answered yet, a sentence per line; empty when it is complete."""
    told = []
    for line in dict.fromkeys(line for view in of_views for line in view.lines):
        if line.baseline.accuracy is None:
            told.append(f"{line.model} on {line.task}: the unedited model has not been measured yet.")
        if line.missing:
            unit = "" if line.unit == "block" else f" ({wording.UNIT_NAMES[line.unit]})"
            factor = "" if line.factor == 0 else f", factor {line.factor:g}"
            told.append(
                f"{line.model} on {line.task}: {_places('block', line.missing)}{unit}{factor} not answered yet."
            )
    return told
