"""Layer ablation from Python: what `lesion ablate` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.edits.place import Unit
from lesion.models.load import Model
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.study import METHOD, Kind
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def ablate(
    model: str | Model | Sequence[str | Model],
    tasks: str | Task | Sequence[str | Task],
    *,
    items: int | str = 100,
    unit: Unit | Sequence[Unit] = "block",
    layers: str | int | Sequence[int] = "all",
    factor: float | Sequence[float] = 0.0,
    replace: Kind | Sequence[Kind] = (),
    draws: int = 1,
    revisions: str | Sequence[str] = (),
    temperature: float = 0.0,
    top_p: float = 1.0,
    stop_when: Literal["decided"] | None = None,
    stop_rule: Literal["closed e-BH", "e-Holm"] | None = None,
    effect: float | None = None,
    screen: bool = False,
    screen_top: int | None = None,
    **options: Unpack[AnsweringOptions],
) -> AblationResult:
    """Switch off (scale, or replace) one place after another and measure what each does to each task.

    Example:
        >>> result = lesion.ablate("bundled:llama-base", tasks=["primer:arithmetic"], items=100)
        >>> result.table[["layer", "accuracy", "critical"]]

    Raises:
        UsageError: a task or layer does not exist, or an argument cannot be what it is to be.
        LesionError: a model cannot be loaded, or the folder belongs to another study.
    """
    raise NotImplementedError  # `runs` does it
