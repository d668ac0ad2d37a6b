"""The kinds of study files: layers, an isolation, a search for a truncation, a tuning, a drift, or recall trainings."""

from __future__ import annotations

from pathlib import Path

from lesion.core.study_file import study_file
from lesion.errors import UsageError, nearest
from lesion.files import read_toml
from lesion.labs.recall.study_file import RecallStudy
from lesion.plain import short
from lesion.studies.ablation.study import Study
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.study import IsolationStudy
from lesion.studies.truncation.study import TruncationStudy
from lesion.studies.tuning.study import TuningStudy

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
    file = study_file(source)
    values = read_toml(file)
    kind = values.get("kind")
    if kind is None:
        return Study.load(source)
    if not isinstance(kind, str) or kind not in KINDS:
        near = nearest(kind, KINDS) if isinstance(kind, str) else ""
        raise UsageError(
            f"{file}: there is no kind of study {short(kind)}{near}. There are {', '.join(KINDS)}; a layer study has no"
            " kind."
        )
    return KINDS[kind].load(source)
