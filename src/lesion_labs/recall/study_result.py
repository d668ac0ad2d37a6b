"""The result of a study of the recall laboratory: its trainings, and means and spreads over seeds."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary
from lesion.report.values import Value
from lesion_labs.recall.recipe import Recipe
from lesion_labs.recall.result import (
    Control,
    Machine,
    MainMeasures,
    Measures,
    Phases,
    Replacement,
    Side,
    Spread,
    central,
    chosen,
)
from lesion_labs.recall.study_file import RecallStudy

Spreads = MainMeasures[Spread]
MEASURES = tuple(MainMeasures.model_fields)
"""The measures that are gathered over seeds."""


class CutSpreads(Replacement, Spreads):
    """A replacement over seeds; random projections are first averaged over the draws of a seed.

    Attributes:
        beyond: of a truncation, each measure less that behind a random projection of the same rank and seed.
    """

    beyond: Spreads | None = None


class SeedsPhase(Value):
    """When a phase came.

    Attributes:
        came: in so many seeds; of: all seeds.
        untrained: seeds in which a margin was positive before training; they are not among `came`.
        steps: over the seeds in which it came; without an interval, since Student's would reach below the first step.
    """

    came: int
    of: int
    untrained: int = 0
    steps: Spread | None = None


class SeedsPhases(Value):
    """The phases over seeds: of every margin, and of attention."""

    margins: dict[str, SeedsPhase]
    attention: SeedsPhase


class Group(Value):
    """Trainings that differ in their seed alone; `recipe` is that of the first."""

    recipe: Recipe
    seeds: tuple[int, ...]
    full: Spreads
    truncated: tuple[CutSpreads, ...]
    phases: SeedsPhases

    @property
    def central(self) -> list[str]:
        """The matrices that the paper truncates first."""
        return central(list(dict.fromkeys(row.matrix for row in self.truncated)))

    def rows(self, matrix: str, control: Control | None = None, side: Side | None = None) -> list[CutSpreads]:
        """The rows of a matrix, as `chosen` takes them."""
        return chosen((row for row in self.truncated if row.matrix == matrix), control, side)


class StudyTraining(Value):
    """One training of a study: its folder within the study's, and its main numbers."""

    folder: str
    recipe: Recipe
    floor: float
    full: Measures
    phases: Phases
    machine: Machine


class RecallStudySummary(Summary):
    """All numbers of a study: every training, and means and spreads over seeds."""

    kind: Literal["recall-sweep"] = "recall-sweep"
    version: str
    study: RecallStudy
    cells: tuple[StudyTraining, ...]
    groups: tuple[Group, ...]
