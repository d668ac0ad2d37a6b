"""What a layer study tells of a model on a task: can it do it, what is critical, what each layer costs, how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.edits.edit import BASELINE, SCALES, Unit
from lesion.statistics.agreement import Profile, profile
from lesion.statistics.critical import SHARE
from lesion.studies.ablation.study import Study

FEWEST = 3
"""Of fewer layers no order is worth a comparison."""
FLOOR = 0.05
"""The accuracy that a model must surpass beyond doubt before it can be said to lose a skill."""


@dataclass(frozen=True, eq=False)
class Told:
    """What a study tells of one model and task: the entry of its summary, and its profile where all is answered."""

    entry: Mapping[str, Any]
    layers: tuple[Mapping[str, Any], ...]
    profile: Profile | None

    @property
    def able(self) -> bool:
        """Whether the unedited model can do the task at all."""
        return bool(self.entry["baseline"]["low"] > FLOOR)

    @property
    def critical(self) -> list[int]:
        """The layers that are critical."""
        return [layer["layer"] for layer in self.layers if layer["critical"]]

    @property
    def harmless(self) -> list[int]:
        """The layers that are beyond doubt not critical: even the upper end of their drop is too small."""
        least = SHARE * self.entry["baseline"]["accuracy"]
        return [layer["layer"] for layer in self.layers if not layer["critical"] and layer["drop_high"] < least]


def read(
    study: Study,
    summary: Mapping[str, Any],
    answers: pd.DataFrame,
    items: pd.DataFrame,
    unit: Unit,
    factor: float,
    names: set[str],
) -> dict[tuple[str, str], Told]:
    """What there is, by model and task.

    Items are resampled alike in all models of a task, and independently of other tasks.
    """
    frames = dict(iter(answers.groupby(["model_name", "task"], sort=False)))
    places = {choice.name: place for place, choice in enumerate(study.tasks)}
    found = {}
    for model in summary["models"]:
        for entry in model["tasks"] if model["model"] in names else ():
            task = entry["task"]
            layers = tuple(
                sorted(
                    (one for one in entry["layers"] if (one["unit"], one["factor"]) == (unit, factor)),
                    key=lambda one: int(one["layer"]),
                )
            )
            edits = [str(BASELINE), *(str(SCALES[unit](one["layer"], factor)) for one in layers)]
            right = _right(frames[model["model"], task], edits, list(items["item"][items["task"] == task]))
            indices = [int(one["layer"]) for one in layers]
            seed = len(study.tasks) * study.seed + places[task]
            measured = profile(right, indices, seed) if len(layers) >= FEWEST else None
            found[model["model"], task] = Told(entry, layers, measured)
    return found


def _right(frame: pd.DataFrame, edits: Sequence[str], asked: Sequence[str]) -> Bool[np.ndarray, "edits items"]:
    """Whether each item is right under each edit; the summary has them only where all are answered."""
    rows, columns = ({name: place for place, name in enumerate(names)} for names in (edits, asked))
    right = np.zeros((len(edits), len(asked)), dtype=bool)
    edit, item = frame["edit"].map(rows), frame["item"].map(columns)
    there = (edit.notna() & item.notna()).to_numpy()
    right[edit[there].astype(int), item[there].astype(int)] = frame["correct"][there].to_numpy(dtype=bool)
    return right
