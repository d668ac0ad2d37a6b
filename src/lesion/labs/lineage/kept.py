"""Kept answers: JSON Lines under a head that says who was asked what, written when all are there and read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from lesion.atomic import replace
from lesion.errors import LesionError

Row = TypeVar("Row", bound=Mapping[str, object])


def kept(path: Path, head: Mapping[str, object], count: int, make: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    """The rows of a file that is whole and has this head; else rows that are made now and written.

    Raises:
        LesionError: the file cannot be written.
    """
    try:
        first, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if first == json.loads(json.dumps(head)) and len(rows) == count:
            return rows
    except (OSError, ValueError):
        pass
    made = make()
    keep(path, "".join(f"{json.dumps(row)}\n" for row in (head, *made)))
    return made


def keep(path: Path, text: str) -> None:
    """Write a file and, where it is missing, its folder.

    Raises:
        LesionError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text)
    except OSError as error:
        raise LesionError(f"{path} cannot be written: {error.strerror or error}; give another --out.") from error
