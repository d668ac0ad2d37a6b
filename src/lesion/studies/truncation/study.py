"""The truncation study: which parts of which matrices are removed in search of a better model, as validated TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.core.layers import Layers
from lesion.core.study_file import (
    ModelChoice,
    Number,
    Questions,
    Table,
    Text,
    Whole,
    different,
    listed,
    table_of,
)
from lesion.studies.truncation.grid import KEEP, Sides

Objective = Literal["accuracy", "gold"]
Share = Annotated[Number, Field(ge=0, le=1)]


class Screen(Table):
    """A look at every cell by the log-probability of the gold answers alone, before the best are asked in full."""

    items: Annotated[Whole, Field(ge=1)] | Literal["all"] = Field(
        default="all", description="how many validation items of each task, a whole number from 1, or all"
    )
    best: Annotated[Whole, Field(ge=1)] = Field(
        default=16, description="how many of the best cells are asked in full, a whole number from 1"
    )
    random: Annotated[Whole, Field(ge=0)] = Field(
        default=8, description="how many others, drawn by the seed, are asked too, a whole number from 0"
    )


class TruncationStudy(Questions):
    """Search for a part of one matrix whose removal makes a model better: chosen on some items, told on the others.

    Example:
        >>> TruncationStudy.make(model="bundled:llama-base", tasks=["primer:atlas"], keep=[0.1]).matrices
        ('mlp',)
    """

    FORM: ClassVar[str] = "lesion truncation"
    # What is edited, how many of the items choose, and which checkpoints follow do not change an answer.
    SILENT: ClassVar[tuple[str, ...]] = (
        *Questions.SILENT,
        *("kind", "matrices", "layers", "keep", "side", "objective", "validation", "compose", "screen", "eliminate"),
        "revisions",
    )

    kind: Literal["truncation"] = Field(default="truncation", description="truncation")
    model: Annotated[ModelChoice, table_of("source")] = Field(description="a model: text, or a table with a source")
    matrices: Annotated[tuple[Text, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = (
        Field(default=("mlp",), description="names of matrices such as mlp.up, a branch (mlp, attention), or all")
    )
    layers: Layers = "all"
    keep: Annotated[tuple[Share, ...], BeforeValidator(listed), Field(min_length=1), AfterValidator(different)] = Field(
        default=KEEP, description="a fraction of the rank from 0 to 1, or a list of them"
    )
    side: Sides = Field(default="top", description="top, bottom or both")
    objective: Objective = Field(default="accuracy", description="accuracy or gold")
    validation: Annotated[Number, Field(gt=0, lt=1)] = Field(
        default=0.2, description="the share of the items on which the edit is chosen, between 0 and 1"
    )
    compose: bool = Field(default=False, description="true or false")
    screen: Screen | Literal["auto", "none"] = Field(default="auto", description="auto, none or a table [screen]")
    eliminate: Annotated[Number, Field(gt=0, lt=1)] | None = Field(
        default=None, description="the chance of giving up a cell wrongly, between 0 and 1, for example 0.05"
    )
    revisions: Annotated[tuple[Text, ...], BeforeValidator(listed), AfterValidator(different)] = Field(
        default=(), description="a list of branches, tags or checkpoints"
    )
