"""The kinds of study files: layers, an isolation, a search for a truncation, a tuning, a drift, or recall trainings."""

from __future__ import annotations

import tomllib
from pathlib import Path

from lesion.studies.drift_study import DriftStudy
from lesion.studies.isolation_study import IsolationStudy
from lesion.studies.questions import shipped
from lesion.studies.recall_study import RecallStudy
from lesion.studies.study import Study
from lesion.studies.truncation_study import TruncationStudy
from lesion.studies.tuning_study import TuningStudy

AnyStudy = Study | IsolationStudy | TruncationStudy | TuningStudy | DriftStudy | RecallStudy
KINDS: dict[str, type[IsolationStudy | TruncationStudy | TuningStudy | DriftStudy | RecallStudy]] = {
    "isolation": IsolationStudy,
    "truncation": TruncationStudy,
    "tuning": TuningStudy,
    "drift": DriftStudy,
    "recall": RecallStudy,
}


def load_study(source: str | Path) -> AnyStudy:
    """The study of a file, or one shipped with the package by its name, of whichever kind the file says it is.

    Raises:
        UsageError: there is neither, or the file is wrong.
        LesionError: the file cannot be read.
    """
    file = Path(source)
    if not file.is_file():
        file = shipped().get(str(source), file)
    try:
        kind = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("kind")
    except (OSError, ValueError, RecursionError):
        kind = None  # what is wrong with the file, the study itself says best
    return KINDS[kind].load(source) if kind in KINDS else Study.load(source)
