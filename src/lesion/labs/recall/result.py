"""The result of one training of the recall laboratory: what was measured on the way, and under every truncation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from lesion.core.values import Mean, Number, Summary, Value
from lesion.labs.recall.recipe import Recipe

MARGINS = ("F1", "F2", "F2∘F1", "F1+F2")
GROWN = 1.1
"""A largest singular value that grew by less than this factor counts as that of the untrained matrix."""

Matrix = Annotated[str, StringConstraints(pattern=r"^(W_[KVO][12]|W_OV[12]|F[12](\.in|\.out)?)$")]
"""The name of a trained matrix, or `W_OV1` or `W_OV2` for the product W_O W_V of a block."""
Side = Literal["top", "bottom"]
Control = Literal["deletion", "drop-top", "random"]


class Measures(Value):
    """Loss (nats), accuracy and mean probabilities on clean and on noisy sequences.

    Attributes:
        clean_accuracy: share of questions at which ȳ is the most probable token.
        p_noise, p_correct: of τ and of ȳ, on clean sequences.
        noisy_loss: of the token that follows, τ included.
        noisy_accuracy: of ȳ, also where τ follows.
    """

    clean_loss: float
    clean_accuracy: float
    p_noise: float
    p_correct: float
    noisy_loss: float
    noisy_accuracy: float
    noisy_p_noise: float
    noisy_p_correct: float

    def of(self, measure: str) -> float:
        """A measure by its name."""
        value: float = getattr(self, measure)
        return value


class Predictions(Value):
    """Shares of the questions on noisy sequences: whether τ is predicted, and whether τ follows."""

    predicted_noise_label_noise: float
    predicted_noise_label_other: float
    predicted_other_label_noise: float
    predicted_other_label_other: float


class Attention(Value):
    """Mean attention masses of the two heads.

    Attributes:
        previous: of the first head on the token before, over all positions but the first, on clean sequences.
        answer, noise: of the second head, at the questions, on positions after a trigger that hold ȳ, or else τ; on
            clean sequences, where only ȳ follows a trigger.
        noisy_answer, noisy_noise: the same on noisy sequences.
    """

    previous: float
    answer: float
    noise: float
    noisy_answer: float
    noisy_noise: float


class Probes(Value):
    """Whether matrices by themselves remember what a recall circuit needs, 0 to 1 (after Bietti et al. 2023).

    Attributes:
        copying: share of tokens v for which argmax_u of W_U W_O2 W_V2 W_E v is v: what is attended to is predicted.
        previous: share of positions t ≥ 1 for which argmax over s ≤ t of P_tᵀ W_K1 P_s is t − 1.
        following: share of tokens v for which argmax_u of (W_E v)ᵀ W_K2 W_O1 W_V1 W_E u is v: the second head finds
            what followed v.
        trigger: the same for v = q alone, 0 or 1: only there is it trained.
    """

    copying: float
    previous: float
    following: float
    trigger: float


class Point(Measures):
    """What was measured after so many steps of training.

    Attributes:
        margins: the trigger margin of every feed-forward (`measurement.margins`); empty in a model without.
        soft_ranks: ‖W‖_F / ‖W‖_2 of every matrix.
    """

    step: int
    table: Predictions
    margins: dict[str, float]
    attention: Attention
    soft_ranks: dict[Matrix, float]
    probes: Probes


class Phases(Value):
    """When each half of the task is learned, in steps of the optimiser, from 1; None where it is not.

    Attributes:
        margins: from which measured step on each feed-forward's trigger margin stays positive.
        attention: from which on the second head has more than half of its mass on ȳ, on clean sequences.
        untrained: feed-forwards whose margin was positive before the first step already and ever since, by the chance
            of their draw: at no step was theirs learned.
    """

    margins: dict[str, int | None]
    attention: int | None
    untrained: tuple[str, ...] = ()

    @property
    def learned(self) -> dict[str, int]:
        """The step of every margin that training made positive."""
        return {name: step for name, step in self.margins.items() if step is not None and name not in self.untrained}


class Spectrum(Value):
    """What training did to the spectrum of a matrix.

    Attributes:
        values: its eight largest singular values.
        before: the largest of the untrained matrix.
        noise: |cos| between the first left singular vector and the logit direction of τ, W_U[τ] less the mean row of
            W_U; None for matrices that do not write into the residual stream. (Of random vectors about 1/√d.)
    """

    values: tuple[float, ...]
    before: float
    noise: Number = None

    @property
    def grown(self) -> bool:
        """Whether the largest singular value is clearly larger than before training."""
        return self.values[0] > GROWN * self.before


class Cut(Value):
    """One replacement of one matrix.

    Attributes:
        keep: the kept fraction of the rank as the recipe gives it; None for `drop-top`, which has none.
        rank: components left.
        side: `top` keeps the largest, `bottom` the smallest; None for a random projection.
        control: None for a truncation; `deletion`, `drop-top` (all but the largest component) or `random`.
        draw: which random projection.
    """

    matrix: Matrix
    keep: float | None
    rank: int
    side: Side | None
    control: Control | None = None
    draw: int | None = None


class CutMeasures(Cut, Measures):
    """A replacement and what is measured under it."""


class Spread(Mean):
    """Mean, standard deviation, lowest and highest of a number over seeds or draws.

    Attributes:
        low, high: Student's 95 % interval for the mean; None of a single number, or where it would make no sense.
        least, most: the lowest and the highest.
    """

    low: Number = None
    high: Number = None
    least: float
    most: float


@dataclass(frozen=True)
class MatrixCuts:
    """All replacements of one matrix.

    Attributes:
        top: its truncations that keep the largest singular values, by rising keep.
        bottom: those that keep the smallest.
        random: the draws of random projections, by the number of components left.
        deleted: the matrix set to zero.
        without_top: all but its largest component.
    """

    matrix: str
    top: tuple[CutMeasures, ...]
    bottom: tuple[CutMeasures, ...]
    random: Mapping[int, tuple[CutMeasures, ...]]
    deleted: CutMeasures
    without_top: CutMeasures

    @classmethod
    def of(cls, matrix: str, rows: Sequence[CutMeasures]) -> MatrixCuts:
        """The rows of a matrix by what they are."""
        plain = sorted((row for row in rows if row.control is None), key=lambda row: row.keep or 0.0)
        random: dict[int, tuple[CutMeasures, ...]] = {}
        for row in rows:
            if row.control == "random":
                random[row.rank] = (*random.get(row.rank, ()), row)
        (deleted,) = (row for row in rows if row.control == "deletion")
        (without_top,) = (row for row in rows if row.control == "drop-top")
        top, bottom = (tuple(row for row in plain if row.side == side) for side in ("top", "bottom"))
        return cls(matrix, top, bottom, random, deleted, without_top)

    def drawn(self, rank: int, measure: str) -> Spread | None:
        """A measure over the random projections that leave so many components; None where there are none."""
        values = [row.of(measure) for row in self.random.get(rank, ())]
        if not values:
            return None
        return Spread(mean=math.fsum(values) / len(values), least=min(values), most=max(values))


class Questions(Value):
    """The number of questions in the clean and in the noisy set."""

    clean: int
    noisy: int


class AnswerShares(Value):
    """Shares of the questions whose ȳ is q (`trigger`), and whose ȳ is τ (`noise`)."""

    trigger: float
    noise: float


class OwnAnswers(Value):
    """How often ȳ is q or τ, in the clean and in the noisy set."""

    clean: AnswerShares
    noisy: AnswerShares


class LanguageFacts(Value):
    """Where the tables come from, and which tokens q and τ are: numbers, or characters of a text."""

    source: Literal["generator", "corpus"]
    trigger: int | str
    noise_token: int | str
    trigger_share: float


class Machine(Value):
    """On what it ran, and for how long."""

    device: str
    name: str
    seconds: float
    torch: str


class RecallSummary(Summary):
    """All numbers of one training and of its truncations.

    Attributes:
        floor: the least loss on noisy sequences (`measurement.floor`).
        own_answers: where the recipe lets ȳ be q or τ.
        full: the model as trained.
        truncated: a row for every replacement of every matrix.
        training: what was measured on the way, the last step included.
    """

    kind: Literal["recall"] = "recall"
    version: str
    recipe: Recipe
    floor: float
    own_answers: OwnAnswers | None = None
    language: LanguageFacts
    questions: Questions
    matrices: tuple[Matrix, ...]
    full: Measures
    truncated: tuple[CutMeasures, ...]
    training: Annotated[tuple[Point, ...], Field(min_length=1)]
    phases: Phases
    spectra: dict[Matrix, Spectrum]
    machine: Machine

    @cached_property
    def cuts(self) -> dict[str, MatrixCuts]:
        """The replacements of every matrix, in the order of the rows."""
        rows: dict[str, list[CutMeasures]] = {}
        for row in self.truncated:
            rows.setdefault(row.matrix, []).append(row)
        return {matrix: MatrixCuts.of(matrix, of_matrix) for matrix, of_matrix in rows.items()}

    @property
    def central(self) -> list[MatrixCuts]:
        """The replacements of the matrices that the paper truncates first."""
        return [self.cuts[matrix] for matrix in central(list(self.cuts))]


def central(matrices: Sequence[str]) -> list[str]:
    """The matrices that the paper truncates first: those of the second feed-forward, or without one W_O W_V."""
    return [matrix for matrix in matrices if matrix.startswith("F2")] or ["W_OV1", "W_OV2"]
