"""The result of the memory laboratory: a memory over training, its truncations, a sweep over sizes, the first step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

import numpy as np

from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import SHARE, Estimate, Fields, Number, Value, decimals
from lesion_labs.memory.study import MemoryStudy

Side = Literal["top", "between", "bottom", "tied", "absent"]
"""Where in a spectrum the noise lies; `tied`: among equal singular values; `absent`: W does not hold it."""
Trigger = Literal["constant", "zipf", "uniform"]
Signal = Literal["feed_forward", "value", "value_noise"]
SIGNALS = {"feed_forward": "feed-forward, q → τ", "value": "attention, recall", "value_noise": "attention, → τ"}
LOSS = decimals(3, "nats")
RATIO = decimals(2)
FOOT = 0.02
"""A ratio below this has the colour of this."""


T = TypeVar("T")


class Evaluation(Row, Fields[T], Generic[T]):
    """A memory evaluated against the targets f*, without noise.

    Attributes:
        clean_accuracy: the chance that an argmax of the logits is f*(i), equal logits chosen among at random.
        p_correct, p_noise: mean probabilities of f*(i) and of the common class.
        clean_loss: mean of −log p(f*(i)), in nats.
    """

    clean_accuracy: T = column("Clean accuracy", SHARE)
    p_correct: T = column("p of f*", SHARE)
    p_noise: T = column("p of the common class", SHARE)
    clean_loss: T = column("Clean loss", LOSS)


Measures = Evaluation[float]
MEASURES = tuple(Evaluation.model_fields)


class NoisePlace(Value):
    """Where in a spectrum the noise lies: the group of equal singular values with most of the common class's code.

    Attributes:
        rank: number of its first singular value, from 1; 0, as ratio and alignment, where the noise is absent.
        ratio: σ of the noise over the largest other σ; above 1, the noise is on top.
        alignment: the share of the common class's code that the group holds.
    """

    side: Side
    rank: int
    ratio: float
    alignment: float


class SingularValues(Row):
    """The two different singular values of a memory by the closed form (`orthonormal`)."""

    signal: float = column("Closed form, others", decimals(3), key="predicted_signal")
    noise: float = column("Closed form, noise", decimals(3), key="predicted_noise")


class Moment(Evaluation[float]):
    """The memory after one step of training.

    Attributes:
        singular_values: of W, in descending order.
        alignment: cos² of each left singular vector with the code of the common class.
    """

    step: int = column("Step", label=True)
    singular_values: tuple[float, ...]
    alignment: tuple[float, ...]
    noise: NoisePlace
    predicted: SingularValues | None = None

    @derived.column("σ of the noise", decimals(3))
    def noise_value(self) -> float | None:
        """The singular value that holds the noise; None where none does."""
        return self.singular_values[self.noise.rank - 1] if self.noise.rank else None

    @property
    def others(self) -> list[float]:
        """The other singular values."""
        return [value for place, value in enumerate(self.singular_values, 1) if place != self.noise.rank]

    @derived.column("Largest other σ", decimals(3))
    def largest_other(self) -> float | None:
        """The largest other singular value."""
        return max(self.others, default=None)

    @derived.column("Smallest other σ", decimals(3))
    def smallest_other(self) -> float | None:
        """The smallest other singular value."""
        return min(self.others, default=None)


class Spread(Value):
    """A mean over draws, with the lowest and the highest draw."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of the values."""
        return cls(mean=float(np.mean(values)), low=min(values), high=max(values))

    def estimate(self, draws: int) -> Estimate:
        """The mean with the ends of so many draws; a single one has no ends."""
        return Estimate(value=self.mean, low=self.low, high=self.high) if draws > 1 else Estimate(value=self.mean)


class Truncated(Evaluation[Spread]):
    """What is left when part of W is kept.

    Attributes:
        rank: components kept; keep: as a share of W's rank.
        side: `top`, the largest are kept; `bottom`, the smallest; None for a control.
        control: `random`, a projection onto random directions of W's range; `deletion`, nothing kept.
        tied: whether the cut goes through equal singular values, so that chance decides which are kept.
        draws: of what is left to chance.
    """

    rank: int
    keep: float
    side: Literal["top", "bottom"] | None
    control: Literal["random", "deletion"] | None
    tied: bool
    draws: int

    @property
    def means(self) -> Measures:
        """The means over draws."""
        return Measures(**{name: self.of(name).mean for name in MEASURES})


class KeptPart(Evaluation[Estimate]):
    """A truncation or control as it is shown; `best`: the part with the smallest clean loss."""

    kind: str = column("Kept", label=True)
    rank: int = column("Components", label=True)
    draws: int = column("Draws")
    best: bool = column()

    @classmethod
    def of_row(cls, row: Truncated, best: bool) -> KeptPart:
        """Its means over draws, with the lowest and the highest."""
        names = {"random": "random", "deletion": "nothing", "top": "largest", "bottom": "smallest"}
        measures = {name: row.of(name).estimate(row.draws) for name in MEASURES}
        kind = names[row.control or row.side or ""]
        return cls(kind=kind, rank=row.rank, draws=row.draws, best=best, **measures)


class SizePlace(Value):
    """Where the noise lies after one step, over draws of codes: `top` in so many of them; `side` where all agree."""

    step: int
    ratio: Spread
    top: float
    side: Side | None
    alignment: float


class Flip(Value):
    """Between the steps `after` and `before` the noise went to the top of the spectrum, or left it."""

    after: int
    before: int
    to: Literal["top", "below"]


class Cuts(Fields[Measures]):
    """A trained memory whole and with one component less; `random`: one random direction of W's range less."""

    full: Measures
    without_largest: Measures
    without_smallest: Measures
    largest_alone: Measures
    random: Measures


class ClosedForm(Value):
    """The ratio σ_noise/σ_signal with orthonormal codes: after the first step, in the limit and at every measured step.

    Above the `threshold` the noise begins on top.
    """

    first: float
    late: float
    threshold: float
    ratios: tuple[float, ...]


class Size(Row):
    """The memories of one size, noise and kind of codes, over draws of codes; `places` by measured step."""

    codes: Literal["orthonormal", "gaussian"] = column("Codes", label=True)
    classes: int = column()
    inputs: int = column()
    noise: float = column("Noise α", label=True)
    draws: int
    places: tuple[SizePlace, ...]
    flips: tuple[Flip, ...]
    cuts: Cuts
    closed_form: ClosedForm | None = None

    @derived.column("First ratio", RATIO)
    def first_ratio(self) -> float:
        """σ of the noise over the largest other σ after the first step; the mean over draws of codes."""
        return self.places[0].ratio.mean

    @derived.column("First side")
    def first_side(self) -> str:
        """Where in the spectrum the noise lies after the first step."""
        return self.places[0].side or "draws disagree"

    @derived.column("Last ratio", RATIO)
    def last_ratio(self) -> float:
        """The same ratio after the last step."""
        return self.last.ratio.mean

    @derived.column("Last side")
    def last_side(self) -> str:
        """Where in the spectrum the noise lies after the last step."""
        return self.last.side or "draws disagree"

    @derived.column("Changed sides")
    def changed_sides(self) -> str:
        """Between which steps the noise went to the top of the spectrum, or left it."""
        return ", ".join(f"{flip.after:,}{wording.DASH}{flip.before:,}" for flip in self.flips)

    @derived.column("Clean loss", LOSS)
    def whole_loss(self) -> float:
        """Of the whole memory."""
        return self.cuts.full.clean_loss

    @derived.column("Without the largest", LOSS)
    def without_largest(self) -> float:
        """Clean loss without the largest component."""
        return self.cuts.without_largest.clean_loss

    @derived.column("Without the smallest", LOSS)
    def without_smallest(self) -> float:
        """Clean loss without the smallest component."""
        return self.cuts.without_smallest.clean_loss

    @derived.column("A random direction less", LOSS)
    def without_random(self) -> float:
        """Clean loss without one random direction of W's range."""
        return self.cuts.random.clean_loss

    @derived.column("Size", label=True)
    def name(self) -> str:
        """The classes, and the inputs where these are more: `m = 4`, `m = 4, 16 inputs`."""
        name = f"m{wording.SPACE}={wording.SPACE}{self.classes}"
        return name if self.inputs == self.classes else f"{name}, {self.inputs} inputs"

    @property
    def first_strength(self) -> float:
        """How far the first ratio is from 1, in factors of two."""
        return math.log2(max(self.first_ratio, FOOT))

    @property
    def last_strength(self) -> float:
        """How far the last ratio is from 1, in factors of two."""
        return math.log2(max(self.last_ratio, FOOT))

    @property
    def last(self) -> SizePlace:
        """Where the noise lies after the last step."""
        return self.places[-1]

    @property
    def key(self) -> tuple[int, int, float]:
        """What sizes that differ in their codes alone have in common."""
        return self.classes, self.inputs, self.noise


class Levels(Fields[float]):
    """The signals of the first step: what each adds to the right logit over the mean of the other tokens' logits.

    Attributes:
        feed_forward: q → τ over q → others, the tokens that are neither q nor τ.
        feed_forward_other, feed_forward_width: mean and standard deviation of q → others.
        value, value_spread: recall, v → v over v → others, mean and standard deviation over v.
        value_noise: v → τ over v → others, mean over v.
        value_other, value_width: mean and standard deviation of v → others.
    """

    feed_forward: float
    feed_forward_other: float
    feed_forward_width: float
    value: float
    value_spread: float
    value_noise: float
    value_other: float
    value_width: float


class Vocabulary(Levels):
    """The exact levels under one vocabulary and law of the trigger, and those of every sampled batch."""

    trigger: Trigger
    vocabulary: int
    draws: tuple[Levels, ...]


class Power(Row):
    """How a signal scales with the vocabulary: the least-squares slope of its logarithm against that of V.

    Attributes:
        exact, late: of the exact signal; between the two largest vocabularies.
        batches: of the means over batches, with its bootstrap interval.
    """

    trigger: Trigger = column("Trigger", label=True)
    signal: Signal = column("Signal", SIGNALS.__getitem__, label=True)
    exact: Number = column("Exact power", decimals(3))
    late: Number = column("Last two", decimals(3))
    batches: Estimate | None = column("Power of V", decimals(3), default=None)


class FirstStep(Value):
    """The first gradient step in noisy recall, over vocabularies.

    Attributes:
        length, batch: tokens of a sequence, sequences of a batch.
        width: of the gaussian codes of batches.
    """

    noise: float
    length: int
    batch: int
    width: int
    level: float
    points: tuple[Vocabulary, ...]
    powers: tuple[Power, ...]

    def under(self, trigger: str) -> list[Vocabulary]:
        """The vocabularies under one law of the trigger, in ascending order."""
        return [point for point in self.points if point.trigger == trigger]

    def power(self, trigger: str, signal: str) -> Power:
        """The power of a signal under one law of the trigger."""
        return next(power for power in self.powers if (power.trigger, power.signal) == (trigger, signal))


class MemorySummary(Summary):
    """All numbers of a memory; `training` by measured step, `sizes` empty where no size has room in the width."""

    kind: Literal["memory"] = "memory"
    study: MemoryStudy
    training: tuple[Moment, ...]
    truncated: tuple[Truncated, ...]
    sizes: tuple[Size, ...]
    first_step: FirstStep

    @property
    def full(self) -> Moment:
        """The trained memory, all of it kept."""
        return self.training[-1]

    @property
    def rank(self) -> int:
        """How many singular values W has."""
        return max(row.rank for row in self.truncated)

    @property
    def best(self) -> Truncated | None:
        """The part of the spectrum with the smallest clean loss, fewest dropped among equals; None at rank 1."""
        parts = (row for row in self.truncated if row.control is None and row.rank < self.rank)
        return min(parts, key=lambda row: (row.clean_loss.mean, -row.rank)) if self.rank > 1 else None
