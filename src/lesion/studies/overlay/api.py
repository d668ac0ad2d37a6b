"""Overlays from Python: what `lesion overlay` does, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core.functions import OutputOptions, runs
from lesion.core.lock import locked
from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.report.blocks import Chapter, Page
from lesion.studies.overlay import report as page
from lesion.studies.overlay import tables
from lesion.studies.overlay.result import OverlaySummary
from lesion.studies.overlay.study import METHOD, OverlayStudy
from lesion.studies.overlay.summary import summarise


@dataclass(frozen=True)
class OverlayResult(StudyResult[OverlaySummary]):
    """Several studies compared, model by model."""

    SUMMARY = OverlaySummary

    @classmethod
    @override
    def run(cls, study: OverlayStudy, run: Run) -> OverlayResult:
        summary = summarise(study.folders, study.seed)
        with locked(run.folder, "overlay"):
            summary.write(run.folder)
        return cls(run.folder, summary)

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, profile and block, as `overlay.csv`."""
        return tables.blocks(self.summary).frame

    @property
    def correlations(self) -> pd.DataFrame:
        """One row per model and pair of profiles, as `correlations.csv`."""
        return tables.pairs(self.summary).frame

    @override
    def page(self) -> Page:
        return page.report(self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text_tables(self.summary)

    @override
    def chapter(self) -> Chapter:
        return page.chapter(self.summary)


@validated
@runs(METHOD)
def overlay(*folders: str | Path, seed: int = 0, **options: Unpack[OutputOptions]) -> OverlayResult:
    """Compare what finished studies say of a model's blocks.

    Example:
        >>> compared = lesion.overlay("layers", "drift", "isolation")
        >>> compared.correlations

    Raises:
        UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, or no
            model has two profiles.
        LesionError: a file is damaged.
    """
    raise NotImplementedError  # `runs` does it
