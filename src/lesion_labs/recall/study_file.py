"""The study file of the recall laboratory: lists of noises, vocabularies, widths, optimisers, … and seeds, as TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lesion.core.fields import DEVICES, Count, Listed, Number, Seed, Several, Text, Whole
from lesion.core.method import Method
from lesion.core.options import IN_IDENTITY, kind_key, one_of, option
from lesion.core.study_file import StudyFile

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

    IDENTITY_PREFIX: ClassVar[str] = "lesion recall"

    kind: Literal["recall"] = kind_key("recall", identity=IN_IDENTITY)
    preset: Preset = option("quick", help=f"Preset: {one_of(Preset)}; it decides what is not given.")
    noise: Listed[Annotated[Number, Field(ge=0, lt=1)]] = option(
        (),
        help="α: probability that τ follows the trigger; below 1.",
        must="a probability from 0 to below 1, or a list of them",
        many="comma",
    )
    vocabulary: Listed[Annotated[Whole, Field(ge=SMALLEST)]] = option(
        (), help="Number of tokens; of a text, its most frequent characters.", many="comma"
    )
    width: Listed[Annotated[Whole, Field(ge=2)]] = option((), help="Width of the model.", many="comma")
    feed_forward: Listed[FeedForward] = option(
        (), help=f"Second feed-forward layer: {one_of(FeedForward)}.", many="comma"
    )
    optimiser: Listed[Optimiser] = option((), help=f"Optimiser: {one_of(Optimiser)}.", many="comma")
    steps: Listed[Seed] = option((), help="Number of optimiser steps.", many="comma")
    seed: Several[Seed] = option(
        (0,), help="Random seed of weights, data and random projections.", many="comma", unordered=True
    )
    keep: Listed[Annotated[Number, Field(ge=0, le=1)]] = option(
        (), help="Fraction of each matrix's rank that is kept.", many="comma"
    )
    length: Annotated[Whole, Field(ge=3)] | None = option(None, help="Number of tokens in a sequence.")
    batch: Count | None = option(None, help="Number of sequences in a training step.")
    measured: Count | None = option(None, help="Number of sequences on which a model is measured.")
    corpus: Text | None = option(
        None, help="Text file whose characters define the token distributions.", must="a text file"
    )
    device: Text = DEVICES


METHOD = Method(
    RecallStudy,
    "lesion_labs.recall.run:run_recall",
    "lesion_labs.recall.report:RecallResult",
    help="Train a two-layer transformer on noisy in-context recall; truncate each of its matrices, with controls.",
    folder="recall-sweep",
    kept="What is trained is kept in {folder}; the same command goes on from there.",
    distributed=False,
    examples=("lesion lab recall --noise 0.6 --out recall",),
)
