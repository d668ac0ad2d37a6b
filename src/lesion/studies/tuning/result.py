"""The result of a tuning study: what each arm gains over the untuned model, by task and seed, and the verdict."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from lesion.core.values import Summary
from lesion.report.rows import Endings, Row, column, derived
from lesion.report.values import CHANGE, POINTS, SHARE, WHOLE_SHARE, Estimate, Mean, Number, Value, decimals
from lesion.studies.tuning.study import CRITICAL, RANDOM, TuningStudy, label

WORTH = 0.01
"""A difference of accuracy below this is negligible: one point."""


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

    @property
    def runs(self) -> tuple[float, ...]:
        """The difference under each of several seeds."""
        return self.seeds if len(self.seeds) > 1 else ()


class Difference(Change):
    """The accuracy of one arm minus that of another on the studied task, by the names of the arms."""

    first: str
    second: str


class Against(Row):
    """Critical blocks minus another arm on the studied task."""

    other: str = column("Against", label=True)
    difference: Change = column("Difference", CHANGE)

    @property
    def runs(self) -> tuple[float, ...]:
        """The difference under each of several seeds."""
        return self.difference.runs


class Baseline(Row):
    """The untuned model on a task."""

    task: str = column("Task", label=True)
    items: int = column("Items")
    accuracy: Accuracy = column("Untuned", SHARE, key="baseline_accuracy")


class Tuned(Row):
    """An arm on a task.

    Attributes:
        accuracy: mean over seeds; seeds: under each.
        change: over the untuned model on the same items; its interval is for other items and other seeds.
    """

    task: str
    items: int
    accuracy: float = column("Tuned", SHARE)
    seeds: tuple[Accuracy, ...]
    change: Change = column("Change", CHANGE)

    @property
    def runs(self) -> tuple[float, ...]:
        """The change under each of several seeds."""
        return self.change.runs

    @derived.column("Truncated", WHOLE_SHARE)
    def truncated(self) -> float:
        """Answers at the token limit or in a loop, mean over seeds."""
        return self._rate("truncated")

    @derived.column("Unclosed", WHOLE_SHARE)
    def unclosed(self) -> float | None:
        """Answers whose thinking was never closed, mean over seeds; None where there are none."""
        return self._rate("unclosed") or None

    @derived.column("Unparsed", WHOLE_SHARE)
    def unparsed(self) -> float:
        """Others in which no answer could be read, mean over seeds."""
        return self._rate("unparsed")

    def _rate(self, name: str) -> float:
        return float(np.mean([getattr(seed, name) for seed in self.seeds]))


class SeedLine(Row):
    """An arm under one seed on a task.

    Attributes:
        blocks: those that trained; seed: of the order of the items and of random blocks.
    """

    seed: int = column("Seed")
    blocks: str = column("Blocks", label=True)
    accuracy: Accuracy = column("Tuned", SHARE, ends=("low", "high"))
    change: float = column("Change", CHANGE)


class TriedRate(Row):
    """A learning rate, and the accuracy on held-out training items: mean over seeds, and under each seed."""

    rate: float = column("Tried rate", key="tried")
    validation: float = column("Accuracy on held-out items", SHARE)
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


class CoursePoint(Row):
    """A point of the curves of an arm at its rate: loss or reward since the last point, over seeds."""

    step: int = column("Step")
    loss: Mean | None = column("Loss", decimals(3, "nats per answer token"), default=None)
    reward: Mean | None = column("Mean reward", decimals(2), default=None)


class Curve(Value):
    """The course of one training."""

    seed: int
    rate: float
    points: tuple[CurvePoint, ...]


class ArmResult(Row):
    """A choice of what trains, and what it did.

    Attributes:
        name: as in the study.
        blocks: the blocks that trained, for each seed.
        rank: of the adapters; None where the blocks trained in full.
        parameters: how many numbers train.
        rate: the learning rate that was chosen; rates: all that were tried, none where there was only one.
        tasks: the studied task first, then the controls.
        curves: one for each rate and seed.
    """

    name: str = column("", key="arm")
    blocks: tuple[tuple[int, ...], ...]
    rank: int | None = column("Rank")
    parameters: int = column("Parameters")
    rate: float = column("Rate")
    rates: tuple[TriedRate, ...]
    tasks: tuple[Tuned, ...]
    curves: tuple[Curve, ...]

    @derived.column("Arm", label=True, key="label")
    def label(self) -> str:
        """In words: `critical blocks`."""
        return label(self.name)

    @property
    def gain(self) -> Change:
        """The change on the studied task."""
        return self.tasks[0].change

    @property
    def end(self) -> str | None:
        """`smallest` or `largest` where the chosen rate is at that end of at least three that were tried."""
        tried = [tried.rate for tried in self.rates]
        if len(tried) < 3:
            return None
        return "smallest" if self.rate == min(tried) else "largest" if self.rate == max(tried) else None

    def course(self, measure: Literal["loss", "reward"]) -> list[CoursePoint]:
        """The loss or reward at the chosen rate; nothing where a point is unknown or seeds do not match."""
        curves = [curve.points for curve in self.curves if curve.rate == self.rate]
        steps = {tuple(point.step for point in points) for points in curves}
        values = [[getattr(point, measure) for point in points] for points in curves]
        if len(steps) != 1 or len(values[0]) < 2 or any(value is None for own in values for value in own):
            return []
        means = [Mean.of(of_seeds) for of_seeds in zip(*values, strict=True)]
        return [CoursePoint.model_validate({"step": step, measure: mean})
                for step, mean in zip(steps.pop(), means, strict=True)]  # fmt: skip


class BlockDrop(Row):
    """What a block is worth to the studied task: the drop of accuracy without it, and whether it is critical."""

    layer: int = column("Block")
    drop: float = column("Drop", POINTS)
    is_critical: bool = column("Critical")


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

    @property
    def lines(self) -> list[BlockDrop]:
        """A line for every block."""
        return [
            BlockDrop(layer=layer, drop=drop, is_critical=layer in self.critical)
            for layer, drop in enumerate(self.drops)
        ]


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
    def difference_lines(self) -> list[Against]:
        """A line for every difference."""
        return [Against(other=label(pair.second), difference=pair) for pair in self.differences]

    @property
    def arm_lines(self) -> list[tuple[ArmResult, Baseline, Tuned]]:
        """A line for every task and arm, the studied task first."""
        return [(arm, before, arm.tasks[place]) for place, before in enumerate(self.baseline) for arm in self.arms]

    @property
    def seed_lines(self) -> list[tuple[ArmResult, Baseline, SeedLine, Accuracy]]:
        """A line for every arm, seed and task."""
        lines = []
        for arm in self.arms:
            for place, seed in enumerate(self.study.seeds):
                blocks = " ".join(map(str, arm.blocks[place]))
                for before, task in zip(self.baseline, arm.tasks, strict=True):
                    of_seed = task.seeds[place]
                    line = SeedLine(seed=seed, blocks=blocks, accuracy=of_seed, change=task.change.seeds[place])
                    lines.append((arm, before, line, of_seed))
        return lines

    @property
    def random_choices(self) -> int | None:
        """How many different choices of random blocks there are; None without that arm."""
        arm = self.arm(RANDOM)
        return None if arm is None or self.random_from is None else math.comb(len(self.random_from), len(arm.blocks[0]))
