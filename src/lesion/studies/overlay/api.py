"""Overlays from Python: what `lesion overlay` does, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lesion.arguments import validated
from lesion.core.lock import FolderLock
from lesion.studies.overlay import report as page
from lesion.studies.overlay.summary import profiles, summarise


@dataclass(frozen=True)
class OverlayResult:
    """Several studies laid over each other, model by model.

    Attributes:
        summary: what `summary.json` holds.
    """

    summary: dict[str, Any]

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, profile and block: what `overlay.csv` holds."""
        return page.table(self.summary)

    @property
    def correlations(self) -> pd.DataFrame:
        """One row per model and pair of profiles: what `correlations.csv` holds."""
        return page.pairs(self.summary)

    @validated
    def report(self, folder: str | Path) -> Path:
        """Write the page and its tables into a folder and return the path of `report.html`.

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
    """Lay what finished studies tell of a model's blocks over each other.

    Args:
        folders: of `ablate`, `drift`, `isolate` or `truncate`, in any order.
        seed: of the orders drawn for p, where a model has more than 8 blocks.

    Raises:
        UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, or no
            model has two profiles.
        LesionError: a file is damaged.
    """
    return OverlayResult(summarise(profiles(folders, seed)))
