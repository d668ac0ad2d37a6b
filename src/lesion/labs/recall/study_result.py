"""The result of a study of the recall laboratory: its trainings, and means and spreads over seeds."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary, Value
from lesion.labs.recall.recipe import Recipe
from lesion.labs.recall.result import Control, Machine, Matrix, Measures, Phases, Side, Spread, central
from lesion.labs.recall.study_file import RecallStudy

MEASURES = ("clean_loss", "clean_accuracy", "p_noise", "p_correct", "noisy_loss")
"""The measures that are gathered over seeds."""


class Spreads(Value):
    """Measures over seeds."""

    clean_loss: Spread
    clean_accuracy: Spread
    p_noise: Spread
    p_correct: Spread
    noisy_loss: Spread

    def of(self, measure: str) -> Spread:
        """A measure by its name."""
        value: Spread = getattr(self, measure)
        return value


class CutSpreads(Spreads):
    """A replacement over seeds; random projections are first averaged over the draws of a seed.

    Attributes:
        beyond: of a truncation, each measure less that behind a random projection of the same rank of the same seed's
            model.
    """

    matrix: Matrix
    keep: float | None
    rank: int
    side: Side | None
    control: Control | None
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
    """Trainings that differ in their seed alone.

    Attributes:
        recipe: of the first of the seeds.
    """

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
        """The rows of a matrix with this control (None: truncations), of one side or of both, by rising keep."""
        rows = (row for row in self.truncated if row.matrix == matrix and row.control == control)
        return sorted((row for row in rows if side in (None, row.side)), key=lambda row: row.keep or 0.0)

    def control(self, matrix: str, control: Control) -> CutSpreads:
        """The only row of a matrix with this control."""
        (row,) = self.rows(matrix, control)
        return row


class Cell(Value):
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
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
