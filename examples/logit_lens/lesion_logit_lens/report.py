"""The result of a logit lens: its numbers, and the page over them as values in reading order."""

from __future__ import annotations

import pandas as pd
from rich.console import RenderableType

from lesion.core.result import StudyResult
from lesion.report import plots, wording
from lesion.report.blocks import Facts, Figure, Findings, Page, Panel, Prose, Section, Series, entries
from lesion.report.finding import Finding
from lesion.report.plots import Axis
from lesion.report.table import Column, Table, decimals
from lesion_logit_lens.study import LensSummary, LensTask

MEASURES = {"accuracy": "accuracy", "log_probability": "log-probability of the gold answer, nats"}
READING = "Layer 0 is what enters block 0, layer l the output of block l − 1; the last layer is the model as it is."


class LensResult(StudyResult[LensSummary]):
    """What the lens showed."""

    SUMMARY = LensSummary

    @property
    def table(self) -> pd.DataFrame:
        """A row per model, task and layer, as `logit-lens.csv`."""
        return table(self.summary).frame

    def page(self) -> Page:
        """The page."""
        return page(self.summary)

    def text(self) -> RenderableType:
        """The table for a terminal."""
        return table(self.summary).terminal()


def page(summary: LensSummary) -> Page:
    """The whole page."""
    facts = entries(summary.study.model_dump(mode="json", exclude_none=True))
    return Page(
        title=summary.study.title or "Logit lens",
        eyebrow="logit lens",
        version=summary.version,
        sections=(
            Section("Findings", "Findings", (Findings(tuple(map(finding, summary.tasks))), Prose((READING,)))),
            Section("Layers", "What is read at each layer", (figure(summary), table(summary))),
            Section("Study", "The study", (Facts(facts),)),
        ),
    )


def finding(task: LensTask) -> Finding:
    """From which layer on the accuracy cannot be told from that of the whole model."""
    last = task.layers[-1].accuracy
    first = next(layer.layer for layer in task.layers if (layer.accuracy.high or 0) >= (last.low or 0))
    text = (
        f"{task.model}, {task.task}: {wording.percent(last.value)} {wording.interval(last.low, last.high)} right on"
        f" {wording.counted(task.items, 'item')}; the first layer whose interval reaches the whole model's is layer"
        f" {first} of {task.layers[-1].layer}."
    )
    return Finding("", (text,))


def figure(summary: LensSummary) -> Figure:
    """Accuracy and log-probability by layer, a line per model and task."""
    names = [f"{task.model}, {task.task}" for task in summary.tasks]
    depth = max(task.layers[-1].layer for task in summary.tasks)
    across = Axis("layer", -0.3, depth + 0.3, whole=True)
    panels = []
    for measure, title in MEASURES.items():
        rows = []
        for name, task in zip(names, summary.tasks, strict=True):
            for layer in task.layers:
                value = getattr(layer, measure)
                number = wording.DASH if value.value is None else wording.figures(value.value, 4)
                tip = f"{name}\nlayer {layer.layer}: {number} {wording.plain_interval(value.low, value.high)}"
                rows.append(
                    {
                        "series": name,
                        "x": layer.layer,
                        "y": value.value,
                        "low": value.low,
                        "high": value.high,
                        "tip": tip,
                    }
                )
        upright = Axis(title, 0.0, 1.0) if measure == "accuracy" else Axis(title)
        panels.append(Panel((plots.curves(pd.DataFrame(rows), across, upright, names),), title))
    legend = tuple(Series(name, index) for index, name in enumerate(names))
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    bands = f"Bands: {level} intervals over items (accuracy: Wilson; log-probability: percentile bootstrap)."
    return Figure("logit-lens", tuple(panels), f"{bands} {READING}", legend)


def table(summary: LensSummary) -> Table:
    """A row per model, task and layer."""
    rows = [
        {"model": task.model, "task": task.task, "layer": layer.layer, "items": task.items}
        | {"accuracy": layer.accuracy.value, "low": layer.accuracy.low, "high": layer.accuracy.high}
        | {"log_probability": layer.log_probability.value}
        | {"log_probability_low": layer.log_probability.low, "log_probability_high": layer.log_probability.high}
        for task in summary.tasks
        for layer in task.layers
    ]
    columns = (
        Column("model", "Model", number=False),
        Column("task", "Task", number=False),
        Column("layer", "Layer"),
        Column("accuracy", "Accuracy, %", row=lambda row: _share(row["accuracy"], row["low"], row["high"])),
        Column("log_probability", "Log-probability, nats", decimals(2)),
    )
    return Table("logit-lens", pd.DataFrame(rows), columns, title="Logit lens", caption=READING)


def _share(value: float, low: float, high: float) -> str:
    return f"{wording.points(value)} {wording.interval(low, high)}"
