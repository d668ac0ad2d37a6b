"""Trainings of the recall laboratory from Python, as values."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.labs.recall import report as page
from lesion.labs.recall import tables
from lesion.labs.recall.result import RecallSummary
from lesion.labs.recall.run import KIND, read_training
from lesion.labs.recall.study import STUDY_KIND, read_study
from lesion.labs.recall.study_result import RecallStudySummary
from lesion.outputs import kind_of


class RecallResult(StudyResult[RecallSummary | RecallStudySummary]):
    """A training of the recall laboratory and its truncations, or the trainings of a study gathered over seeds."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per replacement of a matrix; in a study per group of seeds, with means and the lowest and highest."""
        if isinstance(self.summary, RecallSummary):
            return tables.truncations(self.summary).frame
        return pd.concat([tables.group(group).frame for group in self.summary.groups], ignore_index=True)

    @override
    def report(self) -> Path:
        return page.write(self.folder, self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text(self.summary)


def recall(folder: Path) -> RecallResult | None:
    """The training or the study in a folder; None where the folder has neither.

    Raises:
        LesionError: its summary is damaged.
    """
    kind = kind_of(folder)
    summary = read_training(folder) if kind == KIND else read_study(folder) if kind == STUDY_KIND else None
    return None if summary is None else RecallResult(folder, summary)
