"""What a layer study says of one model on one task: its cells, what is critical, and how surely layers are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.edits.edit import BASELINE, Unit
from lesion.statistics.agreement import Profile, profile
from lesion.statistics.critical import SHARE
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary, Cell, TaskResult

FEWEST = 3
"""Of fewer layers no order is worth a comparison."""
FLOOR = 0.05
"""The accuracy that a model must surpass beyond doubt before it can be said to lose a skill."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The cells of one model on one task under the unit and factor that are compared, by layer.

    Attributes:
        profile: None where there are fewer than `FEWEST` cells.
    """

    result: TaskResult
    cells: tuple[Cell, ...]
    profile: Profile | None

    @property
    def accuracy(self) -> float:
        """Of the unedited model."""
        return self.result.baseline.accuracy.value or 0.0

    @property
    def able(self) -> bool:
        """Whether the unedited model can do the task at all."""
        return (self.result.baseline.accuracy.low or 0.0) > FLOOR

    @property
    def layers(self) -> list[int]:
        """The layers of the cells."""
        return [cell.layer for cell in self.cells]

    @property
    def critical(self) -> list[int]:
        """The layers that are critical."""
        return [cell.layer for cell in self.cells if cell.critical]

    @property
    def harmless(self) -> list[int]:
        """The layers that are beyond doubt not critical: even the upper end of their drop is too small."""
        least = SHARE * self.accuracy
        return [
            cell.layer
            for cell in self.cells
            if not cell.critical and cell.drop.high is not None and cell.drop.high < least
        ]


def read(
    study: Study,
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    unit: Unit,
    factor: float,
    names: set[str],
) -> dict[tuple[str, str], Measured]:
    """By model and task the cells of the models named, where there are any.

    Items are resampled alike in all models of a task, and independently of other tasks.
    """
    frames = dict(iter(answers.groupby(["model_name", "task"], sort=False)))
    places = {choice.name: place for place, choice in enumerate(study.tasks)}
    measured = {}
    for model in summary.models:
        for result in model.tasks if model.model in names else ():
            task, cells = result.task, result.of(unit, factor)
            if not cells:
                continue
            edits = [str(BASELINE), *(cell.edit for cell in cells)]
            right = _right(frames[model.model, task], edits, list(items["item"][items["task"] == task]))
            seed = len(study.tasks) * study.seed + places[task]
            layers = [cell.layer for cell in cells]
            ordered = profile(right, layers, seed) if len(cells) >= FEWEST else None
            measured[model.model, task] = Measured(result, cells, ordered)
    return measured


def _right(frame: pd.DataFrame, edits: Sequence[str], ids: Sequence[str]) -> Bool[np.ndarray, "edits items"]:
    """Whether each item is right under each edit; the summary has them only where all are answered."""
    rows, columns = ({name: place for place, name in enumerate(names)} for names in (edits, ids))
    right = np.zeros((len(edits), len(ids)), dtype=bool)
    edit, item = frame["edit"].map(rows), frame["item"].map(columns)
    there = (edit.notna() & item.notna()).to_numpy()
    right[edit[there].astype(int), item[there].astype(int)] = frame["correct"][there].to_numpy(dtype=bool)
    return right
