"""Effects from Python: what `lesion effects` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import ReadingOptions, runs
from lesion.models.load import Model
from lesion.studies.effects.report import EffectsResult
from lesion.studies.effects.study import METHOD
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def effects(
    model: str | Model | Sequence[str | Model],
    tasks: str | Task | Sequence[str | Task],
    *,
    unit: str | Sequence[str] = ("block", "attention", "mlp"),
    items: int | str = 50,
    study: str | Path | None = None,
    seed: int = 0,
    level: float = 0.95,
    batch_size: int | str = "auto",
    dtype: str = "auto",
    **options: Unpack[ReadingOptions],
) -> EffectsResult:
    """Measure what every block writes towards the right answer, and what is lost without it.

    Example:
        >>> result = lesion.effects("bundled:llama-base", "primer:arithmetic", items=20)
        >>> result.verdict, result.table[["unit", "layer", "direct", "total"]]

    Raises:
        UsageError: a task does not exist or has no gold answers, a branch is not known, or the layer study beside it is
            about other models or tasks.
        LesionError: a model cannot be loaded, no block's part in its logits can be read, or the folder belongs to other
            questions.
    """
    raise NotImplementedError  # `runs` does it
