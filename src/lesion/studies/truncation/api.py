"""Truncation from Python: what `lesion truncate` does, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.models.load import Model
from lesion.studies.truncation.grid import KEEP
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.truncation.study import METHOD
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def truncate(
    model: str | Model,
    tasks: str | Task | Sequence[str | Task],
    *,
    matrices: str | Sequence[str] = "mlp",
    layers: str | int | Sequence[int] = "all",
    keep: float | Sequence[float] = KEEP,
    side: str = "top",
    compose: bool = False,
    revisions: str | Sequence[str] = (),
    objective: str = "accuracy",
    validation: float = 0.2,
    screen: str | Mapping[str, int | str] = "auto",
    eliminate: float | None = None,
    items: int | str = 100,
    **options: Unpack[AnsweringOptions],
) -> TruncationResult:
    """Search for a part of a matrix whose removal makes a model better: chosen on some items, tested on the others.

    Example:
        >>> search = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
        >>> search.summary.chosen, search.edit

    Raises:
        UsageError: a task, matrix or layer does not exist, or a value is wrong.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
