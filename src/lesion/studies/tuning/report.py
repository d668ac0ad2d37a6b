"""The report of a tuning study, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Block, Figure, Findings, Folded, Page, Panel, Prose, Section, study_section
from lesion.report.finding import Finding
from lesion.studies.tuning import charts, tables
from lesion.studies.tuning import findings as prose
from lesion.studies.tuning.folder import training_seconds
from lesion.studies.tuning.result import Drops, TuningSummary

READING = (
    "Every arm is trained for the same steps on the same items in the same order, under each learning rate. The rate"
    " that is best on held-out training items is the arm's, and only that one meets the test items.",
    "Intervals of changes cover both doubts, about other items and about other seeds; with one seed, items alone.",
    "Random blocks are drawn from those that are not called critical, as long as enough are left.",
    "An interval that holds 0 does not show that there is no effect: it says how large one could be.",
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

    SUMMARY, TABLE = TuningSummary, tables.every

    trained: int = 0

    @property
    def model(self) -> Path | None:
        """The folder of the tuned model, for `lesion.load`; None in a study of several arms or seeds."""
        return self.folder / "model" if self.summary.study.writes_model else None

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def page(self) -> Page:
        summary = self.summary
        findings: list[Block] = [Findings(tuple(prose.findings(summary)))]
        if summary.notes:
            findings.append(Prose(items=summary.notes, title="Notes", quiet=False))
        sections = [Section("Findings", "Findings", tuple(findings))]
        sections.append(Section("Gains", "What every choice of blocks gains", tuple(_gains(summary))))
        if len(summary.baseline) > 1:
            sections.append(Section("Costs", "What it costs elsewhere", (_costs(summary),)))
        if charts.learned(summary):
            name = summary.measure.capitalize()
            sections.append(Section(name, f"{name} over the steps", (_course(summary),)))
        sections.append(Section("Table", "All numbers", tuple(_numbers(summary))))
        sections.append(study_section(_facts(summary, training_seconds(self.folder)), (), READING))
        return Page(
            title=visible(summary.study.title or f"{summary.model.name}, tuned on {summary.study.task}"),
            eyebrow="tuning",
            sections=tuple(sections),
            version=summary.version,
            approximate=summary.approximate or "",
        )

    @override
    def text(self, *, every: bool = False) -> RenderableType:
        return tables.text_tables(self.summary, training_seconds(self.folder))

    @override
    def done(self) -> list[str]:
        """How many trainings there were, and where the model lies."""
        trained = progress_line("trained", self.trained, self.planned, already="trained already")
        return ([trained] if self.planned else []) + ([f"model: {self.model}"] if self.model else [])


def _gains(summary: TuningSummary) -> list[Figure]:
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    doubts = " over items and seeds; small dots: single seeds" if summary.several else " over items"
    caption = f"Change of accuracy on {summary.study.task} over the untuned model on the same items, with {level}"
    chart = charts.changes_chart(charts.gains(summary, 0))
    figures = [Figure("tuning", (Panel((chart,)),), f"{caption} intervals{doubts}.")]
    if summary.differences:
        caption = "Critical blocks minus the others, seed by seed on the same items and the same rows."
        caption += " The first comparison decides the verdict." if summary.verdict else ""
        chart = charts.changes_chart(charts.differences(summary))
        figures.append(Figure("differences", (Panel((chart,)),), caption))
    return figures


def _costs(summary: TuningSummary) -> Figure:
    controls = [charts.gains(summary, place) for place in range(1, len(summary.baseline))]
    rows = [row for chart in controls for row in chart]
    panels = (
        Panel((charts.changes_chart(chart, rows),), f"{before.task}, {wording.counted(before.items, 'item')}")
        for before, chart in zip(summary.baseline[1:], controls, strict=True)
    )
    caption = "Change of accuracy on the controls over the untuned model, on the same items; below 0 is damage."
    return Figure("costs", tuple(panels), caption)


def _course(summary: TuningSummary) -> Figure:
    what = "Loss on training answers"
    if summary.measure == "reward":
        temperature = summary.study.rollout_temperature
        what = f"Reward: share of right answers among those drawn to training items at temperature {temperature:g},"
    mean = ", mean over seeds" if summary.several else ""
    caption = f"{what} at the chosen learning rate{mean}; every arm sees the same items in the same order."
    return Figure(summary.measure, (Panel((charts.course_chart(summary),)),), caption, charts.course_legend(summary))


def _numbers(summary: TuningSummary) -> list[Block]:
    blocks: list[Block] = [tables.arms(summary), Folded("Every arm, seed and task", (tables.every(summary),))]
    if summary.held_out:
        blocks += [Prose(title="How the learning rates were chosen"), tables.rates(summary)]
    if summary.layers is not None:
        blocks += [Prose(title="Which blocks are critical"), _drops(summary.study.task, summary.layers)]
    return blocks


def _drops(task: str, layers: Drops) -> Figure:
    where = "not test items; that layer study is in the folder layers"
    if layers.source is not None:
        where = f"from the layer study in {visible(layers.source)}"
    items = wording.counted(layers.items, "item")
    caption = f"Drop of accuracy on {task} without each block, in points, on {items} ({where}). Boxed: critical."
    return Figure("drops", (Panel((charts.drops_chart(layers),)),), caption)


def _facts(summary: TuningSummary, training: Mapping[str, float]) -> list[tuple[str, str]]:
    """The study's own entries, for whoever wants to repeat it."""
    study, model = summary.study, summary.model
    blocks = wording.counted(model.blocks, "block")
    facts = {
        "model": f"{model.name}, {blocks}, {model.parameters:,} parameters, {model.fingerprint}",
        "task": study.task,
        "controls": ", ".join(study.controls) or "none",
        "budget": str(study.budget),
        "training": f"{prose.training(study)}, from {summary.examples:,} training items",
        "learning rates": ", ".join(f"{rate:g}" for rate in study.learning_rates),
        "chosen on": f"{summary.held_out:,} held-out training items" if summary.held_out else wording.DASH,
        "seeds": ", ".join(map(str, study.seeds)),
        "test items": ", ".join(f"{before.task} {before.items:,}" for before in summary.baseline),
        "seed of the items": str(study.seed),
        "optimiser": OPTIMISERS[summary.measure],
        "seconds of training": tables.seconds(summary, training),
    }
    return list(facts.items())
