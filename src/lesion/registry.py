"""The methods that there are: those of this package, and those that other packages register.

A package from outside names its `Method` under the entry-point group `lesion.studies`, and further commands, as a typer
application that becomes `lesion NAME …`, under `lesion.commands`:

    [project.entry-points."lesion.studies"]
    logit-lens = "lesion_logit_lens:METHOD"
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from typer import Typer

from lesion.core.method import Method
from lesion.core.result import StudyResult
from lesion.core.study_file import StudyFile, study_file
from lesion.errors import LesionError, UsageError, nearest
from lesion.files import read_toml
from lesion.outputs import kind_of
from lesion.plain import short

GROUP = "lesion.studies"
COMMANDS = "lesion.commands"
_OWN = (
    *("check", "ablation", "isolation", "truncation", "search", "drift", "tuning"),
    *("effects", "interaction", "patching", "overlay", "comparison"),
)
"""The rooms of this package's studies, in the order in which their commands are listed."""


def _own_methods() -> dict[str | None, Method[Any]]:
    modules = [import_module(f"lesion.studies.{room}.study") for room in _OWN]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Method)]
    return {method.kind: method for method in declared}


def methods() -> dict[str | None, Method[Any]]:
    """Every method by the `kind` of its study files; None: layer studies. Those of this package come first.

    A package whose method cannot be used takes nothing else with it: see `faults`.
    """
    known = _own_methods()
    for entry in entry_points(group=GROUP):
        method = _loaded(entry)
        if isinstance(method, Method) and _fault(method, known) is None:
            known[method.kind] = method
    return known


def command_groups() -> dict[str, Typer]:
    """The groups of commands that packages register, by the word that is typed for each: `lab` of `lesion lab`."""
    loaded = {entry.name: _loaded(entry) for entry in entry_points(group=COMMANDS)}
    return {name: group for name, group in loaded.items() if isinstance(group, Typer)}


def faults() -> list[str]:
    """What is wrong with what other packages register, a sentence each; it is left out of `methods` and commands."""
    known = _own_methods()
    complaints = []
    for entry in (*entry_points(group=GROUP), *entry_points(group=COMMANDS)):
        loaded = _loaded(entry)
        if isinstance(loaded, Exception):
            fault: str | None = f"cannot be imported ({loaded})"
        elif entry.group == COMMANDS:
            fault = None if isinstance(loaded, Typer) else "is no typer.Typer"
        else:
            fault = _fault(loaded, known)
        if fault is None:
            known |= {loaded.kind: loaded} if entry.group == GROUP else {}
        else:
            what = "command" if entry.group == COMMANDS else "method"
            who = f"The {what} '{entry.name}' of another package ({entry.value})"
            complaints.append(f"{who} {fault}; repair or uninstall that package.")
    return complaints


def _loaded(entry: Any) -> Any:
    """What an entry point names, or what went wrong as it was imported."""
    try:
        return entry.load()
    except Exception as error:
        return error


def _fault(method: object, known: dict[str | None, Method[Any]]) -> str | None:
    if not isinstance(method, Method):
        return "is no lesion.core.method.Method"
    if method.kind is None or method.kind in known:
        return f"has the kind {method.kind!r}, which is that of another method"
    if method.command and method.command in {other.command for other in known.values()}:
        return f"has the command '{method.command}', which is that of another method"
    return None


def method_of(study: StudyFile) -> Method[Any]:
    """The method of a study."""
    for method in methods().values():
        if type(study) is method.study:
            return method
    raise UsageError(f"No method runs a {type(study).__name__}.")


def recall(folder: Path) -> StudyResult:
    """The result of a folder as far as its study has got: of the method that the folder belongs to."""
    kind, known = kind_of(folder), methods()
    if kind == "demo":
        raise LesionError(
            f"{folder} is a demo of several studies: `lesion demo --out {folder}` goes on with it and writes its page;"
            f" each study has a folder of its own in it, such as {folder / 'layers'}."
        )
    of_kind = [method for method in known.values() if method.folder_kind == kind]
    # A folder without a note is tried as each; a layer study's is what is no other's.
    for method in of_kind or sorted(known.values(), key=lambda method: method.kind is None):
        result = method.recall(folder)
        if result is not None:
            return result
    raise LesionError(f"There is no study in {folder}: give the folder that a study was run into.")


def load_study(source: str | Path) -> StudyFile:
    """The study of a file, or one shipped with the package by its name, of whichever kind the file says it is."""
    file = study_file(source)
    values = read_toml(file)
    kind, known = values.get("kind"), methods()
    if kind is not None and (not isinstance(kind, str) or kind not in known):
        raise UsageError(f"{file}: {_unknown(kind, known)}")
    study: StudyFile = _likely(values, known).study.load(source) if kind is None else known[kind].study.load(source)
    return study


def _unknown(kind: object, known: dict[str | None, Method[Any]]) -> str:
    kinds = [name for name in known if name is not None]
    if kind == "layers":
        return "a layer study has no kind; leave `kind` out."
    near = nearest(kind, kinds) if isinstance(kind, str) else ""
    there = f"There are {', '.join(kinds)}; a layer study has no kind."
    return " ".join([f"there is no kind of study '{short(kind)}'{near}. {there}", *faults()])


def _likely(values: dict[str, Any], known: dict[str | None, Method[Any]]) -> Method[Any]:
    """The layer study's method, for a file without a kind."""
    layers = known[None]
    strange = set(values) - set(layers.study.model_fields)
    others = {name: set(method.study.model_fields) for name, method in known.items() if name is not None}
    fitting = [name for name, fields in others.items() if strange and set(values) <= fields]
    if len(fitting) == 1:
        near = {key: get_close_matches(key, layers.study.model_fields, n=1, cutoff=0.8) for key in strange}
        meant = "".join(f", or write {names[0]} for {key}" for key, names in near.items() if names)
        raise UsageError(
            f'This study has no kind, and a layer study has no {", ".join(sorted(strange))}; say kind = "{fitting[0]}"'
            f"{meant}."
        )
    return layers
