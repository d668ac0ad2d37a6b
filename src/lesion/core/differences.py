"""In what two studies or recipes differ, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lesion.core.options import IN_IDENTITY, keys
from lesion.core.study_file import StudyFile
from lesion.core.values import Summary, read_summary
from lesion.errors import LesionError
from lesion.plain import short

_LONGEST = 160
"""A value that is longer, in characters, is cut."""


def differences(there: Mapping[str, object], here: Mapping[str, object], keys: Iterable[str]) -> str:
    """`items: 100 there, 200 here; …` for the keys whose values, as JSON has them, differ; empty where none does.

    Of a table, the keys in it: `decoding.top_p: 1.0 there, 0.9 here`.
    """
    return "; ".join(_differing(there, here, keys, ""))


def _differing(there: Mapping[str, object], here: Mapping[str, object], keys: Iterable[str], table: str) -> list[str]:
    words: list[str] = []
    for key in keys:
        theirs, ours = there.get(key), here.get(key)
        if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            words += _differing(theirs, ours, sorted(theirs.keys() | ours.keys()), f"{table}{key}.")
        elif theirs != ours:
            words.append(f"{table}{key}: {_text(theirs)} there, {_text(ours)} here")
    return words


def refuse_another(
    folder: Path,
    what: str,
    there: StudyFile | None,
    here: StudyFile,
    *,
    same: bool | None = None,
    compared: Iterable[str] = (),
    otherwise: str = "",
) -> None:
    """Refuse a folder of another study of one kind: its results would stand beside these, or be lost.

    `same` says whether they may share a folder, by default whether what all answers there share is the same; `compared`
    are the keys whose differences are named, by default those of the identity; `otherwise` is what differs where none
    of these does.
    """
    if there is None or (there.basis() == here.basis() if same is None else same):
        return
    shared = keys(type(here), IN_IDENTITY)
    names = compared or [name for name in type(here).model_fields if name in shared]
    theirs, ours = (study.model_dump(mode="json", by_alias=False) for study in (there, here))
    differing = differences(theirs, ours, names) or otherwise
    because = f" ({differing})" if differing else ""
    raise LesionError(
        f"{folder} holds another {what}{because}. Give another folder with --out, or run the study that was started"
        " there."
    )


def study_there(summary: type[Summary], folder: Path) -> Any:
    """The study whose summary lies in a folder; None without one, and where it is damaged: there is nothing to lose."""
    try:
        return getattr(read_summary(summary, folder, "run the same command again"), "study", None)
    except LesionError:
        return None


def _text(value: object) -> str:
    """A value as a person would list it: no brackets, and of a table what is set."""
    return "not set" if value is None else short(_listed(value), _LONGEST)


def _listed(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_listed(part) for part in value.values() if part is not None)
    return ", ".join(map(_listed, value)) if isinstance(value, list) else str(value)
