"""The result of the memory laboratory: a memory over training, its truncations, a sweep over sizes, the first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lesion.core.values import Estimate, Number, Summary, Value
from lesion.labs.memory.study import MemoryStudy

Side = Literal["top", "between", "bottom", "tied", "absent"]
"""Where in a spectrum the noise lies; `tied`: among equal singular values; `absent`: W does not hold it."""
Trigger = Literal["constant", "zipf", "uniform"]
Signal = Literal["feed_forward", "value", "value_noise"]


class Measures(Value):
    """A memory evaluated against the targets f*, without noise.

    Attributes:
        clean_accuracy: the chance that an argmax of the logits is f*(i), equal logits chosen among at random.
        p_correct, p_noise: mean probabilities of f*(i) and of the common class.
        clean_loss: mean of −log p(f*(i)), in nats.
    """

    clean_accuracy: float
    p_correct: float
    p_noise: float
    clean_loss: float


MEASURES = tuple(Measures.model_fields)


class Place(Value):
    """Where in a spectrum the noise lies: the group of equal singular values with most of the common class's code.

    Attributes:
        rank: number of its first singular value, from 1.
        ratio: σ of the noise over the largest other σ; above 1, the noise is on top.
        alignment: the share of the common class's code that the group holds.

    Where the noise is absent, rank, ratio and alignment are 0.
    """

    side: Side
    rank: int
    ratio: float
    alignment: float


class SingularValues(Value):
    """The two different singular values of a memory with orthonormal codes, by the closed form (`orthonormal`)."""

    signal: float
    noise: float


class Moment(Measures):
    """The memory after one step of training.

    Attributes:
        singular_values: of W, in descending order.
        alignment: cos² of each left singular vector with the code of the common class.
        noise: where the noise lies.
        predicted: by the closed form, where there is one.
    """

    step: int
    singular_values: tuple[float, ...]
    alignment: tuple[float, ...]
    noise: Place
    predicted: SingularValues | None = None


class Spread(Value):
    """A mean over draws, with the lowest and the highest draw."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean: float, values: Sequence[float]) -> Spread:
        """A mean with the ends of its values."""
        return cls(mean=mean, low=min(values), high=max(values))


class Truncated(Value):
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
    clean_accuracy: Spread
    p_correct: Spread
    p_noise: Spread
    clean_loss: Spread

    def of(self, measure: str) -> Spread:
        """One of the measures by its name."""
        value: Spread = getattr(self, measure)
        return value

    @property
    def means(self) -> Measures:
        """The means over draws."""
        return Measures(**{name: self.of(name).mean for name in MEASURES})


class SizePlace(Value):
    """Where the noise lies in the memories of one size after one step.

    Attributes:
        ratio: over draws of codes.
        top: share of draws with the noise on top.
        side: where all draws agree, else None.
        alignment: mean over draws.
    """

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


class Cuts(Value):
    """A trained memory whole and with one component less, means over draws.

    Attributes:
        random: projected onto random directions of W's range, one fewer than there are.
    """

    full: Measures
    without_largest: Measures
    without_smallest: Measures
    largest_alone: Measures
    random: Measures

    def of(self, cut: str) -> Measures:
        """One of the cuts by its name."""
        value: Measures = getattr(self, cut)
        return value


class ClosedForm(Value):
    """What the closed form says of the ratio σ_noise/σ_signal with orthonormal codes.

    Attributes:
        first, late: after the first step, and in the limit.
        threshold: the noise above which it begins on top.
        ratios: at every measured step.
    """

    first: float
    late: float
    threshold: float
    ratios: tuple[float, ...]


class Size(Value):
    """The memories of one size, noise and kind of codes.

    Attributes:
        draws: of codes.
        places: by measured step.
        closed_form: of orthonormal codes only.
    """

    classes: int
    inputs: int
    noise: float
    codes: Literal["orthonormal", "gaussian"]
    draws: int
    places: tuple[SizePlace, ...]
    flips: tuple[Flip, ...]
    cuts: Cuts
    closed_form: ClosedForm | None = None

    @property
    def first(self) -> SizePlace:
        """After the first step."""
        return self.places[0]

    @property
    def last(self) -> SizePlace:
        """After the last step."""
        return self.places[-1]

    @property
    def key(self) -> tuple[int, int, float]:
        """What a row with gaussian codes has in common with that with orthonormal ones."""
        return self.classes, self.inputs, self.noise


class Levels(Value):
    """The signals of the first step and what stands around them; *others* are the tokens that are neither q nor τ.

    A signal is what it adds to the right logit over the mean of the other tokens' logits: softmax sees nothing else.

    Attributes:
        feed_forward: q → τ over q → others; feed_forward_other, feed_forward_width: mean and standard deviation of
            q → others.
        value: recall, v → v over v → others, mean over v; value_spread: its standard deviation over v.
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

    def of(self, name: str) -> float:
        """One of the numbers by its name."""
        level: float = getattr(self, name)
        return level


LEVELS = tuple(Levels.model_fields)


class Vocabulary(Levels):
    """The exact levels under one vocabulary and law of the trigger, and those of every sampled batch."""

    trigger: Trigger
    vocabulary: int
    draws: tuple[Levels, ...]

    @property
    def sampled(self) -> Levels | None:
        """The means over batches; None where none was drawn."""
        if not self.draws:
            return None
        return Levels(**{name: sum(draw.of(name) for draw in self.draws) / len(self.draws) for name in LEVELS})


class Power(Value):
    """How a signal scales with the vocabulary: the least-squares slope of its logarithm against that of V.

    Attributes:
        exact: of the exact signal; late: between the two largest vocabularies.
        batches: of the means over batches, with its bootstrap interval; None where none was drawn.
    """

    trigger: Trigger
    signal: Signal
    exact: Number
    late: Number
    batches: Estimate | None = None


class FirstStep(Value):
    """The first gradient step in noisy recall, over vocabularies.

    Attributes:
        length: tokens of a sequence; batch: sequences of a batch; width: of the gaussian codes of batches.
        level: of the intervals.
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
    """All numbers of a memory: what `summary.json` holds.

    Attributes:
        training: by measured step; the last is the full memory.
        truncated: every part of the spectrum, and the controls.
        sizes: the sweep; empty where no size has room in the width.
    """

    kind: Literal["memory"] = "memory"
    version: str
    approximate: str | None = None
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
    def deletion(self) -> Truncated:
        """The control that keeps nothing."""
        return next(row for row in self.truncated if row.control == "deletion")

    @property
    def best(self) -> Truncated | None:
        """The part of the spectrum with the smallest clean loss, fewest components dropped among equals.

        None where W has no two components to choose from.
        """
        if self.rank < 2:
            return None
        parts = (row for row in self.truncated if row.control is None and row.rank < self.rank)
        return min(parts, key=lambda row: (row.clean_loss.mean, -row.rank))

    @property
    def noises(self) -> list[float]:
        """The noises of the sweep, ascending."""
        return sorted({size.noise for size in self.sizes})
