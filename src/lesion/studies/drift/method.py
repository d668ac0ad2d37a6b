"""Drift as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.drift.study import DriftStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.studies.drift.api import DriftResult


class Drift(Method[DriftStudy]):
    """How far tokens leave their first clusters."""

    kind = "drift"
    study = DriftStudy
    command = "drift"
    help = "Cluster the hidden states of every layer and measure how far tokens leave their first clusters."
    default_name = "drift"
    kept = "Every solution and clustering so far is kept in {folder}; the same command goes on."

    @override
    def run(
        self,
        study: DriftStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> DriftResult:
        from lesion.studies.drift.api import DriftResult
        from lesion.studies.drift.run import run_drift

        outcome = run_drift(study, folder, watcher=watcher, models=models, make_engine=make_engine)
        return DriftResult(outcome.folder, outcome.summary, outcome.asked, outcome.measured, outcome.planned)

    @override
    def recall(self, folder: Path) -> DriftResult | None:
        from lesion.studies.drift.api import DriftResult
        from lesion.studies.drift.run import recall_drift

        summary = recall_drift(folder)
        return None if summary is None else DriftResult(folder, summary)


METHOD = Drift()
