"""Truncation from Python: what `lesion truncate` does, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, runs
from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.models.load import Model
from lesion.report.blocks import Chapter, Page
from lesion.studies.truncation import report as page
from lesion.studies.truncation import tables, terminal
from lesion.studies.truncation.grid import KEEP
from lesion.studies.truncation.result import TruncationSummary
from lesion.studies.truncation.run import BEST, run_truncation
from lesion.studies.truncation.study import METHOD, TruncationStudy


@dataclass(frozen=True)
class TruncationResult(StudyResult[TruncationSummary]):
    """A truncation search: its numbers, and the edit that it chose as a file."""

    SUMMARY = TruncationSummary

    @classmethod
    @override
    def run(cls, study: TruncationStudy, run: Run) -> TruncationResult:
        return cls(run.folder, *run_truncation(study, run))

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of the chosen edit, or of the composition; None: no edit was better."""
        return self.folder / BEST if self.summary.chosen else None

    @property
    def table(self) -> pd.DataFrame:
        """One row per cell and task, as in `cells.csv`. A cell that was not evaluated in full has one row."""
        return tables.cells(self.summary).frame

    @override
    def page(self) -> Page:
        return page.report(self.summary, page.decompositions(self.folder))

    @override
    def text(self) -> RenderableType:
        return terminal.text_tables(self.summary)

    @override
    def chapter(self) -> Chapter:
        return page.chapter(self.summary)

    @override
    def done(self) -> list[str]:
        return super().done() + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


@validated
@runs(METHOD)
def truncate(
    model: str | Model,
    tasks: str | Sequence[str],
    *,
    matrices: str | Sequence[str] = "mlp",
    layers: str | int | Sequence[int] = "all",
    keep: float | Sequence[float] = KEEP,
    side: str = "top",
    compose: bool = False,
    revisions: str | Sequence[str] = (),
    objective: str = "accuracy",
    validation: float = 0.2,
    screen: str | Mapping[str, int | str] = "auto",
    eliminate: float | None = None,
    items: int | str = 100,
    **options: Unpack[AnsweringOptions],
) -> TruncationResult:
    """Search for a part of a matrix whose removal makes a model better: chosen on some items, tested on the others.

    Example:
        >>> search = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
        >>> search.summary.chosen, search.edit

    Raises:
        UsageError: a task, matrix, layer or number of items does not exist, or a value is wrong.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
