"""Running studies as tests do: a study, a folder, and models that are loaded already."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lesion.core.method import Method
from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.core.values import Summary
from lesion.edits.files.artefact import EditFile
from lesion.engines.transformers.engine import TransformersEngine
from lesion.report.blocks import Page
from lesion.report.values import Value
from lesion.studies.ablation.study import METHOD as ABLATION
from lesion.studies.drift.study import METHOD as DRIFT
from lesion.studies.isolation.report import EvaluationResult
from lesion.studies.isolation.run import run_evaluation as evaluate_files
from lesion.studies.isolation.study import METHOD as ISOLATION
from lesion.studies.isolation.study import EvaluationStudy
from lesion.studies.search.study import METHOD as SEARCH
from lesion.studies.truncation.study import METHOD as TRUNCATION
from lesion.studies.tuning.study import METHOD as TUNING
from lesion_labs.recall.result import RecallStudySummary
from lesion_labs.recall.study_file import METHOD as RECALL
from lesion_labs.recall.study_file import RecallStudy

V = TypeVar("V", bound=Value)


def _runner(method: Method) -> Callable[..., Any]:
    def run(study, folder, *, model=None, models=None, watcher=None, make_engine=None):
        models = {study.model.name: model} if model is not None else models
        return method.run(study, folder, watcher=watcher, make_engine=make_engine, models=models)

    return run


def _recaller(method: Method) -> Callable[[Path], Any]:
    def recall(folder):
        result = method.recall(folder)
        return None if result is None else result.summary

    return recall


def run_recall(study: RecallStudy, folder: Path) -> RecallStudySummary:
    """The summary of a study of the recall laboratory."""
    return RECALL.run(study, folder).summary


run_ablation, run_drift, run_isolation = _runner(ABLATION), _runner(DRIFT), _runner(ISOLATION)
run_truncation, run_tuning = _runner(TRUNCATION), _runner(TUNING)
run_search, recall_search = _runner(SEARCH), _recaller(SEARCH)
recall_drift, recall_truncation = _recaller(DRIFT), _recaller(TRUNCATION)


def run_evaluation(
    study: EvaluationStudy,
    files: Sequence[EditFile] | None,
    folder: Path,
    *,
    factors=(),
    model=None,
    watcher=None,
    make_engine=TransformersEngine,
    **options,
) -> EvaluationResult:
    """Evaluate edits that are read already, or those of the study, under options of it."""
    study = study.model_copy(update={"factor": tuple(factors), **options})
    run = Run.at(folder, "isolation", watcher, make_engine, {study.model.name: model} if model is not None else {})
    return evaluate_files(study, run, files)


def altered(value: V, /, **fields: Any) -> V:
    """A value with other values of some of its fields."""
    return type(value)(**{name: getattr(value, name) for name in type(value).model_fields} | fields)


def page_of(result_class: type[StudyResult], summary: Summary) -> Page:
    """The page of a summary that lies in no folder."""
    return result_class(Path("no-folder"), summary).page()
