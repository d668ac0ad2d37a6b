"""Drift from Python: what `lesion drift` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.core.result import StudyResult, progress_line
from lesion.core.run import Run
from lesion.models.load import Model
from lesion.report.blocks import Chapter, Page
from lesion.studies.drift import report as page
from lesion.studies.drift import tables
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.run import run_drift
from lesion.studies.drift.study import METHOD, DriftStudy


@dataclass(frozen=True)
class DriftResult(StudyResult[DriftSummary]):
    """A drift study: its numbers.

    Attributes:
        evaluated: own solutions generated in this run, without those stored before.
        planned: runs of a model under a number of clusters that the study consists of; 0 where it was not run now.
        measured: of these, how many were clustered now.
    """

    SUMMARY = DriftSummary

    measured: int = 0

    @classmethod
    @override
    def run(cls, study: DriftStudy, run: Run) -> DriftResult:
        summary, evaluated, measured, planned = run_drift(study, run)
        return cls(run.folder, summary, evaluated, planned, measured)

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, number of clusters and layer: mean and standard deviation over runs, as `drift.csv`.

        Cosine, CKA and the agreement with labels (columns `nmi with LABEL`) do not depend on the number of clusters or
        are measured under the drawn one alone; in other rows they are missing.
        """
        return tables.layers(self.summary).frame

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per model and token type or class between two layers, as `tokens.csv`."""
        return tables.tokens(self.summary).frame

    @override
    def page(self) -> Page:
        return page.report(self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text_tables(self.summary)

    @override
    def chapter(self) -> Chapter:
        return page.chapter(self.summary)

    @override
    def done(self) -> list[str]:
        return [progress_line("clustered", self.measured, self.planned, " runs")] if self.planned else []


@validated
@runs(METHOD)
def drift(
    model: str | Model | Sequence[str | Model],
    task: str,
    *,
    clusters: int | Sequence[int] = 50,
    runs: int = 5,
    items: int = 20,
    layer_zero: str = "embedding",
    part: str = "both",
    solution: str = "own",
    normalise: str = "none",
    nmi: str = "arithmetic",
    starts: int = 10,
    elbow: str = "later",
    between: Sequence[int] | None = None,
    study: str | Path | None = None,
    **options: Unpack[AnsweringOptions],
) -> DriftResult:
    """Cluster the hidden states of every layer and tell how far tokens leave the clusters they began in.

    Example:
        >>> result = lesion.drift("bundled:llama-base", "primer:arithmetic", clusters=[50, 10])
        >>> result.table[["layer", "nmi", "null"]], result.summary.models[0].curve.shape

    Raises:
        UsageError: a task, model, layer or number of items does not exist, or a run has fewer tokens than clusters.
        LesionError: a model cannot be loaded or its states are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
