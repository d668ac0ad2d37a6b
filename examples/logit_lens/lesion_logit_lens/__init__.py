"""A logit lens as a study of lesion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lesion.core.method import Method
from lesion.core.result import StudyResult, progress_line
from lesion.core.values import read_summary
from lesion_logit_lens.study import LensStudy, LensSummary, run_lens

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.report.drawing import Drawing


@dataclass(frozen=True)
class LensResult(StudyResult[LensSummary]):
    """What the lens showed; `evaluated` answers of `planned` were given in this run."""

    evaluated: int = 0
    planned: int = 0

    @property
    def table(self) -> pd.DataFrame:
        """A row per model, task and layer, as `logit-lens.csv`."""
        from lesion_logit_lens.report import table

        return table(self.summary).frame

    def plot(self) -> Drawing:
        """The chart, for a notebook."""
        from lesion.report.drawing import Drawing
        from lesion_logit_lens.report import figure

        return Drawing.of(figure(self.summary))

    def report(self) -> Path:
        """Write the page, the figure and the table into the folder."""
        from lesion.report.publishing import publish
        from lesion_logit_lens.report import page

        return publish(self.folder, "logit-lens", page(self.summary))

    def text(self) -> RenderableType:
        """The table for a terminal."""
        from lesion_logit_lens.report import table

        return table(self.summary).terminal()

    def done(self) -> list[str]:
        """How many answers this run gave."""
        return [progress_line("evaluated", self.evaluated, self.planned, " answers")] if self.planned else []


class LogitLens(Method[LensStudy]):
    """What a model would say after each of its blocks."""

    kind = "logit-lens"
    study = LensStudy
    command = "logit-lens"
    help = "Read the answers that a model would give after each of its blocks."
    default_name = "logit-lens"

    def run(
        self,
        study: LensStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> LensResult:
        """Run the study into a folder."""
        return LensResult(folder, *run_lens(study, folder, watcher, make_engine, models))

    def recall(self, folder: Path) -> LensResult | None:
        """The result in a folder."""
        summary: Any = read_summary(LensSummary, folder, "run `lesion logit-lens` on it again")
        return None if summary is None else LensResult(folder, summary)


METHOD = LogitLens()
