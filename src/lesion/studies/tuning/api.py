"""Tuning from Python: what `lesion tune` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core.functions import DecodingOptions, runs
from lesion.core.result import StudyResult, progress_line
from lesion.core.run import Run
from lesion.models.load import Model
from lesion.report.blocks import Page
from lesion.studies.tuning import report as page
from lesion.studies.tuning import tables
from lesion.studies.tuning.folder import training_seconds
from lesion.studies.tuning.result import TuningSummary
from lesion.studies.tuning.run import run_tuning
from lesion.studies.tuning.study import METHOD, TuningStudy


@dataclass(frozen=True)
class TuningResult(StudyResult[TuningSummary]):
    """A tuning: its numbers, and the tuned model where there is one.

    Attributes:
        trained: trainings that this run had to do.
        planned: trainings that the study consists of; 0 where it was not run now.
    """

    SUMMARY = TuningSummary

    trained: int = 0

    @classmethod
    @override
    def run(cls, study: TuningStudy, run: Run) -> TuningResult:
        return cls(run.folder, *run_tuning(study, run))

    @property
    def model(self) -> Path | None:
        """The folder of the tuned model, for `lesion.load`; None in a study of several arms or seeds."""
        return self.folder / "model" if self.summary.study.writes_model else None

    @property
    def table(self) -> pd.DataFrame:
        """One row per arm, seed and task, as `tuning.csv`; accuracies and changes in 0…1."""
        return tables.every(self.summary).frame

    @override
    def page(self) -> Page:
        return page.report(self.summary, training_seconds(self.folder))

    @override
    def text(self) -> RenderableType:
        return tables.text_tables(self.summary, training_seconds(self.folder))

    @override
    def done(self) -> list[str]:
        """How many trainings there were, and where the model lies."""
        trained = progress_line("trained", self.trained, self.planned, already="trained already")
        return ([trained] if self.planned else []) + ([f"model: {self.model}"] if self.model else [])


@validated
@runs(METHOD)
def tune(
    model: str | Model,
    task: str,
    *,
    layers: str | int | Sequence[int] | Sequence[str] = "critical",
    budget: int | str = "25%",
    steps: int = 40,
    rows: int = 16,
    learning_rate: float | Sequence[float] = 1e-3,
    adapter: int | None = None,
    controls: str | Sequence[str] = (),
    study: str | Path | None = None,
    seed: int | Sequence[int] = 0,
    items: int = 400,
    control_items: int = 200,
    ablation_items: int = 100,
    validation_items: int = 200,
    **options: Unpack[DecodingOptions],
) -> TuningResult:
    """Fine-tune chosen blocks of a model on a task, the rest frozen, and measure what it gains and costs.

    Example:
        >>> tuned = lesion.tune("bundled:llama-base", "primer:arithmetic", layers="critical", budget=2)
        >>> lesion.load(tuned.model)
        >>> lesion.tune("bundled:llama-base", "primer:arithmetic", layers=["critical", "random"], seed=[0, 1, 2]).table

    Raises:
        UsageError: a task, layer, budget, rank or number of items cannot be, or a model is not in float32.
        LesionError: the model cannot be loaded, TRL is not installed, or the folder belongs to something else.
    """
    raise NotImplementedError  # `runs` does it
