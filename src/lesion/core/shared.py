"""What a fetched folder says of itself: `shared.json`, with the hash of every file. Without texts no study goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lesion.errors import LesionError
from lesion.files import stored_object

FILE = "shared.json"
FORM = "lesion share"


def read(folder: Path, repository: str = "") -> dict[str, Any] | None:
    """What a folder that `lesion fetch` made says of itself; None of any other.

    `files` are SHA-256 by name; `texts`: whether questions and answers are in; `renamed`: whether models or tasks had
    names that were no one else's business. `repository`: the one of the hub from which the file was just read.
    """
    what = f"{FILE} of {repository}" if repository else str(folder / FILE)
    advice = "ask its owner to delete the repository and push again" if repository else "fetch the study again"
    try:
        stored = stored_object(folder / FILE, advice)
    except LesionError as error:
        raise LesionError(str(error).replace(str(folder / FILE), what)) from error
    form = None if stored is None else stored.get("form")
    if str(form).startswith(f"{FORM} "):
        raise LesionError(f"{what} was written by a newer lesion; update lesion.")
    if stored is not None and form != FORM:
        raise LesionError(f"{what} was not written by lesion; {advice}.")
    return stored


def goes_on(folder: Path) -> bool:
    """Whether a folder has what a run continues from."""
    stored = read(folder)
    return stored is None or bool(stored.get("texts") and not stored.get("renamed"))


def refuse_going_on(folder: Path) -> None:
    """Refuse to run a study in a folder that was shared without what a run has to continue from."""
    if goes_on(folder):
        return
    stored = read(folder) or {}
    missing = "under other names of its models or tasks" if stored.get("texts") else "without questions and answers"
    raise LesionError(
        f"{folder} was shared {missing}: `lesion report` and `lesion compare` read it, and no study goes on there. Run"
        f" {folder / 'study.toml'} into another folder (--out)."
    )
