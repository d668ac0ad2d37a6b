"""The result of a tuning study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.report import checks, wording
from lesion.report.blocks import Check, entries
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Profile
from lesion.report.parts import Part
from lesion.report.rows import Endings, Rows
from lesion.report.table import Table
from lesion.report.values import CHANGE, SHARE
from lesion.studies.tuning.result import (
    Against,
    ArmResult,
    Baseline,
    BlockDrop,
    CoursePoint,
    SeedLine,
    TriedRate,
    Tuned,
    TuningSummary,
)
from lesion.studies.tuning.study import ALL_FULL, CRITICAL, RANDOM

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
    main, gain, full = summary.against(RANDOM), summary.arm(CRITICAL), summary.arm(ALL_FULL)
    if summary.verdict is None or main is None or gain is None:
        return
    # Where too few others are left, random blocks are drawn from all.
    everywhere = len(summary.random_from or ()) == summary.model.blocks
    compared = f"{CHANGE.text(main)} against random blocks{'' if everywhere else ' that are not critical'}"
    nothing = "" if full is None else f"even all blocks in full have no clear gain, {CHANGE.text(full.gain)}"
    first = {
        "better": f"Tuning the critical blocks pays: {compared}.",
        "no better": f"Tuning the critical blocks does not pay: {compared}, at best less than a point.",
        "nothing learned": f"{UNKNOWN}: {nothing}.",
        "no gain": f"{UNKNOWN}: {compared}, but no clear gain, {CHANGE.text(gain.gain)}.",
        "undecided": f"{UNKNOWN}: {compared}.",
    }[summary.verdict.reason]
    lines = [line for line in summary.difference_lines if line.other != summary.difference_lines[0].other]
    others = wording.listed([f"{CHANGE.text(line.difference)} against {line.other}" for line in lines])
    few = f"Random blocks are one of only {summary.random_choices or 0} choices, which says little of others."
    sentences = [first, *[f"Critical blocks have {others}."] * bool(others)]
    sentences += [few] * ((summary.random_choices or 0) <= FEW)
    yield Claim(tuple(sentences), tuple(summary.difference_lines))


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
        helps = "helps on" if change.low > 0 else "harms" if change.high < 0 else "makes no clear difference on"
        before, after = SHARE.text(summary.baseline[0].accuracy, False), SHARE.text(arms[0].tasks[0].accuracy)
        yield Claim((f"Tuning {label} {helps} {task}: {CHANGE.text(change)}, {before} → {after}.",), rows)
        return
    gaining, harmed = [arm for arm in arms if arm.gain.low > 0], [arm for arm in arms if arm.gain.high < 0]
    none = f"None of {len(arms)} choices of blocks is shown to gain on {task}."
    some = f"{len(gaining)} of {len(arms)} choices of blocks gain on {task}: {_named(gaining)}."
    most = max(arms, key=lambda arm: arm.gain.value)
    strongest = f"Most is gained by {most.label}: {CHANGE.text(most.gain)}."
    yield Claim((some if gaining else none, strongest, *[f"Harmed: {_named(harmed)}."] * bool(harmed)), rows)


def _named(arms: Sequence[ArmResult]) -> str:
    return wording.listed([arm.label for arm in arms])


@rule
def what_it_costs(summary: TuningSummary) -> Iterable[Claim]:
    """What the controls lost: the largest loss that is shown, or how large one could be.

    Says: Tuning costs accuracy on T (blocks B): D points. | No loss on T is shown; at worst D points (blocks B).
    Needs: an interval of the change on the control that lies below 0, over items and seeds; the worst that no interval
    excludes
    """
    changes = [(arm, task) for arm in summary.arms for task in arm.tasks[1:]]
    damaged = [(arm, task) for arm, task in changes if task.change.high < 0]
    if damaged:
        arm, task = min(damaged, key=lambda pair: pair[1].change.value)
        many = f"A loss is shown in {len(damaged)} of {len(changes)} pairs of tuned blocks and controls."
        first = f"Tuning {arm.label} costs accuracy on {task.task}: {CHANGE.text(task.change)}."
        sentences = [first, *[many] * (len(changes) > 1)]
    else:
        arm, task = min(changes, key=lambda pair: pair[1].change.low)
        names = wording.listed([each.task for each in summary.baseline[1:]], "or")
        worst = f"{CHANGE.text(task.change.low)} ({arm.label} on {task.task})"
        sentences = [f"No loss on {names} is shown; at worst {worst}."]
    yield Claim(tuple(sentences), tuple(damaged) or ((arm, task),))


READING = (
    "Every choice of blocks is trained for the same steps on the same items in the same order, under each learning"
    " rate. The rate that is best on held-out training items is chosen, and only that one meets the test items.",
    "Random blocks are drawn from those that are not called critical, as long as enough are left. An interval that"
    " holds 0 does not show that there is no effect: it says how large one could be.",
)
OPTIMISERS = {
    "loss": "AdamW; the rate rises over a tenth of the steps and falls to 0; loss on answers alone; float32",
    "reward": "AdamW; the rate rises over a twentieth of the steps and stays; advantages within the answers to an item,"
    " mean over the tokens of a step (DAPO), no reference model; float32",
}
"""By what the curves show."""


@dataclass(frozen=True)
class TuningResult(StudyResult[TuningSummary]):
    """A tuning: its numbers, and the tuned model where there is one.

    Attributes:
        trained: trainings that this run had to do.
        table: one row per arm, seed and task, as `tuning.csv`; accuracies and changes in 0…1.
        planned: trainings that the study consists of; 0 where it was not run now.
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
        grounds = list(checks.baselines((b.task, b.accuracy.value, 0.0, b.items) for b in summary.baseline))
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
        summary, study = self.summary, self.summary.study
        own = {
            "fingerprint": f"{summary.model.fingerprint} ({summary.model.parameters:,} parameters)",
            "training items": f"{summary.examples:,}",
            "held-out items": f"{summary.held_out:,}",
            "optimiser": OPTIMISERS[summary.measure],
        }
        shown = study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        return [*entries(shown), *own.items()]

    @override
    def done(self) -> list[str]:
        """How many trainings there were, and where the model lies."""
        trained = progress_line("trained", self.trained, self.planned, already="trained already")
        return ([trained] if self.planned else []) + ([f"model: {self.model}"] if self.model else [])

    @override
    def shown(self) -> Table:
        return Table.of(self._seeds())

    def _seeds(self) -> Rows:
        return Rows(
            "tuning", self.summary.seed_lines, (ArmResult, Baseline, SeedLine, Endings), "Every seed",
            "Accuracy with Wilson's interval, and its change over the untuned model.",
        )  # fmt: skip

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        task, lines = summary.baseline[0].task, summary.arm_lines
        verdict = does_it_pay(summary)
        title = "Does it pay to tune the critical blocks only?" if verdict else f"What does tuning gain on {task}?"
        over = "Change of accuracy over the untuned model on the same items; small dots: single seeds."
        arms = Rows(
            "arms",
            lines,
            (ArmResult, Baseline, Tuned),
            "Arms",
            f"{over} How answers ended: means over seeds.",
            brief=("label", "task", "change", "accuracy", "baseline_accuracy"),
        )
        name = summary.measure
        course = [(arm, point) for arm in summary.arms for point in arm.course(name)]
        controls = tuple(before.task for before in summary.baseline[1:])

        def bars(only: dict[str, Any], name: str) -> Bars:
            return Bars("change", "label", runs="runs", only=only, panel="task", caption=over, name=name)

        return (
            Part(
                title,
                arms,
                (bars({"task": task}, "tuning"),),
                (*verdict, *what_is_gained(summary)),
            ),
            Part(
                "By how much do critical blocks differ from the others?",
                Rows("differences", summary.difference_lines, (Against,), "Differences"),
                (
                    Bars("difference", "other", runs="runs", caption="Critical blocks minus the others, seed by seed on"
                         " the same test items."),
                ),
                short="Differences",
            ),
            Part(
                "What does it cost elsewhere?",
                arms,
                (bars({"task": controls}, "costs"),),
                what_it_costs(summary) if controls else (),
                short="Costs",
                table=False,
            ),
            Part(
                f"{wording.capital(name)} over the steps",
                Rows("", course, (ArmResult, CoursePoint)),
                (
                    Curves(name, "step", "label", name=name, low=0.0, caption=f"{wording.capital(name)} at the chosen"
                           " learning rate; bands: ± one standard deviation between seeds."),
                ),
                short=wording.capital(name),
                table=False,
            ),
            Part(
                "Which blocks are critical?",
                Rows("drops", summary.layers.lines if summary.layers else (), (BlockDrop,), "Drops"),
                (
                    Profile("drop", "layer", filled="is_critical", full="critical", caption="Drop of accuracy without"
                            " each block in the layer study, which has no test item of this one unless it was given."),
                ),
                short="Drops",
            ),
            Part("Every seed", self._seeds(), short="Seeds"),
            Part(
                "How were learning rates chosen?",
                Rows("rates", [(arm, rate) for arm in summary.arms for rate in arm.rates], (ArmResult, TriedRate),
                     "Learning rates"),
                short="Rates",
            ),
        )  # fmt: skip
