"""The result of a tuning study: what each arm gains over the untuned model, by task and seed, and the verdict."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from lesion.core.values import Summary
from lesion.report.endings import Endings
from lesion.report.values import Estimate, Number, Value
from lesion.studies.tuning.study import CRITICAL, RANDOM, TuningStudy, label


class Accuracy(Estimate, Endings):
    """The accuracy of one model on one task, with Wilson's interval, and how its answers ended."""

    value: float
    low: float
    high: float


class Change(Estimate):
    """A difference of accuracy on the same items, mean over seeds and under each, with an interval over both."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]


class Difference(Change):
    """The accuracy of one arm minus that of another on the studied task, by the names of the arms."""

    first: str
    second: str


class Baseline(Value):
    """The untuned model on a task."""

    task: str
    items: int
    accuracy: Accuracy


class Tuned(Value):
    """An arm on a task: its accuracy as a mean over seeds and under each, and the change over the untuned model."""

    task: str
    items: int
    accuracy: float
    seeds: tuple[Accuracy, ...]
    change: Change

    def rate(self, name: str) -> float:
        """`truncated`, `looped`, `unclosed`, `unparsed` or `nonfinite`, mean over seeds."""
        return float(np.mean([getattr(seed, name) for seed in self.seeds]))


class TriedRate(Value):
    """A learning rate and its accuracy on held-out training items: mean over seeds, and under each seed."""

    rate: float
    validation: float
    seeds: tuple[float, ...]


class CurvePoint(Value):
    """Means over the steps since the last point.

    Attributes:
        loss: in nats per answer token; of GRPO, its own loss.
        reward: share of drawn answers that the judge finds right; None by completions, which draw none.
    """

    step: int
    loss: Number
    reward: Number = None


class Curve(Value):
    """The course of one training."""

    seed: int
    rate: float
    points: tuple[CurvePoint, ...]


class ArmResult(Value):
    """A choice of what trains, and what it did.

    Attributes:
        name: as in the study.
        blocks: the blocks that trained, for each seed.
        rank: of the adapters; None where the blocks trained in full.
        rate: the learning rate that was chosen; rates: all that were tried, none where there was only one.
        tasks: the studied task first, then the controls.
        curves: one for each rate and seed.
    """

    name: str
    blocks: tuple[tuple[int, ...], ...]
    rank: int | None
    parameters: int
    rate: float
    rates: tuple[TriedRate, ...]
    tasks: tuple[Tuned, ...]
    curves: tuple[Curve, ...]

    @property
    def label(self) -> str:
        """In words: `critical blocks`."""
        return label(self.name)

    @property
    def gain(self) -> Change:
        """The change on the studied task."""
        return self.tasks[0].change

    @property
    def end(self) -> str | None:
        """`smallest` or `largest` where the chosen rate is at that end of those tried: a better one may lie beyond."""
        tried = [tried.rate for tried in self.rates]
        if len(tried) < 2:
            return None
        return "smallest" if self.rate == min(tried) else "largest" if self.rate == max(tried) else None

    def course(self, measure: Literal["loss", "reward"]) -> list[tuple[int, float]]:
        """(step, loss or reward) at the chosen rate, mean over seeds; nothing where a point is unknown or seeds do not
        match."""
        curves = [curve.points for curve in self.curves if curve.rate == self.rate]
        steps = {tuple(point.step for point in points) for points in curves}
        values = np.array([getattr(point, measure) for points in curves for point in points], dtype=np.float64)
        if len(steps) != 1 or len(values) < 2 * len(curves) or np.isnan(values).any():
            return []
        means = values.reshape(len(curves), -1).mean(axis=0).tolist()
        return list(zip(steps.pop(), means, strict=True))


class Drops(Value):
    """What each block is worth to the studied task.

    Attributes:
        drops: [blocks] accuracy of the baseline minus that without the block, on the same items.
        source: the folder of the layer study; None where the ablation was this study's own.
    """

    drops: tuple[float, ...]
    critical: tuple[int, ...]
    items: int
    source: str | None


class TunedModel(Value):
    """The model before tuning: its blocks and its parameters in all."""

    name: str
    blocks: int
    parameters: int
    fingerprint: str


class Verdict(Value):
    """Whether it pays to tune the critical blocks, and why."""

    word: Literal["pays", "does not pay", "cannot tell"]
    reason: Literal["better", "no better", "nothing learned", "no gain", "undecided"]


class TuningSummary(Summary):
    """All numbers of a tuning study: what `summary.json` holds.

    Attributes:
        examples, held_out: how many items were trained on, and how many chose the learning rate.
        layers: what each block is worth; None where no arm depends on it.
        random_from: the blocks that random ones were drawn from; None without that arm.
        baseline: the untuned model on the studied task, then on the controls.
        differences: critical blocks minus the other arms.
        verdict: None where critical and random blocks were not both tuned.
    """

    kind: Literal["tuning"] = "tuning"
    approximate: str | None = None
    study: TuningStudy
    model: TunedModel
    examples: int
    held_out: int
    layers: Drops | None
    random_from: tuple[int, ...] | None
    baseline: tuple[Baseline, ...]
    arms: tuple[ArmResult, ...]
    differences: tuple[Difference, ...]
    verdict: Verdict | None

    def arm(self, name: str) -> ArmResult | None:
        """An arm by its name."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def against(self, name: str) -> Difference | None:
        """Critical blocks minus another arm."""
        return next((pair for pair in self.differences if (pair.first, pair.second) == (CRITICAL, name)), None)

    @property
    def measure(self) -> Literal["loss", "reward"]:
        """What the curve of a training shows: the reward where that is what was trained, else the loss."""
        return "reward" if self.study.reinforced else "loss"

    @property
    def several(self) -> bool:
        """Whether there are several seeds."""
        return len(self.study.seeds) > 1

    @property
    def random_choices(self) -> int | None:
        """How many different choices of random blocks there are; None without that arm."""
        arm = self.arm(RANDOM)
        return None if arm is None or self.random_from is None else math.comb(len(self.random_from), len(arm.blocks[0]))
