"""Numbers as people type them on a command line."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from lesion.errors import UsageError
from lesion.plain import short

Number = TypeVar("Number", int, float)
# Python reads more: 1_0, and the digits of every script.
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_REAL = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)


def number(text: str, kind: type[Number]) -> Number:
    """A number in ASCII digits, spaces around it allowed.

    Raises:
        ValueError: the text is none.
    """
    text = text.strip()
    if len(text) > 100 or not (_WHOLE if kind is int else _REAL).fullmatch(text):
        raise ValueError(f"'{short(text)}' is not a number")
    return kind(text)


def numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """Numbers by commas.

    Raises:
        UsageError: something between the commas is not a number.
    """
    values: list[Any] = []
    for piece in text.split(","):
        try:
            values.append(number(piece, kind))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise UsageError(f"{option} takes {what} by commas; '{short(piece.strip())}' is none.") from None
    return values


def whole(text: str) -> int | str:
    """Digits as a number; anything else as it is, for the study's own validation to judge."""
    try:
        return number(text, int)
    except ValueError:
        return text
