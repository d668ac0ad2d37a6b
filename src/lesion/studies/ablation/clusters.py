"""Clusters: whether the verdicts of a task stand if its templates, relations or subjects were drawn, not its items."""

from __future__ import annotations

from collections.abc import Iterator

from lesion.core import clustered_intervals
from lesion.core.clustered_intervals import OverClusters
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.statistics.critical import SHARE
from lesion.statistics.spared import SPARED
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve
from lesion.studies.ablation.result import AblationSummary

Doubt = tuple[str, OverClusters, float, str]


def findings(summary: AblationSummary) -> list[Finding]:
    """For every model whose tasks have items that share something: how much wider intervals are, and what stands."""
    several = len(summary.models) > 1
    every = []
    for model in summary.models:
        curves = [curve for curve in summary.curves if curve.model == model.model and not curve.stopped]
        sentences = []
        for result in model.tasks:
            own = [curve for curve in curves if curve.task == result.task]
            intervals = {_name(cell): cell.clustered for curve in own for cell in curve.cells if cell.clustered}
            doubts = [doubt for curve in own for doubt in _doubts(curve)]
            text = clustered_intervals.widened(result.task, result.items, result.shared, intervals)
            if text and result.shared and intervals and result.shared.clusters >= clustered_intervals.FEWEST:
                text += f" {clustered_intervals.verdicts(result.shared.what, doubts)}"
            if text:
                sentences.append(text)
        if sentences:
            subject = f"{model.model}, shared templates" if several else "Shared templates"
            every.append(Finding(subject, tuple(sentences[:1]), tuple(sentences[1:])))
    return every


def _doubts(curve: Curve) -> Iterator[Doubt]:
    """The verdicts whose bound lies outside the interval of the drop over items, and inside that over clusters."""
    baseline = (curve.result.baseline.accuracy.value or 0.0) - curve.result.guessing
    what = "the accuracy above guessing" if curve.result.guessing else "the accuracy"
    half, quarter = SHARE * baseline, SPARED * baseline
    for cell in curve.cells:
        of, low, high = cell.clustered, cell.drop.low, cell.drop.high
        if of is None or low is None or high is None:
            continue
        if cell.critical and of.low <= half < low:
            yield f"{_name(cell)} as critical", of, half, f"half of {what}"
        if cell.spared and high < quarter <= of.high:
            yield f"{_name(cell)} as spared", of, quarter, f"a quarter of {what}"


def _name(cell: Cell) -> str:
    how = "" if cell.factor == 0 else f" {wording.changed(cell.factor)}"
    return f"{wording.place(cell.unit, cell.layer, cell.part)}{how}"
