"""Trainings of the recall laboratory from Python, as values."""

from __future__ import annotations

from pathlib import Path

from rich.console import RenderableType

from lesion.core.result import StudyResult
from lesion.labs.recall import report as page
from lesion.labs.recall import tables
from lesion.plain import tame


class RecallResult(StudyResult):
    """Trainings of the recall laboratory, each truncated, gathered over seeds; or a single one."""

    def report(self) -> Path:
        """Write the report into the folder and return the path of `report.html`.

        Raises:
            LesionError: the folder cannot be written.
        """
        return page.write(self.folder, self.summary)

    def text(self) -> RenderableType:
        """The tables for a terminal."""
        summary = tame(self.summary)
        return tables.sweep_text(summary) if summary["kind"] == "recall-sweep" else tables.text(summary)
