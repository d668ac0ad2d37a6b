"""The kinds of study files: a layer study, or with `kind = "isolation"` the isolation of a skill."""

from __future__ import annotations

import tomllib
from pathlib import Path

from lesion.studies.isolation_study import IsolationStudy
from lesion.studies.questions import shipped
from lesion.studies.study import Study


def load_study(source: str | Path) -> Study | IsolationStudy:
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
    return IsolationStudy.load(source) if kind == "isolation" else Study.load(source)
