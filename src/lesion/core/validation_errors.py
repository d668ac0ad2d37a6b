"""What is wrong with a study file, all of it at once, in words: line, key, and what would be right."""

from __future__ import annotations

import json
from typing import get_args

from pydantic import BaseModel, ValidationError

from lesion.core.options import must_be
from lesion.core.toml import Lines
from lesion.core.toml import Path as KeyPath
from lesion.errors import nearest
from lesion.plain import short

LISTED = 20
"""At most so many faults are told, with how many more there are."""


def explain(error: ValidationError, root: type[BaseModel], origin: str, lines: Lines | None) -> list[str]:
    """Every fault that pydantic found, one line each, in the order of the file, below a line that counts them.

    A single fault is one line in all; of very many, the first `LISTED` are told.
    """
    faults: dict[tuple[int, KeyPath], str] = {}
    details = error.errors(include_url=False)
    for detail in details[:LISTED]:
        path, table = _resolve(root, detail["loc"])
        line = (lines.of(path) if lines else None) or 0
        key = ".".join(part for part in path if isinstance(part, str))
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        field = table.model_fields.get(name)
        expected = must_be(field) if field else ""
        if detail["type"] == "extra_forbidden":
            text = f"there is no key '{short(name)}'{_instead(name, table, root)}."
        elif detail["type"] == "missing":
            text = f"{key} is missing; give {expected}."
        elif detail["type"] == "value_error":
            text = (f"{key}: " if key else "") + short(str(detail["ctx"]["error"]), 300)
        else:
            text = f"{key} must be {expected}, not {_shown(detail['input'])}."
        # The branches of a union each complain about the same value: once is enough.
        faults.setdefault((line, path), text)
    # Of a word or a table, where a table was given: what is wrong within it says more.
    for line, path in list(faults):
        if any(path == other[: len(path)] and path != other for _, other in faults):
            del faults[line, path]
    sentences = [
        (f"line {line}: " if line else "") + text
        for (line, _), text in sorted(faults.items(), key=lambda fault: fault[0][0])
    ]
    more = len(details) - LISTED
    if len(sentences) == 1 and more <= 0:
        return [f"{origin}{',' if sentences[0].startswith('line ') else ':'} {sentences[0]}"]
    rest = [f"and {more:,} more."] if more > 0 else []
    return [f"{origin} has {len(sentences) + max(more, 0):,} faults:", *sentences, *rest]


def _resolve(root: type[BaseModel], location: tuple[str | int, ...]) -> tuple[KeyPath, type[BaseModel]]:
    """The keys and entries in pydantic's location, and the class of the table that its last key stands in.

    Behind the key pydantic appends which branch of a union was tried; that says nothing to the reader.
    """
    path: list[str | int] = []
    table = root
    inside: type[BaseModel] | None = root
    for part in location:
        if isinstance(part, str):
            if inside is None or part.startswith("literal["):
                break
            if part == inside.__name__:
                continue
            table = inside
            inside = _table(table.model_fields[part].annotation) if part in table.model_fields else None
        path.append(part)
    return tuple(path), table


def _table(annotation: object) -> type[BaseModel] | None:
    """The class of the tables that a field holds, if it holds any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for argument in get_args(annotation) if (table := _table(argument))), None)


def _instead(key: str, table: type[BaseModel], root: type[BaseModel]) -> str:
    """What was probably meant by an unknown key: its right place, the nearest key, or the list of keys."""
    if table is not root and key in root.model_fields:
        return " in this table: it belongs above the first [table]"
    for name, field in root.model_fields.items():
        inside = None if field.is_required() else _table(field.annotation)
        if table is root and inside and key in inside.model_fields:
            return f" here: it belongs in [{name}]"
    return nearest(key[:80], table.model_fields, limit=1) or f"; valid here: {', '.join(table.model_fields)}"


def _shown(value: object, limit: int = 60) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError, TypeError):
        return short(value, limit)
    return short(text, limit)
