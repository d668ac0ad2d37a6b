"""The study file of the recall laboratory: lists of noises, vocabularies, widths, optimisers, … and seeds, as TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from lesion.core.study_file import COUNT, SEED, Count, Number, Seed, StudyFile, Text, Whole, different, listed

Preset = Literal["quick", "released", "paper"]
FeedForward = Literal["mlp", "linear", "none"]
Optimiser = Literal["sgd", "adam"]
SMALLEST = 4
"""The smallest vocabulary in which a trigger, a noise token and two answers are all different."""

T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(listed), AfterValidator(different)]
"""One value or a list of different ones."""


class RecallStudy(StudyFile):
    """Trainings of the recall laboratory, every combination of the lists; each is truncated at every kept fraction.

    What is not given is the preset's. A corpus is a file relative to the folder that the command runs in.

    Example:
        >>> RecallStudy.make(kind="recall", noise=0.6, seed=[0, 1, 2]).noise
        (0.6,)
    """

    FORM: ClassVar[str] = "lesion recall"
    SILENT: ClassVar[tuple[str, ...]] = ("name", "title", "device")
    SETS: ClassVar[tuple[tuple[str, ...], ...]] = (("seed",),)

    kind: Literal["recall"] = Field(description="recall")
    preset: Preset = Field(default="quick", description=", ".join(get_args(Preset)))
    noise: Several[Annotated[Number, Field(ge=0, lt=1)]] = Field(
        default=(), description="a probability from 0 to below 1, or a list of them"
    )
    vocabulary: Several[Annotated[Whole, Field(ge=SMALLEST)]] = Field(
        default=(), description=f"a whole number from {SMALLEST}, or a list of them"
    )
    width: Several[Annotated[Whole, Field(ge=2)]] = Field(
        default=(), description="a whole number from 2, or a list of them"
    )
    feed_forward: Several[FeedForward] = Field(
        default=(), description=f"{', '.join(get_args(FeedForward))}, or a list of these"
    )
    optimiser: Several[Optimiser] = Field(
        default=(), description=f"{', '.join(get_args(Optimiser))}, or a list of these"
    )
    steps: Several[Annotated[Whole, Field(ge=0)]] = Field(
        default=(), description="a whole number from 0, or a list of them"
    )
    seed: Annotated[Several[Seed], Field(min_length=1)] = Field(default=(0,), description=f"{SEED}, or a list of them")
    keep: Several[Annotated[Number, Field(ge=0, le=1)]] = Field(
        default=(), description="a kept fraction from 0 to 1, or a list of them"
    )
    length: Annotated[Whole, Field(ge=3)] | None = Field(default=None, description="a whole number from 3")
    batch: Count | None = Field(default=None, description=COUNT)
    measured: Count | None = Field(default=None, description=COUNT)
    corpus: Text | None = Field(default=None, description="a text file")
    device: Text = Field(default="auto", description="auto, cpu, cuda or cuda:N")
