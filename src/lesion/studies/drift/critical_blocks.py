"""Critical blocks of a layer study beside a hinge or step of a drift: which there are, and how far away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lesion.report.values import Value
from lesion.studies.ablation.result import TaskResult, read_finished
from lesion.tasks.catalogue import canonical

PLACES = 2001
"""Places of a hinge at which chance is computed."""


def read_critical(folder: str | Path, models: Sequence[str]) -> dict[str, dict[str, tuple[int, ...]]]:
    """The critical blocks of a layer study by model and canonical task: blocks switched off whole, nothing else."""
    return {
        model.model: {canonical(result.task): _critical(result) for result in model.tasks}
        for model in read_finished(folder, models).models
    }


def _critical(result: TaskResult) -> tuple[int, ...]:
    """The blocks whose ablation as a whole is critical for a task under some factor; replacements do not count."""
    scaled = (cell for cell in result.cells if cell.unit == "block" and not isinstance(cell.factor, str))
    return tuple(sorted({cell.layer for cell in scaled if cell.critical}))


class Distance(Value):
    """How far a place on the layer axis is from the nearest critical block.

    Attributes:
        block: the nearest critical block; the first of two that are equally near.
        distance: from the block to the place, in layers (`apart`).
        chance: the share of all possible places that are as near to a critical block or nearer.
    """

    block: int
    distance: float
    chance: float


def apart(layer: float, block: int) -> float:
    """The layers between a place and a block: 0 within the block, negative before it, positive after it.

    Layer l of a drift is the output of block l − 1, so that block c stands between the layers c and c + 1.
    """
    return layer - block if layer < block else max(0.0, layer - (block + 1))


def within(layer: float, blocks: Sequence[int]) -> bool:
    """Whether a place on the axis lies within one of the blocks."""
    return any(abs(apart(layer, block)) <= 1e-9 for block in blocks)


def places(kind: str, first: int, last: int) -> list[float]:
    """All places at which a fit to the layers `first` to `last` can put a hinge or a step, evenly spread.

    A hinge lies between the second and the last but one layer, a step over one of the blocks between two layers.
    """
    if kind == "step":
        return [layer + 0.5 for layer in range(first, last)]
    return [float(layer) for layer in np.linspace(first + 1, last - 1, PLACES)]


def distance(layer: float, critical: Sequence[int], places: Sequence[float]) -> Distance | None:
    """The distance from a place on the layer axis, NaN where there is none, to the nearest critical block.

    `places` are where it could have been; `chance` is the share of them that are as near. None without critical blocks
    or without a place.
    """
    if not critical or not math.isfinite(layer):
        return None
    block = min(critical, key=lambda block: (abs(apart(layer, block)), block))
    away = apart(layer, block)
    near = [min(abs(apart(place, block)) for block in critical) <= abs(away) + 1e-9 for place in places]
    return Distance(block=block, distance=away, chance=float(np.mean(near)))
