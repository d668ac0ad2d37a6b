"""The methods that there are: those of this package, and those that other packages register.

A package from outside names its `Method` under the entry-point group `lesion.studies`:

    [project.entry-points."lesion.studies"]
    logit-lens = "lesion_logit_lens:METHOD"
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lesion.core.method import Method
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile, study_file
from lesion.errors import LesionError, UsageError, nearest
from lesion.files import read_toml
from lesion.plain import short

GROUP = "lesion.studies"
# In the order in which a folder is tried; a layer study's is whatever has answers and is no other's.
_OWN = (
    "lesion.studies.tuning.method",
    "lesion.studies.isolation.method",
    "lesion.studies.truncation.method",
    "lesion.studies.drift.method",
    "lesion.labs.recall.method",
    "lesion.labs.memory.method",
    "lesion.studies.ablation.method",
)


def methods() -> dict[str | None, Method[Any]]:
    """Every method by the `kind` of its study files; None: layer studies.

    Raises:
        LesionError: a package registers what is no method, cannot be imported, or has the kind of another.
    """
    known: dict[str | None, Method[Any]] = {}
    for entry in entry_points(group=GROUP):
        try:
            method = entry.load()
        except Exception as error:
            raise LesionError(
                f"The method '{entry.name}' of another package ({entry.value}) cannot be imported ({error}); repair or"
                " uninstall that package."
            ) from error
        if not isinstance(method, Method) or method.kind is None or method.kind in known:
            fault = "is no lesion.core.method.Method with a kind of its own"
            raise LesionError(f"The method '{entry.name}' of another package ({entry.value}) {fault}; uninstall it.")
        known[method.kind] = method
    for module in _OWN:
        method = import_module(module).METHOD
        if method.kind in known:
            raise LesionError(f"Another package registers the method '{method.kind}', which is lesion's; uninstall it.")
        known[method.kind] = method
    return known


def method_of(study: StudyFile) -> Method[Any]:
    """The method of a study.

    Raises:
        UsageError: no method has studies of this class.
    """
    for method in methods().values():
        if type(study) is method.study:
            return method
    raise UsageError(f"No method runs a {type(study).__name__}.")


def recall(folder: Path) -> StudyResult:
    """The result of a folder as far as its study has got, whichever method's it is.

    Raises:
        LesionError: there is no study in the folder, or it is damaged.
    """
    for method in methods().values():
        result = method.recall(folder)
        if result is not None:
            return result
    raise LesionError(f"There is no study in {folder}: give the folder that a study was run into.")


def load_study(source: str | Path) -> StudyFile:
    """The study of a file, or one shipped with the package by its name, of whichever kind the file says it is.

    Raises:
        UsageError: there is neither, or the file is wrong.
        LesionError: the file cannot be read.
    """
    file = study_file(source)
    values = read_toml(file)
    kind, known = values.get("kind"), methods()
    if kind is not None and (not isinstance(kind, str) or kind not in known):
        kinds = [name for name in known if name is not None]
        near = nearest(kind, kinds) if isinstance(kind, str) else ""
        raise UsageError(
            f"{file}: there is no kind of study {short(kind)}{near}. There are {', '.join(kinds)}; a layer study has no"
            " kind."
        )
    study: StudyFile = known[kind].study.load(source)
    return study
