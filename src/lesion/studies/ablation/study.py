"""The layer study: which models are asked which tasks with which places switched off, as validated TOML."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.core.layers import Layers
from lesion.core.study_file import (
    ModelChoice,
    Number,
    Questions,
    Table,
    TaskChoice,
    different,
    listed,
    shipped,
    table_of,
)
from lesion.edits.edit import Unit
from lesion.errors import UsageError

__all__ = ["EditPlan", "Layers", "ModelChoice", "StopPlan", "Study", "TaskChoice", "shipped"]


class EditPlan(Table):
    """The edits of the study: every unit × layer × factor, one at a time, beside the baseline."""

    unit: Annotated[tuple[Unit, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = Field(
        default=("block",), description="block, attention or mlp, or a list of these"
    )
    layers: Layers = "all"
    factor: Annotated[tuple[Number, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(default=(0.0,), description="a finite number or a list of them")
    )


class StopPlan(Table):
    """When to stop asking a cell, that is an edit on a task: once it is decided (`lesion.statistics.sequential`)."""

    when: Literal["decided"] = Field(default="decided", description="decided")
    effect: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.1, description="the smallest drop of accuracy that counts, a number between 0 and 1"
    )
    level: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.05, description="the false discovery rate that is allowed, a number between 0 and 1"
    )
    rule: Literal["closed e-BH"] = Field(default="closed e-BH", description="closed e-BH")


class Study(Questions):
    """A question, asked in full: models × edits × tasks × items, and how they are decoded.

    Example:
        >>> Study.make(models=["bundled:llama-base"], tasks=["primer:arithmetic"], items=50).edits.layers
        'all'
    """

    FORM: ClassVar[str] = "lesion study"
    # Neither changes any answer: a stopped study goes on to the full table when it is run again without `stop`.
    SILENT: ClassVar[tuple[str, ...]] = (*Questions.SILENT, "stop", "screen")
    SETS: ClassVar[tuple[tuple[str, ...], ...]] = (("models",), ("tasks",), ("edits", "unit"), ("edits", "factor"))

    models: Annotated[
        tuple[Annotated[ModelChoice, table_of("source")], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(description="a list of at least one model: strings, or tables with a source")
    edits: EditPlan = Field(default=EditPlan(), description="a table [edits]")
    stop: StopPlan | None = Field(default=None, description="a table [stop]")
    screen: Annotated[Literal[True] | None, BeforeValidator(lambda value: None if value is False else value)] = Field(
        default=None, description="true or false"
    )


def stopping(stop_when: str | None, effect: float, level: float, screen: bool) -> dict[str, Any]:
    """The keys `stop`, `level` and `screen` of a study, from options.

    With stopping, `level` may be said as that of the intervals or as the false discovery rate allowed: 0.95 and 0.05
    mean the same.

    Raises:
        UsageError: the level is not between 0 and 1.
    """
    keys: dict[str, Any] = {"screen": True} if screen else {}
    if stop_when is None:
        return keys
    if not 0 < level < 1:
        raise UsageError(
            f"With --stop-when, --level 0.95 or 0.05 means a false discovery rate of 5 %; {level:g} is no such level."
        )
    wrong = min(level, 1 - level)
    return {**keys, "stop": {"when": stop_when, "effect": effect, "level": wrong}, "level": 1 - wrong}
