"""Layer ablation as a method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.progress import Watcher
    from lesion.studies.ablation.api import AblationResult


class Ablation(Method[Study]):
    """One place after another switched off, and what each task loses."""

    kind = None
    study = Study
    kept = (
        "Every answer so far is kept in {folder}; the same command goes on from there, and `lesion report {folder}`"
        " shows what there is."
    )

    @override
    def run(self, study: Study, folder: Path, watcher: Watcher | None, make_engine: MakeEngine) -> AblationResult:
        from lesion.studies.ablation.api import AblationResult
        from lesion.studies.ablation.run import run

        outcome = run(study, folder, watcher=watcher, make_engine=make_engine)
        return AblationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)

    @override
    def recall(self, folder: Path) -> AblationResult | None:
        from lesion.studies.ablation.api import AblationResult
        from lesion.studies.ablation.run import recall

        return AblationResult(folder, recall(folder)[1])


METHOD = Ablation()
