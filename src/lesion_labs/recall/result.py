"""The results of the recall laboratory: of one training and its truncations, and of a study's trainings over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, Literal, TypeVar

import numpy as np
from pydantic import Field, StringConstraints
from scipy import stats

from lesion.core.values import Summary, with_corrected
from lesion.report.rows import Row, column, derived
from lesion.report.values import CHANGE, SHARE, Estimate, Fields, Form, Mean, Number, Value, decimals
from lesion.statistics.contrasts import mean
from lesion_labs.recall.model import Recipe
from lesion_labs.recall.study_file import RecallStudy

MARGINS = ("F1", "F2", "F2∘F1", "F1+F2")
KEPT = Form(4, 100.0, "%", significant=True)
"""A share of the rank, as it was asked for."""
LOSS = decimals(3, "nats")

Matrix = Annotated[str, StringConstraints(pattern=r"^(W_[KVO][12]|W_OV[12]|F[12](\.in|\.out)?)$")]
"""The name of a trained matrix, or `W_OV1` or `W_OV2` for the product W_O W_V of a block."""
KIND, STUDY_KIND = "recall", "recall-sweep"
"""The kinds of folders: of one training, and of a study of several."""
AGAIN = "delete it and run the same command again: what is trained is kept"
Side = Literal["top", "bottom"]
Control = Literal["deletion", "drop-top", "random"]
T = TypeVar("T")


class MainMeasures(Row, Fields[T], Generic[T]):
    """Loss (nats), accuracy and mean probabilities.

    Attributes:
        clean_accuracy: share of questions on clean sequences at which ȳ is the most probable token.
        p_noise, p_correct: of τ and of ȳ, on clean sequences.
        noisy_loss: of the token that follows, τ included.
    """

    p_noise: T = column("p(τ)", SHARE)
    clean_accuracy: T = column("Accuracy", SHARE)
    p_correct: T = column("p(ȳ)", SHARE)
    clean_loss: T = column("Clean loss", LOSS)
    noisy_loss: T = column("Noisy loss", LOSS)


class Measures(MainMeasures[float]):
    """The measures of one model; `noisy_accuracy` is that of ȳ, also where τ follows."""

    noisy_accuracy: float
    noisy_p_noise: float
    noisy_p_correct: float


class Sets(Value, Generic[T]):
    """The same of both sets."""

    clean: T
    noisy: T


class Predictions(Value):
    """Shares of the questions on noisy sequences by whether τ is predicted and whether τ follows."""

    predicted_noise_label_noise: float
    predicted_noise_label_other: float
    predicted_other_label_noise: float
    predicted_other_label_other: float


class Attention(Row):
    """Mean attention masses of the two heads.

    Attributes:
        previous: of the first head on the token before, over all positions but the first, on clean sequences.
        answer, noise: of the second head, at the questions of clean sequences, on positions after a trigger that hold
            ȳ, or else τ.
        noisy_answer, noisy_noise: the same on noisy sequences.
    """

    previous: float = column("First head on the token before", SHARE)
    answer: float = column("Second head on ȳ", SHARE)
    noise: float
    noisy_answer: float = column("Second head on ȳ, noisy", SHARE)
    noisy_noise: float = column("Second head on τ, noisy", SHARE)


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

    step: int = column("Step", label=True)
    table: Predictions
    margins: dict[str, float]
    attention: Attention
    soft_ranks: dict[Matrix, float]
    probes: Probes

    @derived.column("F1 alone", decimals(2))
    def first_margin(self) -> float | None:
        """The trigger margin of the first feed-forward."""
        return self.margins.get("F1")

    @derived.column("F2 alone", decimals(2))
    def second_margin(self) -> float | None:
        """The trigger margin of the second feed-forward."""
        return self.margins.get("F2")

    @derived.column("F1 + F2", decimals(2))
    def both_margin(self) -> float | None:
        """The trigger margin of what both add along the residual stream."""
        return self.margins.get("F1+F2")


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


class MatrixName(Row):
    """What tells spectra apart."""

    matrix: str = column("Matrix", label=True)


class Spectrum(Row):
    """What training did to the eight largest singular values of a matrix.

    Attributes:
        noise: |cos| between the first left singular vector and the logit direction of τ, W_U[τ] less the mean row of
            W_U; None for matrices that do not write into the residual stream. (Of random vectors about 1/√d.)
    """

    values: tuple[float, ...]
    before: float = column("Largest before training", decimals(2))
    noise: Number = column("Its top writes τ, |cos|", decimals(2), default=None)

    @derived.column("Largest after", decimals(2))
    def largest(self) -> float:
        """The largest singular value of the trained matrix."""
        return self.values[0]

    @derived.column("Second after", decimals(2))
    def second(self) -> float | None:
        """The second largest of the trained matrix."""
        return self.values[1] if len(self.values) > 1 else None


KINDS = {"deletion": "deleted", "drop-top": "largest dropped", "random": "random projection"}


class Replacement(Row):
    """What stands in the place of one matrix, whatever the draw.

    Attributes:
        keep: the kept fraction of the rank as the recipe gives it; None for `drop-top`, which has none.
        rank: components left.
        side: `top` keeps the largest, `bottom` the smallest; None for a random projection.
        control: None for a truncation; `deletion`, `drop-top` (all but the largest component) or `random`.
    """

    matrix: Matrix = column("Matrix", label=True)
    keep: float | None = column("Rank kept", KEPT)
    rank: int = column("Rank")
    side: Side | None
    control: Control | None = None

    @derived.column("Kept", label=True)
    def kind(self) -> str:
        """What is left of the matrix, or which control it is."""
        return KINDS.get(self.control or "", "largest kept" if self.side == "top" else "smallest kept")

    @property
    def is_share(self) -> bool:
        """Whether it keeps a share of the rank above 0."""
        return self.control in (None, "random") and bool(self.keep)


class Cut(Replacement):
    """One replacement of one matrix; `draw` is the number of a random projection."""

    draw: int | None = None


class CutMeasures(Cut, Measures):
    """A replacement and what is measured under it."""


class Spread(Mean):
    """Of a number over seeds or draws also Student's 95 % interval for the mean, the lowest and the highest number.

    A single number has neither standard deviation nor interval.
    """

    low: Number = None
    high: Number = None
    least: float
    most: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """The spread of a few numbers."""
        over = mean(np.array(values))
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(mean=over.value, std=std, low=over.low, high=over.high, least=min(values), most=max(values))


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
    """

    kind: Literal["recall"] = "recall"
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


Spreads = MainMeasures[Spread]
MEASURES = tuple(MainMeasures.model_fields)
"""The measures that are gathered over seeds."""


class CutSpreads(Replacement, Spreads):
    """A replacement over seeds; random projections are first averaged over the draws of a seed.

    Attributes:
        beyond: of a truncation, each measure less that behind a random projection of the same rank and seed.
    """

    beyond: Spreads | None = None


class SeedsPhase(Value):
    """In how many of all seeds a phase came, and at which step, without an interval: it would begin before the first.

    Attributes:
        untrained: seeds in which a margin was positive before training; they are not among those in which it `came`.
    """

    came: int
    of: int
    untrained: int = 0
    steps: Spread | None = None


class SeedsPhases(Value):
    """The phases over seeds."""

    margins: dict[str, SeedsPhase]
    attention: SeedsPhase


class Difference(Row):
    """p(τ) behind the top of a matrix less that behind random projections of the same rank, over seeds.

    Attributes:
        difference: with Student's interval and test, corrected by Holm (1979) over all of a group; of one seed alone.
    """

    matrix: str = column("Matrix", label=True)
    keep: float = column("Rank kept", KEPT.text, label=True)
    difference: Estimate = column("p(τ) beyond random projections", CHANGE, p=True)


class Group(Row):
    """Trainings that differ in their seed alone; `recipe` is that of the first."""

    recipe: Recipe
    seeds: tuple[int, ...]
    full: Spreads
    truncated: tuple[CutSpreads, ...]
    phases: SeedsPhases

    @property
    def full_p_noise(self) -> Spread:
        """p(τ) of the model with nothing cut."""
        return self.full.p_noise

    @property
    def full_clean_accuracy(self) -> Spread:
        """Accuracy of the model with nothing cut."""
        return self.full.clean_accuracy

    @property
    def full_noisy_loss(self) -> Spread:
        """Loss on noisy sequences of the model with nothing cut."""
        return self.full.noisy_loss

    @property
    def central(self) -> list[str]:
        """The matrices that the paper truncates first: of the second feed-forward, or without one W_O W_V."""
        matrices = dict.fromkeys(row.matrix for row in self.truncated)
        return [matrix for matrix in matrices if matrix.startswith("F2")] or ["W_OV1", "W_OV2"]

    def rows(self, matrix: str, control: Control | None = None, side: Side | None = None) -> list[CutSpreads]:
        """The rows of a matrix with this control (None: truncations), of one side or of both, by rising keep."""
        rows = (row for row in self.truncated if (row.matrix, row.control) == (matrix, control))
        return sorted((row for row in rows if side in (None, row.side)), key=lambda row: row.keep or 0.0)

    def cut(self, matrix: str, control: Control) -> CutSpreads:
        """The only row of a matrix with this control: deletion, or the largest component dropped."""
        (row,) = self.rows(matrix, control)
        return row


class StudyTraining(Value):
    """One training of a study, in a folder within the study's."""

    folder: str
    recipe: Recipe
    floor: float
    full: Measures
    phases: Phases
    machine: Machine


class RecallStudySummary(Summary):
    """All numbers of a study."""

    kind: Literal["recall-sweep"] = "recall-sweep"
    study: RecallStudy
    cells: tuple[StudyTraining, ...]
    groups: tuple[Group, ...]


def groups(summaries: Sequence[RecallSummary]) -> list[Group]:
    """One group for each recipe but for its seed, in the order of the summaries."""
    alike: dict[Recipe, list[RecallSummary]] = {}
    for summary in summaries:
        alike.setdefault(summary.recipe.model_copy(update={"seed": 0}), []).append(summary)
    return [_group(members) for members in alike.values()]


def _group(summaries: Sequence[RecallSummary]) -> Group:
    seeds = [_averaged(summary.truncated) for summary in summaries]
    truncated = []
    for place in seeds[0]:
        random = place.model_copy(update={"side": None, "control": "random"})
        beyond = None
        if place.control is None and all(random in rows for rows in seeds):
            beyond = _spreads([{name: rows[place][name] - rows[random][name] for name in MEASURES} for rows in seeds])
        truncated.append(CutSpreads(**dict(place), **dict(_spreads([rows[place] for rows in seeds])), beyond=beyond))
    phases = [summary.phases for summary in summaries]
    margins = {
        name: _phase([each.learned.get(name) for each in phases], sum(name in each.untrained for each in phases))
        for name in MARGINS
    }
    return Group(
        recipe=summaries[0].recipe,
        seeds=tuple(summary.recipe.seed for summary in summaries),
        full=_spreads([dict(summary.full) for summary in summaries]),
        truncated=tuple(truncated),
        phases=SeedsPhases(margins=margins, attention=_phase([each.attention for each in phases])),
    )


def _averaged(rows: Sequence[CutMeasures]) -> dict[Replacement, dict[str, float]]:
    """The measures of every replacement; the draws of a random projection are averaged."""
    places: dict[Replacement, list[CutMeasures]] = {}
    for row in rows:
        place = Replacement(matrix=row.matrix, keep=row.keep, rank=row.rank, side=row.side, control=row.control)
        places.setdefault(place, []).append(row)
    return {
        place: {measure: math.fsum(row.of(measure) for row in draws) / len(draws) for measure in MEASURES}
        for place, draws in places.items()
    }


def _spreads(rows: Sequence[Mapping[str, float]]) -> Spreads:
    return Spreads(**{measure: Spread.over([row[measure] for row in rows]) for measure in MEASURES})


def _phase(steps: Sequence[int | None], untrained: int = 0) -> SeedsPhase:
    came = [float(step) for step in steps if step is not None]
    over_seeds = Spread.over(came).model_copy(update={"low": None, "high": None}) if came else None
    return SeedsPhase(came=len(came), of=len(steps), untrained=untrained, steps=over_seeds)


def differences(group: Group) -> list[Difference]:
    """The differences of a group's central matrices to random projections, tested where there are several seeds."""
    rows = [row for matrix in group.central for row in group.rows(matrix, side="top")]
    found = [
        Difference(
            matrix=row.matrix,
            keep=row.keep or 0.0,
            difference=Estimate(value=over.mean, low=over.low, high=over.high, p=_p(over, len(group.seeds))),
        )
        for row in rows
        if row.beyond and (over := row.beyond.p_noise)
    ]
    return with_corrected(found, "difference")


def _p(difference: Spread, count: int) -> float | None:
    """The p-value of Student's test that a mean over so many seeds is 0; of a single seed there is none."""
    if count == 1:
        return None
    if not difference.std:
        return 0.0 if difference.mean else 1.0
    return float(2 * stats.t.sf(abs(difference.mean) * math.sqrt(count) / difference.std, count - 1))
