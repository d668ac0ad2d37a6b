"""Running a comparison: read the folders, compare their answers, and keep the numbers."""

from __future__ import annotations

from lesion.core.lock import locked
from lesion.core.run import Run
from lesion.studies.comparison.report import ComparisonResult
from lesion.studies.comparison.study import ComparisonStudy
from lesion.studies.comparison.summary import gathered, summarise


def run_comparison(study: ComparisonStudy, run: Run) -> ComparisonResult:
    """Compare the studies that are named; raises as `gathered`, and where the folder cannot be written."""
    read = gathered(study, run.folder)
    summary = summarise(study, read)
    with locked(run.folder, "comparison"):
        summary.write(run.folder)
    return ComparisonResult(run.folder, summary, matches=tuple(read.matches))
