"""Recall studies from Python: what `lesion run` makes of a study file of the recall laboratory, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lesion.labs.recall import report as page


@dataclass(frozen=True)
class RecallResult:
    """Trainings of the recall laboratory, each truncated: the numbers, gathered over seeds.

    Attributes:
        folder: where the trainings lie, each in a folder of its own.
        summary: what `summary.json` holds.
    """

    folder: Path
    summary: dict[str, Any]

    def report(self) -> Path:
        """Write the report into the folder and return the path of `report.html`.

        Raises:
            LesionError: the folder cannot be written.
        """
        return page.write(self.folder, self.summary)
