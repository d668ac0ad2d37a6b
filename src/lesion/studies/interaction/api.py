"""Interactions from Python: what `lesion interact` does, as values."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.edits.place import BlockUnit
from lesion.models.load import Model
from lesion.studies.interaction.report import InteractionResult
from lesion.studies.interaction.study import METHOD, Design, Measure
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def interact(
    model: str | Model,
    tasks: str | Task | Sequence[str | Task],
    *,
    design: Design | Sequence[Design] = "pairs",
    layers: str | int | Sequence[int] = "all",
    unit: BlockUnit = "block",
    places: str | Sequence[str] = (),
    factor: float = 0.0,
    measure: Measure = "accuracy",
    window: int = 2,
    order: str | Sequence[int | str] = "least",
    random_orders: int = 5,
    permutations: int = 20,
    items: int | str = 100,
    temperature: float = 0.0,
    top_p: float = 1.0,
    **options: Unpack[AnsweringOptions],
) -> InteractionResult:
    """Remove several blocks, branches or heads together, and compare with what each costs alone.

    Example:
        >>> pairs = lesion.interact("bundled:llama-base", "primer:arithmetic", layers=[1, 3, 4], items=50)
        >>> pairs.table[["places", "sum", "together", "beyond", "verdict"]]

    Raises:
        UsageError: a task or a block does not exist, there is one place only, or an argument cannot be what it is.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
