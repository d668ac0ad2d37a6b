"""What the standard library's TOML parser leaves out: on which line a key stands, errors that name it, and writing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from lesion.core.options import must_be
from lesion.errors import nearest
from lesion.plain import short

Path = tuple[str | int, ...]

# Ends of a list, of a list in a list, and of a list in a table in a list.
_CLOSINGS = ("\n]", "\n]]", "\n]}]")

BUDGET = 2_000_000
"""So many characters are parsed at most to find lines, in about two seconds."""


def holds(document: object, path: Path) -> bool:
    """Whether a parsed document has something at a path of keys and list indices."""
    for part in path:
        known = isinstance(document, dict) and part in document
        if not known and not (isinstance(document, list) and isinstance(part, int) and part < len(document)):
            return False
        document = document[part]  # type: ignore[index]
    return True


class Lines:
    """On which line of a valid TOML text each key stands.

    The parser itself is asked: a beginning of the text that parses ends with a whole statement, and the first
    that holds a key ends with the statement that set it. So strings, comments, dotted keys and tables need no
    second reader that might read them differently. That takes time that grows with the square of the text, so of a very
    long text no lines are told.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._document = tomllib.loads(text)
        self._left = BUDGET
        self._known: list[tuple[int, int, dict[str, Any]]] = []
        self._further = self._read()

    def _parsed(self, text: str) -> dict[str, Any] | None:
        """What the text holds; None where it is not TOML, or where enough has been parsed."""
        self._left -= len(text)
        if self._left < 0:
            return None
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError):
            return None

    def _statements(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """For each statement: its first and last line, from 0, and the document up to its end."""
        yield from self._known
        for statement in self._further:
            self._known.append(statement)
            yield statement

    def _read(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        start = 0
        for end, line in enumerate(self._lines):
            if self._left < 0:
                return
            if start == end and (not line.strip() or line.lstrip().startswith("#")):
                start = end + 1
                continue
            document = self._parsed("\n".join(self._lines[: end + 1]))
            if document is not None:
                yield start, end, document
                start = end + 1

    def of(self, path: Path) -> int | None:
        """The line, from 1, of the longest part of the path that the text has; None when it has nothing."""
        while path and not holds(self._document, path):
            path = path[:-1]
        if not path:
            return None
        for start, end, document in self._statements():
            if holds(document, path):
                # In a list over several lines an entry has its own: close the list early to see which.
                is_list = False
                for line in range(start, end):
                    begun = "\n".join(self._lines[: line + 1])
                    closed = next(filter(None, (self._parsed(begun + closing) for closing in _CLOSINGS)), None)
                    is_list |= closed is not None
                    if holds(closed, path):
                        return line + 1
                return (end if is_list else start) + 1
        return None


def dump(document: Mapping[str, Any]) -> str:
    """The document as TOML: plain keys first, then each mapping as a table; those within lists stand inline.

    Values are strings, numbers, booleans, sequences and mappings; None entries are left out.
    """
    plain = [
        f"{_key(key)} = {_value(value)}\n"
        for key, value in document.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    tables = [f"\n[{_key(key)}]\n{dump(value)}" for key, value in document.items() if isinstance(value, Mapping)]
    return "".join(plain + tables)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _value(key)


def _value(value: object) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML basic string but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    raise TypeError(f"TOML has no form for {type(value).__name__}")


LISTED = 20
"""At most so many faults are told, with how many more there are."""


def explain(error: ValidationError, root: type[BaseModel], origin: str, lines: Lines | None) -> list[str]:
    """Every fault that pydantic found, one line each, in the order of the file, below a line that counts them.

    A single fault is one line in all; of very many, the first `LISTED` are told.
    """
    faults: dict[tuple[int, Path], str] = {}
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


def _resolve(root: type[BaseModel], location: tuple[str | int, ...]) -> tuple[Path, type[BaseModel]]:
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
