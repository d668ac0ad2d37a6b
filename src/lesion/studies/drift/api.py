"""Drift from Python: what `lesion drift` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.models.load import Model
from lesion.studies.drift.report import DriftResult
from lesion.studies.drift.study import METHOD
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def drift(
    model: str | Model | Sequence[str | Model],
    task: str | Task,
    *,
    clusters: int | Sequence[int] | None = None,
    runs: int = 5,
    items: int = 20,
    layer_zero: str = "embedding",
    part: str = "both",
    solution: str = "own",
    normalise: str = "none",
    nmi: str = "arithmetic",
    starts: int = 10,
    elbow: str = "later",
    between: Sequence[int] | None = None,
    study: str | Path | None = None,
    **options: Unpack[AnsweringOptions],
) -> DriftResult:
    """Cluster the hidden states of every layer and tell how far tokens leave the clusters they began in.

    Example:
        >>> result = lesion.drift("bundled:llama-base", "primer:arithmetic", clusters=[50, 10])
        >>> result.table[["layer", "nmi", "null"]], result.summary.models[0].curve.shape

    Raises:
        UsageError: a task, model or layer does not exist, or a run has fewer tokens than clusters.
        LesionError: a model cannot be loaded or its states are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
