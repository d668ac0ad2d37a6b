"""Comparisons from Python: what `lesion compare` does, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import OutputOptions, runs
from lesion.core.result import StudyResult
from lesion.studies.comparison.report import ComparisonResult
from lesion.studies.comparison.study import METHOD


@validated
@runs(METHOD)
def compare(
    *folders: str | Path | StudyResult,
    labels: str | Sequence[str] = (),
    tasks: str | Sequence[str] = (),
    level: float = 0.95,
    **options: Unpack[OutputOptions],
) -> ComparisonResult:
    """Compare the stored answers of studies item by item; each is a folder or a result.

    Example:
        >>> compared = lesion.compare("base", "tuned")
        >>> compared.table
        >>> compared.items.query("change == 'lost'")

    Raises:
        UsageError: a folder has no answers or is named twice, two have no item in common, or answers were decoded or
            prompted differently; what differs is said.
        LesionError: a store is damaged.
    """
    raise NotImplementedError  # `runs` does it
