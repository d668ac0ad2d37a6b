"""Tuning as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.tuning.study import TuningStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.studies.tuning.api import TuningResult


class Tuning(Method[TuningStudy]):
    """Chosen blocks fine-tuned on a task."""

    kind = "tuning"
    study = TuningStudy
    command = "tune"
    help = "Fine-tune chosen blocks on a task and measure gains there and losses elsewhere."
    default_name = "tuning"
    kept = "What is trained and answered is kept in {folder}; the same command goes on from there."

    @override
    def run(
        self,
        study: TuningStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> TuningResult:
        from lesion.studies.tuning.api import TuningResult
        from lesion.studies.tuning.run import run_tuning

        outcome = run_tuning(study, folder, watcher=watcher, models=models, make_engine=make_engine)
        return TuningResult(outcome.folder, outcome.summary, outcome.model, outcome.trained, outcome.planned)

    @override
    def recall(self, folder: Path) -> TuningResult | None:
        from lesion.studies.tuning.api import TuningResult
        from lesion.studies.tuning.folder import recall_tuning

        summary = recall_tuning(folder)
        return None if summary is None else TuningResult(folder, summary, None)


METHOD = Tuning()
