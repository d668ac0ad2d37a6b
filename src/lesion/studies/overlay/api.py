"""Overlays from Python: what `lesion overlay` does, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lesion.arguments import validated
from lesion.core.lock import FolderLock
from lesion.report.blocks import Chapter
from lesion.studies.overlay import report as page
from lesion.studies.overlay import tables
from lesion.studies.overlay.result import OverlaySummary
from lesion.studies.overlay.summary import summarise


@dataclass(frozen=True)
class OverlayResult:
    """Several studies compared, model by model; `summary`: the numbers, as in `summary.json`."""

    summary: OverlaySummary

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, profile and block, as `overlay.csv`."""
        return tables.blocks(self.summary).frame

    @property
    def correlations(self) -> pd.DataFrame:
        """One row per model and pair of profiles, as `correlations.csv`."""
        return tables.pairs(self.summary).frame

    def chapter(self) -> Chapter:
        """What the overlay adds to a page over several studies."""
        return page.chapter(self.summary)

    @validated
    def report(self, folder: str | Path) -> Path:
        """Write the numbers, the page and its tables into a folder and return the path of `report.html`.

        Raises:
            UsageError: the folder belongs to another study.
            LesionError: the folder cannot be written.
        """
        lock = FolderLock(Path(folder), "overlay")
        try:
            return page.write(Path(folder), self.summary)
        finally:
            lock.release()


@validated
def overlay(*folders: str | Path, seed: int = 0) -> OverlayResult:
    """Compare what finished studies say of a model's blocks.

    Args:
        folders: of `ablate`, `drift`, `isolate` or `truncate`, in any order.
        seed: of the orders drawn for p, where a model has more than 8 blocks.

    Raises:
        UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, or no
            model has two profiles.
        LesionError: a file is damaged.
    """
    return OverlayResult(summarise(folders, seed))
