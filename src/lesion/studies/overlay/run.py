"""Running an overlay: read the studies, compare them, and keep the numbers."""

from __future__ import annotations

from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.studies.overlay.report import OverlayResult
from lesion.studies.overlay.study import OverlayStudy
from lesion.studies.overlay.summary import summarise


def run_overlay(study: OverlayStudy, run: Run) -> OverlayResult:
    """Compare the studies that are named; raises as `summarise`, and where the folder cannot be written."""
    summary = summarise(study.folders, study.seed, study.pairs)
    with locked(run.folder, "overlay"):
        summary.write(run.folder)
    return OverlayResult(run.folder, summary)
