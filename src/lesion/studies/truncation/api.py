"""Truncation from Python: what `lesion truncate` does, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType

from lesion.arguments import validated
from lesion.core.functions import runs
from lesion.core.result import StudyResult, progress_line
from lesion.engines.config import EngineChoice
from lesion.models.load import Model
from lesion.plain import tame
from lesion.progress import Watcher
from lesion.studies.truncation import report as page
from lesion.studies.truncation import tables as truncation_tables
from lesion.studies.truncation.grid import KEEP
from lesion.studies.truncation.method import METHOD
from lesion.studies.truncation.run import BEST


@dataclass(frozen=True)
class TruncationResult(StudyResult):
    """A search that has been run: its numbers, and the edit that it found as a file.

    Attributes:
        folder: where answers and edit lie; a temporary one, removed when Python ends, unless it was named.
        summary: what `summary.json` holds.
        asked: answers asked for by this run, without those stored before.
        planned: answers that the study consists of; 0 where it was not run now.
    """

    asked: int = 0
    planned: int = 0

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of what was found, the composition where one was accepted; None: nothing was better."""
        return self.folder / BEST if self.summary["chosen"] else None

    @property
    def table(self) -> pd.DataFrame:
        """One row per cell and task: what `cells.csv` holds. A cell that was not asked in full has one row."""
        return truncation_tables.csv(self.summary)["cells.csv"]

    def report(self) -> Path:
        """Write the report into the folder and return the path of `report.html`.

        Raises:
            LesionError: the folder cannot be written.
        """
        return page.write(self.folder, self.summary)

    def text(self) -> RenderableType:
        """The tables for a terminal."""
        return page.text_tables(tame(self.summary))

    def done(self) -> list[str]:
        """How many answers were asked for, and where the edit lies."""
        lines = [progress_line("asked", self.asked, self.planned, " answers")] if self.planned else []
        return lines + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


@validated
@runs(METHOD)
def truncate(
    model: str | Model,
    tasks: str | Sequence[str],
    *,
    matrices: str | Sequence[str] = "mlp",
    layers: str | int | Sequence[int] = "all",
    keep: float | Sequence[float] = KEEP,
    side: str = "top",
    compose: bool = False,
    revisions: str | Sequence[str] = (),
    objective: str = "accuracy",
    validation: float = 0.2,
    screen: str | Mapping[str, int | str] = "auto",
    eliminate: float | None = None,
    items: int | str = 100,
    seed: int = 0,
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    prompt_style: str | None = None,
    level: float = 0.95,
    batch_size: int | str = "auto",
    dtype: str = "auto",
    device: str = "auto",
    engine: str | EngineChoice = "transformers",
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> TruncationResult:
    """Search for a part of a matrix whose removal makes a model better: chosen on some items, told on the others.

    Example:
        >>> found = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
        >>> found.summary["chosen"], found.edit

    Raises:
        UsageError: a task, matrix, layer or number of items does not exist, or a value is wrong.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """
    raise NotImplementedError  # `runs` does it
