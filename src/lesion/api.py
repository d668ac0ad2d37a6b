"""Study files from Python: what `lesion run` does, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lesion.arguments import validated
from lesion.bar import watching
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile
from lesion.engines.config import EngineChoice, opened
from lesion.progress import Watcher
from lesion.registry import load_study, method_of, recall


@validated
def study(
    source: str | Path | StudyFile,
    out: str | Path,
    *,
    workers: EngineChoice | None = None,
    progress: bool | None = None,
    watcher: Watcher | None = None,
) -> StudyResult:
    """Run a study file of any kind, or one shipped with the package, into a folder.

    Args:
        source: the file, the name of a shipped study, or the study itself.
        out: the folder.
        workers: on what it runs; the engine is the study's own.
        progress: True shows a bar and notes, False nothing; by default a notebook and a terminal show them.
        watcher: is told how it goes, in place of a bar.

    Returns:
        The result of its kind of study: an `AblationResult`, a `DriftResult`, …

    Example:
        >>> lesion.study("demo", out="demo").report()

    Raises:
        UsageError: the file is wrong, or names what does not exist.
        LesionError: as for `ablate`.
    """
    plan = source if isinstance(source, StudyFile) else load_study(source)
    method = method_of(plan)
    with watching(watcher, progress) as reporter:
        if not method.distributed:
            return method.run(plan, Path(out), watcher=reporter)
        engine = getattr(plan, "engine", None) or "transformers"
        with opened(replace(workers or EngineChoice(), engine=engine), reporter) as make_engine:
            return method.run(plan, Path(out), watcher=reporter, make_engine=make_engine)


@validated
def result(folder: str | Path) -> StudyResult:
    """The result of a folder that a study was run into, as far as it has got: numbers, answers, report.

    Returns:
        The result of its kind of study: an `AblationResult`, a `DriftResult`, …

    Example:
        >>> lesion.result("demo/layers").broken("3×0", task="primer:arithmetic")

    Raises:
        LesionError: there is no study in the folder, it is damaged, or it has no result yet.
    """
    return recall(Path(folder))
