"""Edits as lines for charts: those of one method that differ in the share kept, or in the factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lesion.report import wording
from lesion.studies.isolation.evaluation import EditedModel, EvaluatedTask, Evaluation

Along = Literal["keep", "factor"]


class Stop(NamedTuple):
    """The edits at one place of a line, one or its repeats; the place is NaN for an edit without a share."""

    at: float
    edits: tuple[EditedModel, ...]


@dataclass(frozen=True)
class Line:
    """Edits of one method that differ in the share kept, or in the factor; `method` as in `Evaluation.methods`."""

    label: str
    method: str
    along: Along
    stops: tuple[Stop, ...]

    @property
    def edits(self) -> list[EditedModel]:
        """The edits of all stops."""
        return [edit for stop in self.stops for edit in stop.edits]

    @property
    def kept(self) -> tuple[Stop, ...]:
        """Along the factor the stops without pruning, where at least two are left: it would hide them on one axis."""
        unpruned = tuple(stop for stop in self.stops if stop.at != 0)
        return unpruned if self.along == "factor" and len(unpruned) > 1 else self.stops


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
            keep = f", share{wording.SPACE}{wording.keep(other)}"
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
    """The lines along keep (or factor) that have at least two places, labelled by what differs among these."""
    lines = [line for line in along(edits, name) if len(line.kept) > 1]
    drawn = {edit.edit for line in lines for stop in line.kept for edit in stop.edits}
    return along([edit for edit in edits if edit.edit in drawn], name)


def comparable(evaluation: Evaluation, skill: EvaluatedTask, edits: Sequence[EditedModel]) -> list[EvaluatedTask]:
    """The controls that were asked under at least one of the edits; none where the skill has no accuracy."""
    return [
        control
        for control in evaluation.controls
        if not skill.scored and any(edit.edit in control.effects and edit.edit in skill.effects for edit in edits)
    ]


def paths(edits: Sequence[EditedModel]) -> list[Line]:
    """Lines of the trade-off plot: every method along what varies most in it, the share kept or the factor."""
    groups: dict[Along, list[EditedModel]] = {"keep": [], "factor": []}
    for method in dict.fromkeys(edit.method_name for edit in edits):
        own = [edit for edit in edits if edit.method_name == method]
        more_factors = len({edit.factor for edit in own}) > len({edit.keep for edit in own})
        groups["factor" if more_factors else "keep"] += own
    return [line for name, group in groups.items() for line in along(group, name)]


def regimes(edits: Sequence[EditedModel]) -> dict[str, list[EditedModel]]:
    """`prune` (factors below 1) and `boost` (above 1), those that there are."""
    groups = {name: [edit for edit in edits if edit.boosts == (name == "boost")] for name in ("prune", "boost")}
    return {name: group for name, group in groups.items() if group}
