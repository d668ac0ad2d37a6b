"""Trainings of the recall laboratory as a method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.labs.recall.study_file import RecallStudy

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.labs.recall.api import RecallResult
    from lesion.models.load import Model
    from lesion.progress import Watcher


class Recall(Method[RecallStudy]):
    """Small transformers trained on noisy in-context recall, each truncated beside controls."""

    kind = "recall"
    study = RecallStudy
    kept = "What is trained is kept in {folder}; the same command goes on from there."
    distributed = False

    @property
    @override
    def folder_kind(self) -> str:
        return "recall-sweep"

    @override
    def run(
        self,
        study: RecallStudy,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> RecallResult:
        from lesion.labs.recall.api import RecallResult
        from lesion.labs.recall.study import run_recall

        return RecallResult(folder, run_recall(study, folder, watcher))

    @override
    def recall(self, folder: Path) -> RecallResult | None:
        from lesion.labs.recall.api import recall

        return recall(Path(folder))


METHOD = Recall()
