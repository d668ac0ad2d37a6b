"""Activation patching from Python: what `lesion patch` does, as values."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import ReadingOptions, runs
from lesion.engines.config import EngineChoice
from lesion.models.load import Model
from lesion.studies.patching.report import PatchingResult
from lesion.studies.patching.study import METHOD, POSITIONS, Kind, Position
from lesion.tasks.task import Task


class PatchingOptions(ReadingOptions, total=False):
    """Arguments of a study that runs forward passes in this process."""

    level: float
    batch_size: int | str
    seed: int
    dtype: str
    engine: str | EngineChoice


@validated
@runs(METHOD)
def patch(
    model: str | Model | Sequence[str | Model],
    tasks: str | Task | Sequence[str | Task],
    *,
    items: int | str = 50,
    unit: Kind | Sequence[Kind] = ("block", "attention", "mlp"),
    layers: str | Sequence[int] = "all",
    position: Position | Sequence[Position] = tuple(POSITIONS),
    **options: Unpack[PatchingOptions],
) -> PatchingResult:
    """Put activations of a clean prompt into the run on a corrupted one and the other way round, place by place.

    Example:
        >>> result = lesion.patch("bundled:llama-base", "ioi", items=4)
        >>> result.table[["direction", "place", "layer", "position", "effect"]]

    Raises:
        UsageError: a task, model or layer does not exist, or no item of a task has a corrupted prompt of its length.
        LesionError: a model cannot be loaded, or the folder cannot be written.
    """
    raise NotImplementedError  # `runs` does it
