"""Layer ablation as a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from lesion.core.method import Method
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher
    from lesion.studies.ablation.api import AblationResult


class Ablation(Method[Study]):
    """One place after another switched off, and what each task loses."""

    kind = None
    study = Study
    command = "ablate"
    help = "Ablate one block at a time and measure, with intervals, what each task loses."
    default_name = "ablation"
    needs_out = False
    kept = (
        "Every answer so far is kept in {folder}; the same command goes on from there, and `lesion report {folder}`"
        " shows what there is."
    )

    @override
    def expanded(self, options: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
        from lesion.studies.ablation.invariance.revisions import over_time

        wanted = options.pop("revisions", None)
        if not wanted:
            return options
        given = options["models"]
        models, notes = over_time([given] if isinstance(given, str) else given, wanted)
        for text in notes:
            note(text)
        return {**options, "models": models}

    @override
    def run(
        self,
        study: Study,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> AblationResult:
        from lesion.studies.ablation.api import AblationResult
        from lesion.studies.ablation.run import run

        outcome = run(study, folder, watcher=watcher, models=models, make_engine=make_engine)
        return AblationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)

    @override
    def recall(self, folder: Path) -> AblationResult | None:
        from lesion.studies.ablation.api import AblationResult
        from lesion.studies.ablation.run import recall

        return AblationResult(folder, recall(folder)[1])


METHOD = Ablation()
