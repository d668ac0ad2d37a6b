"""The result of a tuning study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from lesion.core import cost
from lesion.core.result import StudyResult, progress_line
from lesion.report import checks, wording
from lesion.report.blocks import Check, entries
from lesion.report.endings import Endings
from lesion.report.forms import SHARE
from lesion.report.marks import Bars, Curves, Profile
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.table import Table
from lesion.studies.tuning import claims
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

READING = (
    "Every choice of blocks is trained for the same steps on the same items in the same order, under each learning"
    " rate. The rate that is best on held-out training items is chosen, and only that one meets the test items.",
    "Intervals of changes cover both doubts, about other items and about other seeds; with one seed, items alone. An"
    " interval that holds 0 does not show that there is no effect: it says how large one could be.",
    "It pays if critical minus random blocks and the gain of critical blocks lie above 0 by their intervals, not if the"
    " former lies below one point. Random blocks are drawn from those that are not called critical, as long as enough"
    " are left.",
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
    EYEBROW = "tuning"
    READING = READING

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
        seconds = {arm: f"{float(took):,.1f}" for arm, took in cost.read(self.folder).get("training", {}).items()}
        own = {
            "fingerprint": f"{summary.model.fingerprint} ({summary.model.parameters:,} parameters)",
            "training items": f"{summary.examples:,}",
            "held-out items": f"{summary.held_out:,}",
            "optimiser": OPTIMISERS[summary.measure],
            "seconds of training": ", ".join(
                f"{arm.label} {seconds[arm.name]}" for arm in summary.arms if arm.name in seconds
            ),
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
        verdict = claims.does_it_pay(summary)
        title = "Does it pay to tune the critical blocks only?" if verdict else f"What does tuning gain on {task}?"
        level = f"{100 * summary.study.level:g}{wording.SPACE}%"
        doubts = "items and seeds; small dots: single seeds" if len(summary.study.seeds) > 1 else "items"
        over = f"Change of accuracy over the untuned model on the same items, with {level} intervals over {doubts}."
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
                (*verdict, *claims.what_is_gained(summary)),
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
                claims.what_it_costs(summary) if controls else (),
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
                    Profile("drop", "layer", filled="is_critical", full="critical", caption=self._drops_caption),
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

    @property
    def _drops_caption(self) -> str:
        layers = self.summary.layers
        if layers is None:
            return ""
        where = "none of them a test item; that layer study is in the folder layers"
        where = f"from the layer study in {layers.source}" if layers.source else where
        return f"Drop of accuracy without each block, on {wording.counted(layers.items, 'item')} ({where})."
