"""An associative memory from Python, as values."""

from __future__ import annotations

from pathlib import Path

from rich.console import RenderableType

from lesion.core.result import StudyResult
from lesion.labs.memory import report as page
from lesion.labs.memory import tables
from lesion.labs.memory.result import MemorySummary


class MemoryResult(StudyResult[MemorySummary]):
    """An associative memory with noise: its training, truncations, the sweep over sizes, and the first step."""

    def report(self) -> Path:
        """Write the report into the folder and return the path of `report.html`.

        Raises:
            LesionError: the folder cannot be written.
        """
        return page.write(self.folder, self.summary)

    def text(self) -> RenderableType:
        """The findings and tables for a terminal."""
        return tables.text(self.summary)
