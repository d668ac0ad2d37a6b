"""Trainings of the recall laboratory from Python, as values."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.core.result import StudyResult, refuse_unfinished
from lesion.core.run import Run
from lesion.labs.recall import report as page
from lesion.labs.recall import tables
from lesion.labs.recall.result import RecallSummary
from lesion.labs.recall.run import KIND, read_training
from lesion.labs.recall.study import STUDY_KIND, read_study, run_recall
from lesion.labs.recall.study_file import RecallStudy
from lesion.labs.recall.study_result import RecallStudySummary
from lesion.outputs import kind_of
from lesion.report.blocks import Page


class RecallResult(StudyResult[RecallSummary | RecallStudySummary]):
    """A training of the recall laboratory and its truncations, or the trainings of a study gathered over seeds."""

    @classmethod
    @override
    def run(cls, study: RecallStudy, run: Run) -> RecallResult:
        return cls(run.folder, run_recall(study, run.folder, run.watcher))

    @classmethod
    @override
    def recall(cls, folder: Path) -> RecallResult | None:
        kind = kind_of(folder)
        if kind not in (KIND, STUDY_KIND):
            return None
        summary = read_training(folder) if kind == KIND else read_study(folder)
        if summary is None:
            refuse_unfinished(folder, kind)
            return None
        return cls(folder, summary)

    @property
    def table(self) -> pd.DataFrame:
        """A row per replacement of a matrix; in a study per group of seeds, with means and the lowest and highest."""
        if isinstance(self.summary, RecallSummary):
            return tables.truncations(self.summary).frame
        return pd.concat([tables.group(group).frame for group in self.summary.groups], ignore_index=True)

    @override
    def page(self) -> Page:
        return page.report(self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text(self.summary)
