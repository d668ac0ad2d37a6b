"""Overlays from Python: what `lesion overlay` does, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.functions import OutputOptions, runs
from lesion.studies.overlay.report import OverlayResult
from lesion.studies.overlay.study import METHOD


@validated
@runs(METHOD)
def overlay(
    *folders: str | Path, pairs: str | Sequence[str] = (), seed: int = 0, **options: Unpack[OutputOptions]
) -> OverlayResult:
    """Compare what finished studies say of a model's blocks.

    Example:
        >>> compared = lesion.overlay("layers", "drift", "isolation")
        >>> compared.correlations

    Raises:
        UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, no
            model has two profiles, or a pair does not name two of them.
        LesionError: a file is damaged.
    """
    raise NotImplementedError  # `runs` does it
