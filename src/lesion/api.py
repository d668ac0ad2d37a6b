"""Study files from Python: what `lesion run` does, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lesion.arguments import validated
from lesion.engines.config import EngineChoice
from lesion.engines.engine import MakeEngine
from lesion.engines.opening import opened
from lesion.labs.recall.api import RecallResult
from lesion.labs.recall.study import run_recall
from lesion.labs.recall.study_file import RecallStudy
from lesion.progress import Watcher
from lesion.studies.ablation.api import AblationResult
from lesion.studies.ablation.run import run
from lesion.studies.ablation.study import Study
from lesion.studies.drift.api import DriftResult
from lesion.studies.drift.run import run_drift
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.api import IsolationResult
from lesion.studies.isolation.run import run_isolation
from lesion.studies.isolation.study import IsolationStudy
from lesion.studies.registry import AnyStudy, load_study
from lesion.studies.truncation.api import TruncationResult
from lesion.studies.truncation.run import run_truncation
from lesion.studies.truncation.study import TruncationStudy
from lesion.studies.tuning.api import TuningResult
from lesion.studies.tuning.run import run_tuning
from lesion.studies.tuning.study import TuningStudy


@validated
def study(
    source: str | Path | AnyStudy,
    out: str | Path,
    *,
    workers: EngineChoice | None = None,
    watcher: Watcher | None = None,
) -> AblationResult | IsolationResult | TruncationResult | TuningResult | DriftResult | RecallResult:
    """Run a study file of any kind, or one shipped with the package, into a folder.

    Args:
        source: the file, the name of a shipped study, or the study itself.
        out: the folder.
        workers: on what it runs; the engine is the study's own.
        watcher: is told how it goes.

    Example:
        >>> lesion.study("demo", out="demo").report()

    Raises:
        UsageError: the file is wrong, or names what does not exist.
        LesionError: as for `ablate`.
    """
    asked = source if isinstance(source, AnyStudy) else load_study(source)
    if isinstance(asked, RecallStudy):
        return RecallResult(Path(out), run_recall(asked, Path(out), watcher))
    own = getattr(asked, "engine", None) or "transformers"
    with opened(replace(workers or EngineChoice(), engine=own), watcher) as make_engine:
        return _run(asked, Path(out), watcher, make_engine)


def _run(
    asked: AnyStudy, out: Path, watcher: Watcher | None, make_engine: MakeEngine
) -> AblationResult | IsolationResult | TruncationResult | TuningResult | DriftResult:
    if isinstance(asked, TruncationStudy):
        searched = run_truncation(asked, out, watcher=watcher, make_engine=make_engine)
        return TruncationResult(searched.folder, searched.summary, searched.asked)
    if isinstance(asked, TuningStudy):
        tuned = run_tuning(asked, out, watcher=watcher, make_engine=make_engine)
        return TuningResult(tuned.folder, tuned.summary, tuned.model)
    if isinstance(asked, DriftStudy):
        drifted = run_drift(asked, out, watcher=watcher, make_engine=make_engine)
        return DriftResult(drifted.folder, drifted.summary, drifted.asked)
    if isinstance(asked, IsolationStudy):
        isolated = run_isolation(asked, out, watcher=watcher, make_engine=make_engine)
        return IsolationResult(isolated.folder, isolated.summary, isolated.asked)
    assert isinstance(asked, Study)
    outcome = run(asked, out, watcher=watcher, make_engine=make_engine)
    return AblationResult(outcome.folder, outcome.summary, outcome.asked)
