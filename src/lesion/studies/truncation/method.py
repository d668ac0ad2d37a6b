"""Truncation as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.truncation.study import TruncationStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.studies.truncation.api import TruncationResult


class Truncation(Method[TruncationStudy]):
    """Parts of spectra removed in search of a better model."""

    kind = "truncation"
    study = TruncationStudy
    command = "truncate"
    help = (
        "Search for a part of a matrix whose removal improves a model, chosen on some items and tested on the others."
    )
    default_name = "truncation"

    @override
    def run(
        self,
        study: TruncationStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> TruncationResult:
        from lesion.studies.truncation.api import TruncationResult
        from lesion.studies.truncation.run import run_truncation

        loaded = next(iter((models or {}).values()), None)
        outcome = run_truncation(study, folder, watcher=watcher, model=loaded, make_engine=make_engine)
        return TruncationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)

    @override
    def recall(self, folder: Path) -> TruncationResult | None:
        from lesion.studies.truncation.api import TruncationResult
        from lesion.studies.truncation.run import recall_truncation

        summary = recall_truncation(folder)
        return None if summary is None else TruncationResult(folder, summary)


METHOD = Truncation()
