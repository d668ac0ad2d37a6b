"""Numbers as people type them on a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lesion.errors import UsageError

Number = TypeVar("Number", int, float)


def numbers(text: str, kind: Callable[[str], Number], option: str) -> list[Number]:
    """Numbers by commas.

    Raises:
        UsageError: something between the commas is not a number.
    """
    found: list[Any] = []
    for piece in text.split(","):
        try:
            found.append(kind(piece.strip()))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise UsageError(f"{option} takes {what} by commas; '{piece.strip()}' is none.") from None
    return found


def whole(text: str) -> int | str:
    """Digits as a number; anything else as it is, for the study's own validation to judge."""
    try:
        return int(text)
    except ValueError:
        return text
