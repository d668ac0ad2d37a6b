"""The layer study: which models are asked which tasks with which places switched off, as validated TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.edits.edit import Unit
from lesion.errors import UsageError
from lesion.studies.layers import canonical_layers
from lesion.studies.questions import (
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

__all__ = ["EditPlan", "Layers", "ModelChoice", "Study", "TaskChoice", "shipped"]


def _layers(value: object) -> object:
    """Text or a list of whole numbers, in canonical text form."""
    if isinstance(value, list | tuple) and all(type(layer) is int for layer in value):
        value = list(value)
    elif type(value) is int:
        value = [value]
    elif not isinstance(value, str):
        return value
    try:
        return canonical_layers(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


Layers = Annotated[
    str,
    BeforeValidator(_layers),
    Field(description="all, text such as 0-3,7, or a list of whole numbers from 0"),
]


class EditPlan(Table):
    """The edits of the study: every unit × layer × factor, one at a time, beside the baseline."""

    unit: Annotated[tuple[Unit, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = Field(
        default=("block",), description="block, attention or mlp, or a list of these"
    )
    layers: Layers = "all"
    factor: Annotated[tuple[Number, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(default=(0.0,), description="a finite number or a list of them")
    )


class Study(Questions):
    """A question, asked in full: models × edits × tasks × items, and how they are decoded.

    Example:
        >>> Study.make(models=["bundled:llama-base"], tasks=["primer:arithmetic"], items=50).edits.layers
        'all'
    """

    FORM: ClassVar[str] = "lesion study"
    SETS: ClassVar[tuple[tuple[str, ...], ...]] = (("models",), ("tasks",), ("edits", "unit"), ("edits", "factor"))

    models: Annotated[
        tuple[Annotated[ModelChoice, table_of("source")], ...],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(different),
    ] = Field(description="a list of at least one model: strings, or tables with a source")
    edits: EditPlan = Field(default=EditPlan(), description="a table [edits]")
