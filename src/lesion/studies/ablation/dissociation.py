"""Dissociations: places that one task depends on and another does not, each shown by a test of its own.

A place dissociates a skill from another task where it is critical for the skill and spares the other: both tests pass,
each corrected over the blocks of its task. A *double* dissociation has such a place in both directions. One place alone
can also mean that the skill is the more fragile of two that share it (Shallice 1988, chapter 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from lesion.report import wording
from lesion.report.blocks import Prose, Section
from lesion.report.finding import Finding
from lesion.report.table import Column, Table
from lesion.statistics.spared import rule
from lesion.studies.ablation.curves import Curve, View

MOST = 3
"""So many double dissociations of a model are told in sentences; the table has them all."""
WHAT = (
    "A double dissociation: a place that is critical for the one task and spares the other, and a place of which the"
    " opposite holds. The second direction rules out that the one task is only the more fragile of the two."
)


@dataclass(frozen=True)
class Dissociation:
    """Two tasks of one model, and the blocks that are critical for the one and spare the other under one factor."""

    model: str
    unit: str
    factor: float | str
    first: str
    second: str
    first_alone: tuple[int, ...]
    second_alone: tuple[int, ...]

    @property
    def double(self) -> bool:
        """Whether there is a place in both directions."""
        return bool(self.first_alone and self.second_alone)


def dissociations(views: Sequence[View]) -> list[Dissociation]:
    """Every pair of tasks with a place in one direction at least, by view and model; none where asking stopped."""
    found = []
    for view in views:
        for label in view.labels:
            curves = [curve for curve in view.curves if curve.label == label and not curve.stopped]
            for first, second in combinations(curves, 2):
                ends = _alone(first, second), _alone(second, first)
                if any(ends):
                    found.append(Dissociation(first.model, view.unit, first.factor, first.task, second.task, *ends))
    return found


def _alone(skill: Curve, other: Curve) -> tuple[int, ...]:
    """The blocks that are critical for a skill and spare another task."""
    spared = {cell.layer for cell in other.cells if cell.spared}
    return tuple(sorted(cell.layer for cell in skill.cells if cell.critical and cell.layer in spared))


def findings(views: Sequence[View]) -> list[Finding]:
    """The double dissociations of every model, a sentence each."""
    by_model: dict[str, list[Dissociation]] = {}
    for pair in dissociations(views):
        if pair.double:
            by_model.setdefault(pair.model, []).append(pair)
    several = len({curve.model for view in views for curve in view.curves}) > 1
    found = []
    for model, pairs in by_model.items():
        first, *others = _sentences(pairs)
        subject = f"{model}, double dissociations" if several else "Double dissociations"
        found.append(Finding(subject, (first,), tuple(others)))
    return found


def _sentences(pairs: Sequence[Dissociation]) -> list[str]:
    sentences = [
        f"{pair.first} and {pair.second} come apart in both directions:"
        f" {_direction(pair, pair.first_alone, pair.first, pair.second)};"
        f" {_direction(pair, pair.second_alone, pair.second, pair.first)}."
        for pair in pairs[:MOST]
    ]
    if (rest := len(pairs) - MOST) > 0:
        sentences.append(f"So do {rest} further pair{'' if rest == 1 else 's'} of tasks.")
    return sentences


def _direction(pair: Dissociation, layers: Sequence[int], skill: str, other: str) -> str:
    """`block 13 is critical for sums and spares induction`."""
    places = wording.numbered("block", layers)
    subject = places if pair.unit == "block" else f"the {wording.UNIT_NAMES[pair.unit]} of {places}"
    subject += "" if pair.factor == 0 else f" {wording.changed(pair.factor)}"
    one = pair.unit != "block" or len(layers) == 1
    return f"{subject} {'is' if one else 'are'} critical for {skill} and spare{'s' if one else ''} {other}"


def section(views: Sequence[View]) -> Section | None:
    """Every pair of tasks that comes apart in one direction at least; None where there is none."""
    pairs = dissociations(views)
    if not pairs:
        return None
    rows = [
        {"model": pair.model, "unit": pair.unit, "factor": pair.factor, "first": pair.first, "second": pair.second}
        | {"first_alone": wording.layer_runs(pair.first_alone), "second_alone": wording.layer_runs(pair.second_alone)}
        | {"double": pair.double}
        for pair in pairs
    ]
    several = len({pair.model for pair in pairs}) > 1
    edits = len({(pair.unit, pair.factor) for pair in pairs}) > 1
    table = Table(
        "dissociations",
        pd.DataFrame(rows),
        (
            *([Column("model", "Model", number=False)] if several else []),
            *([Column("unit", "Unit", lambda unit: wording.UNIT_NAMES[unit], number=False)] if edits else []),
            *([Column("factor", "Factor", wording.factor_name)] if edits else []),
            Column("first", "Task A", number=False),
            Column("second", "Task B", number=False),
            Column("first_alone", "Critical for A, spare B", lambda text: text or wording.DASH, number=False),
            Column("second_alone", "Critical for B, spare A", lambda text: text or wording.DASH, number=False),
            Column("double", "Double", lambda double: "●" if double else "", number=False),
        ),
        title="Which tasks come apart",
        caption=f"Blocks. {rule()} Both tests of a place have to pass; they are not corrected over pairs of tasks.",
        mark=lambda row: bool(row["double"]),
        marked="double dissociations only",
    )
    return Section("Dissociation", "Which tasks come apart", (Prose((WHAT,)), table))
