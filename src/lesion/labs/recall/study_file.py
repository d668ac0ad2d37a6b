"""The study file of the recall laboratory: lists of noises, vocabularies, widths, optimisers, … and seeds, as TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from lesion.core.method import Method
from lesion.core.study_file import COUNT, Count, Listed, Number, Seed, Several, StudyFile, Text, Whole

Preset = Literal["quick", "released", "paper"]
FeedForward = Literal["mlp", "linear", "none"]
Optimiser = Literal["sgd", "adam"]
SMALLEST = 4
"""The smallest vocabulary in which a trigger, a noise token and two answers are all different."""


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
    noise: Listed[Annotated[Number, Field(ge=0, lt=1)]] = Field(
        default=(), description="a probability from 0 to below 1, or a list of them"
    )
    vocabulary: Listed[Annotated[Whole, Field(ge=SMALLEST)]] = Field(
        default=(), description=f"a whole number from {SMALLEST}, or a list of them"
    )
    width: Listed[Annotated[Whole, Field(ge=2)]] = Field(
        default=(), description="a whole number from 2, or a list of them"
    )
    feed_forward: Listed[FeedForward] = Field(
        default=(), description=f"{', '.join(get_args(FeedForward))}, or a list of these"
    )
    optimiser: Listed[Optimiser] = Field(
        default=(), description=f"{', '.join(get_args(Optimiser))}, or a list of these"
    )
    steps: Listed[Seed] = Field(default=(), description="a whole number from 0, or a list of them")
    seed: Several[Seed] = Field(default=(0,), description="a whole number from 0, or a list of them")
    keep: Listed[Annotated[Number, Field(ge=0, le=1)]] = Field(
        default=(), description="a kept fraction from 0 to 1, or a list of them"
    )
    length: Annotated[Whole, Field(ge=3)] | None = Field(default=None, description="a whole number from 3")
    batch: Count | None = Field(default=None, description=COUNT)
    measured: Count | None = Field(default=None, description=COUNT)
    corpus: Text | None = Field(default=None, description="a text file")
    device: Text = Field(default="auto", description="auto, cpu, cuda or cuda:N")


METHOD = Method(
    RecallStudy,
    "lesion.labs.recall.study:run_recall",
    "lesion.labs.recall.report:RecallResult",
    folder="recall-sweep",
    kept="What is trained is kept in {folder}; the same command goes on from there.",
    distributed=False,
)
