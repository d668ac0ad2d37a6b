"""Edits as lines for charts: those of one method that differ in the share kept, or in the factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lesion.report import wording
from lesion.report.trials import Asked, Edited, Evaluation

Along = Literal["keep", "factor"]


@dataclass(frozen=True)
class Stop:
    """The edits at one place of a series: one, or its repeats."""

    at: float
    edits: tuple[Edited, ...]


@dataclass(frozen=True)
class Series:
    """Edits of one method that differ in the share kept, or in the factor: what is drawn as one line."""

    label: str
    method: str
    along: Along
    stops: tuple[Stop, ...]


def along(edits: Iterable[Edited], name: Along) -> list[Series]:
    """Series of edits that differ in keep (or in factor) and agree in method, number of samples and the other.

    Repeats stand together at one stop. A label says what tells the series of one method apart.
    """
    groups: dict[tuple[str, int | None, float | None], list[Edited]] = {}
    methods: dict[str, str] = {}
    for edit in edits:
        other = edit.factor if name == "keep" else edit.keep
        groups.setdefault((edit.method_name, edit.samples, other), []).append(edit)
        methods[edit.method_name] = edit.method
    several_samples = len({samples for _, samples, _ in groups if samples is not None}) > 1
    several_others = len({other for _, _, other in groups if other is not None}) > 1
    found = []
    for (method, samples, other), group in groups.items():
        label = method
        if several_others and other is not None:
            told = wording.factor(other) if name == "keep" else f"keep{wording.SPACE}{wording.keep(other)}"
            label += f" {told}" if name == "keep" else f", {told}"
        if several_samples and samples is not None:
            label += f", {wording.counted(samples, 'text')}"
        places: dict[float, list[Edited]] = {}
        for edit in group:
            at = edit.keep if name == "keep" else edit.factor
            places.setdefault(math.nan if at is None else at, []).append(edit)
        stops = tuple(Stop(at, tuple(places[at])) for at in sorted(places, key=lambda at: (math.isnan(at), at)))
        found.append(Series(label, method, name, stops))
    return found


def swept(edits: Sequence[Edited], name: Along) -> list[Series]:
    """The series along keep (or factor) that have at least two places, labelled by what tells these apart.

    Beside two or more factors that keep the weights, pruning is left out: on one axis it would hide the others.
    """
    within = {
        edit.key
        for one in along(edits, name)
        for stop in (_kept(one.stops) if name == "factor" else one.stops)
        for edit in stop.edits
        if len(_kept(one.stops) if name == "factor" else one.stops) > 1
    }
    return along([edit for edit in edits if edit.key in within], name)


def _kept(stops: tuple[Stop, ...]) -> tuple[Stop, ...]:
    without = tuple(stop for stop in stops if stop.at != 0)
    return without if len(without) > 1 else stops


def comparable(found: Evaluation, skill: Asked, edits: Sequence[Edited]) -> list[Asked]:
    """The controls that were asked under at least one of the edits; none where the skill has no accuracy."""
    return [
        control
        for control in found.controls
        if not skill.scored and any(edit.key in control.effects and edit.key in skill.effects for edit in edits)
    ]


def paths(edits: Sequence[Edited]) -> list[Series]:
    """Series for the trade-off plot: every method along what varies most in it, the share kept or the factor."""
    by_method: dict[str, list[Edited]] = {}
    for edit in edits:
        by_method.setdefault(edit.method_name, []).append(edit)
    along_keep: list[Edited] = []
    along_factor: list[Edited] = []
    for group in by_method.values():
        more = len({edit.factor for edit in group}) > len({edit.keep for edit in group})
        (along_factor if more else along_keep).extend(group)
    return along(along_keep, "keep") + along(along_factor, "factor")


def regimes(edits: Sequence[Edited]) -> dict[str, list[Edited]]:
    """`prune` (factors below 1) and `boost` (above 1), those that there are."""
    found: dict[str, list[Edited]] = {"prune": [], "boost": []}
    for edit in edits:
        found["boost" if edit.factor > 1 else "prune"].append(edit)
    return {name: group for name, group in found.items() if group}
