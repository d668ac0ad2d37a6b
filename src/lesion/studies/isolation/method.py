"""Isolation as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.isolation.study import IsolationStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.studies.isolation.api import IsolationResult


class Isolation(Method[IsolationStudy]):
    """The weights that a skill needs and its controls do not."""

    kind = "isolation"
    study = IsolationStudy
    command = "isolate"
    help = "Find the weights that a skill needs and its controls do not, with forward passes only; write them as edits."
    default_name = "isolation"
    kept = "What was observed and answered so far is kept in {folder}; the same command goes on."

    @override
    def run(
        self,
        study: IsolationStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> IsolationResult:
        from lesion.studies.isolation.api import IsolationResult
        from lesion.studies.isolation.run import run_isolation

        loaded = next(iter((models or {}).values()), None)
        outcome = run_isolation(study, folder, watcher=watcher, model=loaded, make_engine=make_engine)
        return IsolationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)

    @override
    def recall(self, folder: Path) -> IsolationResult | None:
        from lesion.studies.isolation.api import IsolationResult
        from lesion.studies.isolation.run import recall_isolation

        recalled = recall_isolation(folder)
        return None if recalled is None else IsolationResult(folder, recalled.summary)


METHOD = Isolation()
