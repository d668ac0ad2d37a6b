"""Tuning from Python: what `lesion tune` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import DecodingOptions, runs
from lesion.models.load import Model
from lesion.studies.tuning.report import TuningResult
from lesion.studies.tuning.study import METHOD
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def tune(
    model: str | Model,
    task: str | Task,
    *,
    layers: str | int | Sequence[int] | Sequence[str] = "critical",
    budget: int | str = "25%",
    by: str | None = None,
    steps: int = 40,
    rows: int = 16,
    generations: int | None = None,
    rollout_temperature: float | None = None,
    learning_rate: float | Sequence[float] | None = None,
    adapter: int | None = None,
    controls: str | Task | Sequence[str | Task] = (),
    study: str | Path | None = None,
    seed: int | Sequence[int] = 0,
    items: int = 400,
    control_items: int = 200,
    ablation_items: int = 100,
    validation_items: int = 200,
    **options: Unpack[DecodingOptions],
) -> TuningResult:
    """Fine-tune chosen blocks of a model on a task, the rest frozen, and measure what it gains and costs.

    Example:
        >>> tuned = lesion.tune("bundled:llama-base", "primer:arithmetic", layers="critical", budget=2)
        >>> lesion.load(tuned.model)
        >>> lesion.tune("bundled:llama-base", "primer:arithmetic", layers=["critical", "random"], seed=[0, 1, 2]).table

    Raises:
        UsageError: a task, layer, budget, rank or number of items cannot be, or a model is not in float32.
        LesionError: the model cannot be loaded, TRL is not installed, or the folder belongs to something else.
    """
    raise NotImplementedError  # `runs` does it
