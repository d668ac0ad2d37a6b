"""In what two studies or recipes differ, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

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


def study_differences(there: BaseModel, here: BaseModel, keys: Iterable[str]) -> str:
    """The `differences` of two studies in some of their keys."""
    return differences(there.model_dump(mode="json"), here.model_dump(mode="json"), keys)


def _text(value: object) -> str:
    """A value as a person would list it: no brackets, and of a table what is set."""
    return "not set" if value is None else short(_listed(value), _LONGEST)


def _listed(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_listed(part) for part in value.values() if part is not None)
    return ", ".join(map(_listed, value)) if isinstance(value, list) else str(value)
