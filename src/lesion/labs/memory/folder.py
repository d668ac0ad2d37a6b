"""The folder of a memory: one recipe's, held by one process at a time, and never another command's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lesion.core.lock import FolderLock
from lesion.errors import LesionError, UsageError
from lesion.files import stored_object
from lesion.labs.memory.recipe import Recipe

SUMMARY, REPORT = "summary.json", "report.html"
LAB = "memory"
_NEEDED = ("noise", "recipe", "full", "truncated", "training", "sizes", "first_step")


def summary_of(folder: Path) -> dict[str, Any] | None:
    """The `summary.json` of the memory lab in a folder; None where there is none.

    Raises:
        LesionError: it says that it is of this lab, and is not whole.
    """
    path = Path(folder) / SUMMARY
    try:
        found = stored_object(path, "")
    except LesionError:
        return None
    if found is None or found.get("lab") != LAB:
        return None
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise LesionError(
            f"{path} is of lab memory but has no {', '.join(missing)}; delete it and give the command that made it"
            " again."
        )
    return found


def document(recipe: Recipe) -> dict[str, Any]:
    """A recipe as `summary.json` has it."""
    return asdict(recipe) | {"inputs": recipe.number}


@contextmanager
def claimed(folder: Path, recipe: Recipe) -> Iterator[dict[str, Any] | None]:
    """Hold the folder of a recipe while it is written; gives the summary that is there already, or None.

    Args:
        folder: made if it is not there.

    Raises:
        UsageError: the folder holds another recipe's memory, or something else.
        LesionError: another process writes in it, or it cannot be written.
    """
    folder = Path(folder)
    lock = FolderLock(folder, LAB)
    try:
        found = summary_of(folder)
        if found is not None:
            _refuse_another(folder, found["recipe"], document(recipe))
        yield found
    finally:
        lock.release()


def _refuse_another(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    differing = [f"{key} {there.get(key)} instead of {asked[key]}" for key in asked if there.get(key) != asked[key]]
    if differing:
        raise UsageError(
            f"{folder} holds a memory of another recipe ({', '.join(differing)}); give another folder with --out, or"
            " delete that one."
        )
