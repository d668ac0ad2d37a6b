"""What the standard library's TOML parser leaves out: on which line a key stands, and writing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
