"""The result of one training of the recall laboratory: what was measured on the way, and under every truncation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field, StringConstraints
from scipy import stats

from lesion.core.values import SUMMARY, Summary, read_summary
from lesion.errors import LesionError, UsageError
from lesion.report.values import Fields, Mean, Number, Value
from lesion_labs.recall.recipe import Recipe

MARGINS = ("F1", "F2", "F2∘F1", "F1+F2")
GROWN = 1.1
"""A largest singular value that grew by less than this factor counts as that of the untrained matrix."""
LEVEL = 0.95
"""Of intervals over seeds."""

Matrix = Annotated[str, StringConstraints(pattern=r"^(W_[KVO][12]|W_OV[12]|F[12](\.in|\.out)?)$")]
"""The name of a trained matrix, or `W_OV1` or `W_OV2` for the product W_O W_V of a block."""
KIND, STUDY_KIND = "recall", "recall-sweep"
"""The kinds of folders: of one training, and of a study of several."""
S = TypeVar("S", bound=Summary)
Side = Literal["top", "bottom"]
Control = Literal["deletion", "drop-top", "random"]


T = TypeVar("T")


class MainMeasures(Fields[T], Generic[T]):
    """Loss (nats), accuracy and mean probabilities.

    Attributes:
        clean_accuracy: share of questions on clean sequences at which ȳ is the most probable token.
        p_noise, p_correct: of τ and of ȳ, on clean sequences.
        noisy_loss: of the token that follows, τ included.
    """

    clean_loss: T
    clean_accuracy: T
    p_noise: T
    p_correct: T
    noisy_loss: T


class Measures(MainMeasures[float]):
    """The measures of one model; `noisy_accuracy` is that of ȳ, also where τ follows."""

    noisy_accuracy: float
    noisy_p_noise: float
    noisy_p_correct: float


class Sets(Value, Generic[T]):
    """The same of the clean and of the noisy set."""

    clean: T
    noisy: T


class Predictions(Value):
    """Shares of the questions on noisy sequences by whether τ is predicted and whether τ follows."""

    predicted_noise_label_noise: float
    predicted_noise_label_other: float
    predicted_other_label_noise: float
    predicted_other_label_other: float


class Attention(Value):
    """Mean attention masses of the two heads.

    Attributes:
        previous: of the first head on the token before, over all positions but the first, on clean sequences.
        answer, noise: of the second head, at the questions of clean sequences, on positions after a trigger that hold
            ȳ, or else τ.
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
    """The measured step, from 1, at which each half of the task is learned for good; None where it is not.

    Attributes:
        margins: each feed-forward's trigger margin is positive.
        attention: the second head has more than half of its mass on ȳ, on clean sequences.
        untrained: feed-forwards whose margin was positive before the first step and ever since, by chance.
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


class Replacement(Value):
    """What stands in the place of one matrix, whatever the draw.

    Attributes:
        keep: the kept fraction of the rank as the recipe gives it; None for `drop-top`, which has none.
        rank: components left.
        side: `top` keeps the largest, `bottom` the smallest; None for a random projection.
        control: None for a truncation; `deletion`, `drop-top` (all but the largest component) or `random`.
    """

    matrix: Matrix
    keep: float | None
    rank: int
    side: Side | None
    control: Control | None = None


R = TypeVar("R", bound=Replacement)


def chosen(rows: Iterable[R], control: Control | None = None, side: Side | None = None) -> list[R]:
    """The rows with this control (None: truncations), of one side or of both, by rising keep."""
    return sorted(
        (row for row in rows if row.control == control and side in (None, row.side)), key=lambda row: row.keep or 0.0
    )


class Cut(Replacement):
    """One replacement of one matrix; `draw` is the number of a random projection."""

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

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """The spread of a few numbers; of a single one there is neither standard deviation nor interval."""
        count, mean = len(values), math.fsum(values) / len(values)
        ends = {"least": min(values), "most": max(values)}
        if count == 1:
            return cls(mean=mean, **ends)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * std / math.sqrt(count)
        return cls(mean=mean, std=std, low=mean - half, high=mean + half, **ends)

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """The lowest and the highest where there are several numbers."""
        return (None, None) if self.std is None else (self.least, self.most)


class AnswerShares(Value):
    """Shares of the questions whose ȳ is q (`trigger`), and whose ȳ is τ (`noise`)."""

    trigger: float
    noise: float


Questions = Sets[int]
OwnAnswers = Sets[AnswerShares]


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
        own_answers: how often ȳ is q or τ, where the recipe lets it.
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

    @property
    def central(self) -> list[str]:
        """The matrices that the paper truncates first."""
        return central(self.matrices)

    def rows(self, matrix: str, control: Control | None = None, side: Side | None = None) -> list[CutMeasures]:
        """The rows of a matrix, as `chosen` takes them."""
        return chosen((row for row in self.truncated if row.matrix == matrix), control, side)

    def drawn(self, matrix: str, rank: int, measure: str) -> Spread | None:
        """A measure over the random projections of that rank; None where there are none."""
        values = [row.of(measure) for row in self.rows(matrix, "random") if row.rank == rank]
        return Spread.over(values) if values else None


def central(matrices: Sequence[str]) -> list[str]:
    """The matrices that the paper truncates first: those of the second feed-forward, or without one W_O W_V."""
    return [matrix for matrix in matrices if matrix.startswith("F2")] or ["W_OV1", "W_OV2"]


def read(summary_class: type[S], folder: Path) -> S | None:
    """The summary of a finished training or study in a folder; None where the folder has none."""
    again = "delete it and run the same command again: what is trained is kept"
    try:
        return read_summary(summary_class, folder, again)
    except UsageError as error:  # a recipe in it means nothing
        raise LesionError(f"{folder / SUMMARY} is damaged (recipe: {error}); {again}.") from None
