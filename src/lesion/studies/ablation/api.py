"""Layer ablation from Python: what `lesion ablate` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import Unpack, override

from lesion.arguments import validated
from lesion.core import cost
from lesion.core.functions import AnsweringOptions, runs
from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.edits.edit import Unit
from lesion.models.load import Model
from lesion.plain import plain
from lesion.report.blocks import Chapter, Page
from lesion.studies.ablation import report as page
from lesion.studies.ablation import tables
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.run import answers_and_items, recall, run_ablation
from lesion.studies.ablation.screening import ASKING
from lesion.studies.ablation.study import METHOD, Study


@dataclass(frozen=True)
class AblationResult(StudyResult[AblationSummary]):
    """A layer study: its numbers, and every answer behind them."""

    @classmethod
    @override
    def run(cls, study: Study, run: Run) -> AblationResult:
        result = cls(run.folder, *run_ablation(study, run))
        result.summary.write(run.folder)
        return result

    @classmethod
    @override
    def recall(cls, folder: Path) -> AblationResult:
        return cls(folder, recall(folder)[1])

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, task, unit, factor and layer, the baseline beside it: what `layers.csv` holds."""
        return tables.frame(self.summary)

    @property
    def answers(self) -> pd.DataFrame:
        """Every stored answer with its item, verdict and how it ended."""
        return answers_and_items(self.folder)[0]

    @override
    def page(self) -> Page:
        seconds = cost.read(self.folder).get(ASKING) or {}
        return page.report(self.summary, *answers_and_items(self.folder), seconds=seconds)

    @override
    def text(self) -> RenderableType:
        families = self.summary.invariance.families if self.summary.invariance else ()
        verdicts = [Text("\n" + plain(f"{family.family}: {family.verdict.text}")) for family in families]
        return Group(tables.text(self.summary, cost.read(self.folder).get(ASKING) or {}), *verdicts)

    @override
    def chapter(self) -> Chapter:
        return invariance.chapter(self.summary)


@validated
@runs(METHOD)
def ablate(
    model: str | Model | Sequence[str | Model],
    tasks: str | Sequence[str],
    *,
    items: int | str = 100,
    unit: Unit | Sequence[Unit] = "block",
    layers: str | int | Sequence[int] = "all",
    factor: float | Sequence[float] = 0.0,
    revisions: str | Sequence[str] = (),
    temperature: float = 0.0,
    top_p: float = 1.0,
    stop_when: Literal["decided"] | None = None,
    effect: float | None = None,
    screen: bool = False,
    **options: Unpack[AnsweringOptions],
) -> AblationResult:
    """Switch off (or scale) one place after another and measure what each does to each task.

    Example:
        >>> result = lesion.ablate("bundled:llama-base", tasks=["primer:arithmetic"], items=100)
        >>> result.table[["layer", "accuracy", "critical"]]

    Raises:
        UsageError: a task, layer or number of items does not exist, or an argument cannot be what it is to be.
        LesionError: a model cannot be loaded, or the folder belongs to another study.
    """
    raise NotImplementedError  # `runs` does it
