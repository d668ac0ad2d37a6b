"""The study of the memory laboratory: one associative memory and what is measured on it, as validated TOML."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lesion.core.fields import Count, Number, Seed, Whole
from lesion.core.method import Method
from lesion.core.options import IN_IDENTITY, kind_key, option
from lesion.core.study_file import StudyFile

MOST_CLASSES = 256
"""Beyond this a study takes many minutes."""
MOST_INPUTS = 4 * MOST_CLASSES


class MemoryStudy(StudyFile):
    """A linear associative memory with noise, its truncations, a sweep over sizes, and the first step of recall.

    Input i has the target i mod `classes`; the common class of the noise is one output more. Nothing is kept of an
    interrupted training, which takes seconds.

    Example:
        >>> MemoryStudy.make(classes=4, width=24).inputs
        4
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion memory"

    kind: Literal["memory"] = kind_key("memory", identity=IN_IDENTITY)
    classes: Annotated[Whole, Field(ge=2, le=MOST_CLASSES)] = option(
        20, help="Number of target classes, without the common class."
    )
    inputs: Annotated[Whole, Field(ge=2, le=MOST_INPUTS, validate_default=True)] = option(
        None,
        help="Number of inputs to remember; default: the number of classes.",
        must=f"a whole number from the number of classes to {MOST_INPUTS}",
    )
    noise: Annotated[Number, Field(ge=0, lt=1)] = option(
        0.6,
        help="Probability that the common class replaces the target.",
        must="a probability from 0 to below 1",
    )
    codes: Literal["orthonormal", "gaussian"] = option("orthonormal", help="Codes: orthonormal or gaussian.")
    width: Count = option(128, help="Dimension of the codes.")
    steps: Count = option(20_000, help="Number of steps of full-batch gradient descent.")
    draws: Count = option(16, help="Number of draws of every random control.")
    seed: Seed = option(0, help="Random seed of codes, controls and batches.")

    @field_validator("inputs", mode="before")
    @classmethod
    def _as_many_as_classes(cls, value: object, about: Any) -> object:
        return about.data.get("classes", 2) if value is None else value

    @model_validator(mode="after")
    def _fits(self) -> MemoryStudy:
        classes, needed = self.classes, max(self.classes + 1, self.inputs)
        if self.inputs < classes:
            raise ValueError(
                f"{self.inputs} inputs for {classes} target classes; every class needs an input of its own: give at"
                f" least {classes} inputs, or fewer classes."
            )
        if self.codes == "orthonormal" and self.width < needed:
            raise ValueError(
                f"width: {self.width} has no room for {needed} orthonormal codes ({classes} target classes and the"
                f" common class, {self.inputs} inputs); give a width of at least {needed}, or gaussian codes."
            )
        return self


METHOD = Method(
    MemoryStudy,
    "lesion_labs.memory.run:run_memory",
    "lesion_labs.memory.report:MemoryResult",
    "lab memory",
    "Train an associative memory with noise; show where in its spectrum the noise lies and what truncation does.",
    kept="Nothing is kept of an unfinished memory; the same command starts it anew.",
    distributed=False,
    examples=("lesion lab memory --classes 20 --out memory",),
)
