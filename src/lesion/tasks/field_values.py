"""Field values: what stands in a field of a question, as text in the form it was given, and indices of choices."""

from __future__ import annotations

import datetime
import math
import re
import string
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from lesion.errors import UsageError
from lesion.plain import short

_ARROW = {"halffloat": "float16", "float": "float32", "double": "float64"}
_WHOLE = re.compile(r"[0-9]{1,9}")


class Number(str):
    """A number in the form it was written; it may be the index of a choice."""


def float_type(dtype: Any) -> Callable[[float], object] | None:
    """The numpy type of the floating-point numbers of a column or array, also in lists and categories; None: no such.

    Args:
        dtype: of numpy, pandas or pyarrow.
    """
    import numpy as np  # whoever looks for a task by its name need not wait for it

    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    while hasattr(dtype, "value_type"):
        dtype = dtype.value_type
    dtype = np.dtype(_ARROW[str(dtype)]) if str(dtype) in _ARROW else dtype
    return dtype.type if getattr(dtype, "kind", "") == "f" else None


def field_value(value: Any, name: str, where: str, *, floats: Callable[[float], object] | None = None) -> Any:
    """A Python, numpy or pandas value as JSON Lines would have it: numbers as `Number`, arrays as lists.

    Args:
        value: not missing.
        name: of the field; where: of its row, for messages.
        floats: `float_type` of the column; its numbers have lost their form: 4.0 is 4, and 0.1 of 32 bits is 0.1.

    Raises:
        UsageError: a number that is not finite, or a date, of which nobody knows in which form answers have it.
    """
    if hasattr(value, "tolist") and value.ndim:
        floats, value = floats or float_type(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [field_value(each, name, where, floats=floats) for each in value]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta) or "datetime64" in type(value).__name__:
        raise UsageError(f"{where}: '{name}' is a date or a time; give it as a text, in the form that answers have.")
    written = str(value) if hasattr(value, "dtype") else None
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float | Decimal):
        return plain
    if not isinstance(plain, int) and not math.isfinite(plain):
        raise UsageError(f"{where}: '{name}' is {plain}, not a finite number; give a text.")
    if floats is not None and isinstance(plain, float):
        whole = plain.is_integer() and abs(plain) < 2**53
        return Number(int(plain) if whole else floats(plain))  # the text of 32 bits is shorter
    try:
        return Number(written or plain)
    except ValueError:  # thousands of digits
        raise UsageError(f"{where}: '{name}' is a number of thousands of digits; give it as a text.") from None


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    number = value.item() if hasattr(value, "item") and not value.ndim else value
    return isinstance(number, float) and math.isnan(number)


def chosen(answer: str, choices: Sequence[str], where: str) -> str:
    """The choice that an answer names, by its text or else by its place; an answer that names none is returned.

    A number counts from 0 and is a place where no other choice reads like that; a capital letter counts from A and is a
    place where no choice is that letter, capital or not.

    Raises:
        UsageError: a number may be a place and the text of another choice.
    """
    place = None
    if isinstance(answer, Number) and _WHOLE.fullmatch(answer):
        place = int(answer)
    elif len(answer) == 1 and answer in string.ascii_uppercase and answer.lower() not in map(str.lower, choices):
        place = string.ascii_uppercase.index(answer)
    if place is None or place >= len(choices):
        return str(answer)
    reading = [choice for choice in choices if choice == answer or _same_number(choice, answer)]
    if any(choice != choices[place] for choice in reading):
        raise UsageError(
            f"{where}: the answer {short(answer)} may be the choice '{short(reading[0])}' or the place of"
            f" '{short(choices[place])}' among the choices, counted from 0; give the right choice as a text in"
            " quotation marks."
        )
    return choices[place]


def _same_number(choice: str, answer: str) -> bool:
    try:
        return Decimal(choice.strip()) == Decimal(answer)
    except (InvalidOperation, ValueError):
        return False
