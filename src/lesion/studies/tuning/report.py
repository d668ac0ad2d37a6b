"""The result of a tuning study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.core.values import Summary
from lesion.report import checks, wording
from lesion.report.blocks import Check, entries
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Profile
from lesion.report.parts import Part
from lesion.report.rows import Endings, Row, Rows, column, derived
from lesion.report.table import Table
from lesion.report.values import CHANGE, POINTS, SHARE, WHOLE_SHARE, Estimate, Mean, Number, Value, decimals
from lesion.studies.tuning.study import CRITICAL, TuningStudy, label

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
    """The accuracy of one arm minus that of another on the studied task."""

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
    """An arm under one seed on a task."""

    seed: int = column("Seed")
    blocks: str = column("Blocks", label=True)
    accuracy: Accuracy = column("Tuned", SHARE, ends=("low", "high"))
    change: float = column("Change", CHANGE)


class TriedRate(Row):
    """A learning rate, and the accuracy on held-out training items: mean over seeds, and under each seed."""

    rate: float = column("Tried rate", key="tried")
    validation: float = column("Held-out accuracy", SHARE)
    seeds: tuple[float, ...]


class CurvePoint(Value):
    """Means over the steps since the last point; `loss` in nats per answer token, of GRPO its own loss."""

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
        blocks: that trained, for each seed.
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
        return {min(tried): "smallest", max(tried): "largest"}.get(self.rate) if len(tried) > 2 else None

    def course(self, measure: Literal["loss", "reward"]) -> list[CoursePoint]:
        """The loss or reward at the chosen rate; nothing where a point is unknown or seeds do not match."""
        curves = [curve.points for curve in self.curves if curve.rate == self.rate]
        values = [[getattr(point, measure) for point in points] for points in zip(*curves, strict=False)]
        alike = len({tuple(point.step for point in points) for points in curves}) == 1
        if not alike or len(values) < 2 or any(value is None for own in values for value in own):
            return []
        points = zip(curves[0], map(Mean.of, values), strict=True)
        return [CoursePoint.model_validate({"step": point.step, measure: mean}) for point, mean in points]


class BlockDrop(Row):
    """What a block is worth to the studied task: the drop of accuracy without it, and whether it is critical."""

    layer: int = column("Block")
    drop: float = column("Drop", POINTS)
    is_critical: bool = column("Critical")


class Drops(Value):
    """What each block is worth: the drop of accuracy without it; `source`: a layer study that was given."""

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
        random_from: the blocks that random ones were drawn from.
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

    @property
    def measure(self) -> Literal["loss", "reward"]:
        """What the curve of a training shows: the reward where that is what was trained, else the loss."""
        return "reward" if self.study.reinforced else "loss"

    @property
    def block_drops(self) -> list[BlockDrop]:
        """What every block is worth; empty where no arm depends on it."""
        if (known := self.layers) is None:
            return []
        return [BlockDrop(layer=n, drop=drop, is_critical=n in known.critical) for n, drop in enumerate(known.drops)]

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


FEW = 10
"""So many different choices of random blocks or fewer are said to be few."""
UNKNOWN = "Whether tuning the critical blocks pays cannot be told"


@rule
def does_it_pay(summary: TuningSummary) -> Iterable[Claim]:
    """The verdict with the comparison that decided it, then the other comparisons.

    Says: Tuning the critical blocks pays: D points against random blocks. | Tuning the critical blocks does not pay: D
    points against random blocks, at best less than a point. | Whether tuning the critical blocks pays cannot be told:
    nothing was learned, no gain is sure, or both may be.
    Needs: critical and random blocks, tuned on the same items by the same steps. It pays where critical minus random
    blocks and the gain of critical blocks lie above 0 by their intervals (over items and seeds); it does not where the
    former lies below +1.0 points
    """
    if summary.verdict is None:
        return
    (critical,) = (arm for arm in summary.arms if arm.name == CRITICAL)
    lines, pool = summary.difference_lines, summary.random_from or ()
    # Where too few others are left, random blocks are drawn from all.
    apart = " that are not critical" * (len(pool) < summary.model.blocks)
    compared = f"{CHANGE.text(lines[0].difference)} against random blocks{apart}"
    first = {
        "better": f"Tuning the critical blocks pays: {compared}.",
        "no better": f"Tuning the critical blocks does not pay: {compared}, at best less than a point.",
        "nothing learned": f"{UNKNOWN}: even all blocks in full have no clear gain.",
        "no gain": f"{UNKNOWN}: {compared}, but no clear gain, {CHANGE.text(critical.gain)}.",
        "undecided": f"{UNKNOWN}: {compared}.",
    }[summary.verdict.reason]
    others = [f"{CHANGE.text(line.difference)} against {line.other}" for line in lines[1:]]
    sentences = [first, *[f"Critical blocks have {wording.listed(others)}."] * bool(others)]
    if (choices := math.comb(len(pool), len(critical.blocks[0]))) <= FEW:
        sentences.append(f"Random blocks are one of only {choices} choices, which says little of others.")
    yield Claim(tuple(sentences), tuple(lines))


@rule
def what_is_gained(summary: TuningSummary) -> Iterable[Claim]:
    """What the only arm gains on the studied task, or which of several do.

    Says: Tuning blocks B helps on T: D points. | Tuning blocks B harms T: D points. | Tuning makes no clear difference
    on T: D points. | N of M choices of blocks gain on T: A and B. | None of M choices of blocks is shown to gain on T.
    Needs: an interval of the change on the same test items that lies on that side of 0, over items and seeds
    """
    task, arms = summary.baseline[0].task, summary.arms
    rows = tuple(line for line in summary.arm_lines if line[1].task == task)
    if len(arms) == 1:
        change, label = arms[0].gain, arms[0].label
        helps = {1: "helps on", -1: "harms", 0: "makes no clear difference on"}[change.side]
        before, after = SHARE.text(summary.baseline[0].accuracy, False), SHARE.text(arms[0].tasks[0].accuracy)
        yield Claim((f"Tuning {label} {helps} {task}: {CHANGE.text(change)}, {before} → {after}.",), rows)
        return
    gaining, harmed = ([arm.label for arm in arms if arm.gain.side == side] for side in (1, -1))
    first = f"None of {len(arms)} choices of blocks is shown to gain on {task}."
    if gaining:
        first = f"{len(gaining)} of {len(arms)} choices of blocks gain on {task}: {wording.listed(gaining)}."
    most = max(arms, key=lambda arm: arm.gain.value)
    strongest = (
        f"{'Most is gained by' if gaining else 'The best change is that of'} {most.label}: {CHANGE.text(most.gain)}."
    )
    yield Claim((first, strongest, *[f"Harmed: {wording.listed(harmed)}."] * bool(harmed)), rows)


@rule
def what_it_costs(summary: TuningSummary) -> Iterable[Claim]:
    """What the controls lost: the largest loss that is shown, or how large one could be.

    Says: Tuning costs accuracy on T (blocks B): D points. | No loss on T is shown; one of up to D points cannot be
    excluded (blocks B on T).
    Needs: an interval of the change on the control that lies below 0, over items and seeds; the worst that no interval
    excludes
    """
    changes = [(arm, task) for arm in summary.arms for task in arm.tasks[1:]]
    damaged = [(arm, task) for arm, task in changes if task.change.high < 0]
    if damaged:
        arm, task = min(damaged, key=lambda pair: pair[1].change.value)
        many = f"A loss is shown in {len(damaged)} of {len(changes)} pairs of tuned blocks and controls."
        first = f"Tuning {arm.label} costs accuracy on {task.task}: {CHANGE.text(task.change)}."
        yield Claim((first, *[many] * (len(changes) > 1)), tuple(damaged))
    elif changes:
        arm, task = min(changes, key=lambda pair: pair[1].change.low)
        names = wording.listed([each.task for each in summary.baseline[1:]], "or")
        worst = f"{POINTS.text(-task.change.low)} cannot be excluded ({arm.label} on {task.task})"
        yield Claim((f"No loss on {names} is shown; one of up to {worst}.",), ((arm, task),))


READING = (
    "Every choice of blocks is trained for the same steps on the same items in the same order, under each learning"
    " rate. The rate that is best on held-out training items is chosen, and only that one meets the test items.",
    "Random blocks are drawn from those that are not called critical, as long as enough are left.",
)


@dataclass(frozen=True)
class TuningResult(StudyResult[TuningSummary]):
    """A tuning: its numbers, and the tuned model where there is one.

    Attributes:
        table: one row per arm, seed and task, as `tuning.csv`; accuracies and changes in 0…1.
    """

    SUMMARY = TuningSummary
    TEXTLESS = True
    EYEBROW = "tuning"
    READING = READING
    TESTED = "Brackets and bars: {level} intervals over items and, where there are several, seeds; not corrected."

    trained: int = 0

    @property
    def model(self) -> Path | None:
        """The folder of the tuned model, for `lesion.load`; None in a study of several arms or seeds."""
        return self.folder / "model" if self.summary.study.writes_model else None

    @property
    @override
    def basis(self) -> str:
        summary, before = self.summary, self.summary.baseline[0]
        return (
            f"{wording.counted(before.items, 'test item')}, untuned {SHARE.text(before.accuracy)} right;"
            f" {wording.counted(len(summary.study.seeds), 'seed')}; trained by {summary.study.recipe}."
        )

    @override
    def checks(self) -> list[Check]:
        summary = self.summary
        untuned = ((b.task, b.accuracy.value, 0.0, b.items) for b in summary.baseline)
        grounds = list(checks.baselines(untuned, gains=(summary.baseline[0].task,)))
        if len(summary.study.seeds) == 1:
            text = "One seed: intervals cover items, not training. Add --seed 0,1,2."
            grounds.append(Check("open", text, "tune", "--seed 0,1,2"))
        for end in ("smallest", "largest"):
            if names := [arm.label for arm in summary.arms if arm.end == end]:
                text = f"Best at the {end} learning rate, so a better one may lie beyond: {wording.listed(names)}."
                grounds.append(Check("bad", text))
        return grounds[:4]

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        shown = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        own = {"training_items": summary.examples, "held_out_items": summary.held_out}
        return list(entries({**shown, **summary.model.model_dump(include={"fingerprint", "parameters"}), **own}))

    @override
    def done(self) -> list[str]:
        """How many trainings there were, and where the model lies."""
        trained = progress_line("trained", self.trained, self.planned, already="trained already")
        return ([trained] if self.planned else []) + ([f"model: {self.model}"] if self.model else [])

    @override
    def shown(self) -> Table:
        return Table.of(self._seeds())

    def _seeds(self) -> Rows:
        return Rows("tuning", self.summary.seed_lines, (ArmResult, Baseline, SeedLine, Endings), "Every seed")

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        task, lines = summary.baseline[0].task, summary.arm_lines
        verdict = does_it_pay(summary)
        title = "Does it pay to tune the critical blocks only?" if verdict else f"What does tuning gain on {task}?"
        arms = Rows(
            "arms", lines, (ArmResult, Baseline, Tuned), "Arms", "How answers ended: means over seeds.",
            brief=("label", "task", "change", "accuracy", "baseline_accuracy"),
        )  # fmt: skip
        name = summary.measure
        course = [(arm, point) for arm in summary.arms for point in arm.course(name)]
        controls = tuple(before.task for before in summary.baseline[1:])

        def bars(only: dict[str, Any], name: str, caption: str = "") -> Bars:
            return Bars("change", "label", runs="runs", only=only, panel="task", caption=caption, name=name)

        dots = "; small dots: single seeds" * (len(summary.study.seeds) > 1)
        over = f"Change of accuracy over the untuned model on the same items{dots}."

        cost = f"{wording.capital(name)} at the chosen learning rate; bands: ± one standard deviation between seeds."
        rates = [(arm, rate) for arm in summary.arms for rate in arm.rates]
        return (
            Part(title, arms, (bars({"task": task}, "tuning", over),), (*verdict, *what_is_gained(summary))),
            Part(
                "By how much do critical blocks differ from the others?",
                Rows("differences", summary.difference_lines, (Against,), "Differences"),
                (Bars("difference", "other", runs="runs"),), short="Differences",
            ),
            Part(
                "What does it cost elsewhere?", arms, (bars({"task": controls}, "costs"),), what_it_costs(summary),
                short="Costs", table=False,
            ),
            Part(
                f"{wording.capital(name)} over the steps", Rows("", course, (ArmResult, CoursePoint)),
                (Curves(name, "step", "label", name=name, low=0.0, caption=cost),), short=wording.capital(name),
                table=False,
            ),
            Part(
                "Which blocks are critical?",
                Rows("drops", summary.block_drops, (BlockDrop,), "Drops", "On none of these test items, unless a layer"
                     " study was given."),
                (Profile("drop", "layer", filled="is_critical", full="critical"),), short="Drops",
            ),
            Part("Every seed", self._seeds(), short="Seeds"),
            Part(
                "How were learning rates chosen?",
                Rows("rates", rates, (ArmResult, TriedRate), "Learning rates"), short="Rates",
            ),
        )  # fmt: skip
