"""Edits as lines for charts: those of one method that differ in the share kept, or in the factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lesion.report import wording
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation

Along = Literal["keep", "factor"]


@dataclass(frozen=True)
class Stop:
    """The edits at one place of a line: one, or its repeats."""

    at: float
    edits: tuple[EditedModel, ...]


@dataclass(frozen=True)
class Line:
    """Edits of one method that differ in the share kept, or in the factor: what is drawn as one line.

    Attributes:
        method: name of the method, as in `Evaluation.methods`.
    """

    label: str
    method: str
    along: Along
    stops: tuple[Stop, ...]


def along(edits: Iterable[EditedModel], name: Along) -> list[Line]:
    """Lines of edits that differ in keep (or in factor) and agree in method, number of samples and the other.

    Repeats stand together at one stop. A label says in what the lines of one method differ.
    """
    groups: dict[tuple[str, int | None, float | None], list[EditedModel]] = {}
    for edit in edits:
        other = edit.factor if name == "keep" else edit.keep
        groups.setdefault((edit.method_name, edit.samples, other), []).append(edit)
    several_samples = len({samples for _, samples, _ in groups if samples is not None}) > 1
    several_others = len({other for _, _, other in groups if other is not None}) > 1
    lines = []
    for (method, samples, other), group in groups.items():
        label = method
        if several_others and other is not None:
            keep = f", keep{wording.SPACE}{wording.keep(other)}"
            label += f" {wording.factor(other)}" if name == "keep" else keep
        if several_samples and samples is not None:
            label += f", {wording.counted(samples, 'text')}"
        places: dict[float, list[EditedModel]] = {}
        for edit in group:
            at = edit.keep if name == "keep" else edit.factor
            places.setdefault(math.nan if at is None else at, []).append(edit)
        stops = tuple(Stop(at, tuple(places[at])) for at in sorted(places, key=lambda at: (math.isnan(at), at)))
        lines.append(Line(label, method, name, stops))
    return lines


def swept(edits: Sequence[EditedModel], name: Along) -> list[Line]:
    """The lines along keep (or factor) that have at least two places, labelled by what differs among these.

    Beside two or more factors that keep the weights, pruning is left out: on one axis it would hide the others.
    """
    within = {
        edit.edit
        for one in along(edits, name)
        for stop in (_kept(one.stops) if name == "factor" else one.stops)
        for edit in stop.edits
        if len(_kept(one.stops) if name == "factor" else one.stops) > 1
    }
    return along([edit for edit in edits if edit.edit in within], name)


def _kept(stops: tuple[Stop, ...]) -> tuple[Stop, ...]:
    without = tuple(stop for stop in stops if stop.at != 0)
    return without if len(without) > 1 else stops


def comparable(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel]) -> list[EvaluatedTask]:
    """The controls that were asked under at least one of the edits; none where the skill has no accuracy."""
    return [
        control
        for control in evaluation.controls
        if not skill.scored and any(edit.edit in control.effects and edit.edit in skill.effects for edit in edits)
    ]


def paths(edits: Sequence[EditedModel]) -> list[Line]:
    """Lines of the trade-off plot: every method along what varies most in it, the share kept or the factor."""
    by_method: dict[str, list[EditedModel]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    along_keep: list[EditedModel] = []
    along_factor: list[EditedModel] = []
    for group in by_method.values():
        more = len({edit.factor for edit in group}) > len({edit.keep for edit in group})
        (along_factor if more else along_keep).extend(group)
    return along(along_keep, "keep") + along(along_factor, "factor")


def regimes(edits: Sequence[EditedModel]) -> dict[str, list[EditedModel]]:
    """`prune` (factors below 1) and `boost` (above 1), those that there are."""
    groups: dict[str, list[EditedModel]] = {"prune": [], "boost": []}
    for edit in edits:
        groups["boost" if edit.boosts else "prune"].append(edit)
    return {name: group for name, group in groups.items() if group}
