"""Isolation from Python: what `lesion isolate` and `lesion evaluate` do, as values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core.functions import AnsweringOptions, ReadingOptions, runs
from lesion.core.result import StudyResult, refuse_unfinished
from lesion.core.run import Run
from lesion.edits.files.artefact import EditFile
from lesion.models.load import Model
from lesion.report.blocks import Chapter, Page
from lesion.studies.isolation import report as page
from lesion.studies.isolation import tables, terminal
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.isolation.run import recall_isolation, run_evaluation, run_isolation
from lesion.studies.isolation.study import EVALUATION, METHOD, SAMPLES, EvaluationStudy, IsolationStudy


@dataclass(frozen=True)
class IsolationResult(StudyResult[IsolationSummary]):
    """A skill that has been isolated, or edits that have been evaluated: the numbers, and the edits as files."""

    @classmethod
    @override
    def run(cls, study: IsolationStudy, run: Run) -> IsolationResult:
        return cls(run.folder, *run_isolation(study, run))

    @classmethod
    @override
    def recall(cls, folder: Path) -> IsolationResult | None:
        recalled = recall_isolation(folder)
        if recalled is None:
            refuse_unfinished(folder, "isolation")
            return None
        return cls(folder, recalled.summary)

    @property
    def edits(self) -> dict[str, Path]:
        """The `.edit` files by name: `mathneuro-0.05`."""
        selections = self.summary.isolation.selections if self.summary.isolation else ()
        return {Path(entry.file).stem: self.folder / entry.file for entry in selections if entry.file}

    @property
    def table(self) -> pd.DataFrame:
        """One row per task and edit, random controls beside it: what `evaluation.csv` holds."""
        return tables.evaluation(self.summary).frame

    @override
    def page(self) -> Page:
        recalled = recall_isolation(self.folder)
        assert recalled is not None
        return page.report(*recalled)

    @override
    def text(self) -> RenderableType:
        return terminal.text_tables(self.summary)

    @override
    def chapter(self) -> Chapter:
        return page.chapter(self.summary)


class EvaluationResult(IsolationResult):
    """Edits of files that have been evaluated on a model."""

    @classmethod
    @override
    def run(cls, study: EvaluationStudy, run: Run) -> EvaluationResult:  # type: ignore[override]
        return cls(run.folder, *run_evaluation(study, run))


@validated
@runs(METHOD)
def isolate(
    model: str | Model,
    skill: str,
    controls: str | Sequence[str],
    *,
    keep: float | Sequence[float] = 0.05,
    samples: int | Sequence[int] = SAMPLES,
    repeats: int = 1,
    methods: str | Sequence[str] = "mathneuro",
    replacement: bool = False,
    seed: int = 0,
    dtype: str = "auto",
    **options: Unpack[ReadingOptions],
) -> IsolationResult:
    """Find the weights that a skill needs and its controls do not, with forward passes only.

    Example:
        >>> result = lesion.isolate("bundled:llama-base", "primer:arithmetic", ["primer:atlas", "primer:reading"])
        >>> edit = lesion.read_edit(result.edits["mathneuro-0.05"])

    Raises:
        UsageError: a task does not exist or has too few items, or a value is wrong.
        LesionError: the model cannot be loaded, or every selection is empty or everything.
    """
    raise NotImplementedError  # `runs` does it


@validated
@runs(EVALUATION)
def evaluate(
    model: str | Model,
    edits: str | Path | EditFile | Collection[str | Path | EditFile],
    tasks: str | Sequence[str],
    *,
    factor: float | Sequence[float] | None = None,
    random_controls: int = 3,
    items: int | str = 100,
    validation: float | None = None,
    force: bool = False,
    **options: Unpack[AnsweringOptions],
) -> IsolationResult:
    """Evaluate the baseline and every edit on the same items, each edit beside its matched random controls.

    Example:
        >>> result = lesion.evaluate(model, edits.values(), ["primer:arithmetic", "primer:atlas"], factor=[0, 1.1])
        >>> result.table[["edit", "task", "accuracy", "drop_low", "drop_high", "random_lowest", "random_highest"]]

    Raises:
        UsageError: a task does not exist, or a value is wrong.
        LesionError: an edit does not fit the model, or moves too little in its dtype.
    """
    raise NotImplementedError  # `runs` does it
