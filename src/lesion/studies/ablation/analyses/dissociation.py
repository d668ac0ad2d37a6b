"""Dissociations: places that one task depends on and another does not, each shown by a test of its own.

A place dissociates a skill from another task where it is critical for the skill and spares the other: both tests pass,
each corrected over the blocks of its task. A *double* dissociation has such a place in both directions. One place alone
can also mean that the skill is the more fragile of two that share it (Shallice 1988, chapter 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, derived
from lesion.statistics.spared import rule as spared_rule
from lesion.studies.ablation.cell import AcrossTasks, Curve, Place, critical_and_spared
from lesion.studies.ablation.result import Material

MOST = 3
"""So many double dissociations of a model are told in claims; the table has them all."""


class Dissociation(AcrossTasks):
    """Two tasks of one model, and the blocks that are critical for the one and spare the other under one factor."""

    first: str = column("Task A")
    second: str = column("Task B")
    first_layers: tuple[int, ...]
    second_layers: tuple[int, ...]

    @derived.column("Critical for A, spare B")
    def first_alone(self) -> str:
        """The blocks that are critical for the first task alone."""
        return wording.layer_runs(self.first_layers)

    @derived.column("Critical for B, spare A")
    def second_alone(self) -> str:
        """The blocks that are critical for the second task alone."""
        return wording.layer_runs(self.second_layers)

    @property
    def edits(self) -> tuple[str, ...]:
        """The text forms of the edits that it rests on."""
        layers = (*self.first_layers, *self.second_layers)
        return tuple(Place(layer=layer, unit=self.unit, factor=self.factor).edit for layer in layers)

    @derived.column("In both directions", lambda double: "●" if double else "")
    def double(self) -> bool:
        """Whether there is a place in both directions."""
        return bool(self.first_layers and self.second_layers)


def dissociations(curves: Iterable[Curve]) -> list[Dissociation]:
    """Every pair of tasks with a place in one direction at least, by unit, factor and model; of full tables only."""
    pairs = []
    for sweep in alike((curve for curve in curves if not curve.stopped), "unit", "factor"):
        for first, second in (pair for own in alike(sweep, "model") for pair in combinations(own, 2)):
            ends = {"first_layers": _alone(first, second), "second_layers": _alone(second, first)}
            if any(ends.values()):
                where = {"model": first.model, "unit": first.unit, "factor": first.factor}
                pairs.append(Dissociation(**where, first=first.task, second=second.task, **ends))
    return pairs


def _alone(skill: Curve, other: Curve) -> tuple[int, ...]:
    spared = {cell.layer for cell in other.cells if cell.spared}
    return tuple(sorted(cell.layer for cell in skill.cells if cell.critical and cell.layer in spared))


def part(material: Material) -> Part | None:
    """Every pair of tasks that comes apart in one direction at least; None where there is none."""
    pairs = dissociations(material.curves)
    if not pairs:
        return None
    caption = f"Blocks. {spared_rule()} Both tests of a place have to pass; they are not corrected over pairs of tasks."
    title, only = "Which tasks come apart", "both directions only"
    rows = Rows("dissociations", pairs, (Dissociation,), title, caption, "double", only)
    about = "Only blocks in both directions show that one task is not just more easily disturbed than the other."
    return Part(title, rows, (), come_apart(pairs), about, "Dissociation")


@rule
def come_apart(pairs: Sequence[Dissociation]) -> Iterable[Claim]:
    """The double dissociations, the first ones of every model.

    Says: A and B come apart in both directions: block L is critical for A and spares B; block M the other way round.
    Needs: a place that is critical for the one task and spares the other, by its two tests, in both directions
    """
    for own in alike((pair for pair in pairs if pair.double), "model"):
        for pair in own[:MOST]:
            ends = (pair.first_layers, pair.first, pair.second), (pair.second_layers, pair.second, pair.first)
            either = [critical_and_spared(pair.unit, layers, pair.factor, *tasks) for layers, *tasks in ends]
            first = f"{pair.first} and {pair.second} come apart in both directions."
            sentences = (first, *(f"{wording.capital(text)}." for text in either))
            yield Claim(sentences, (pair,), wording.among(pair.model, [other.model for other in pairs]))
