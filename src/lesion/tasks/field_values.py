"""Field values: what stands in a field of a question, as text in the form it was given, and indices of choices."""

from __future__ import annotations

import datetime
import json
import math
import re
import string
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

from lesion.errors import UsageError
from lesion.plain import short
from lesion.tasks.judges.notation import WORDS, superscripts

_ARROW = {"halffloat": "float16", "float": "float32", "double": "float64"}
_WHOLE = re.compile(r"[0-9]{1,9}")
_WORD = re.compile(r"(?P<number>(?<![\d/^])(?<!\^{)(?:(?<!\w)[-+−])?\d+(?:[.,:/⁄^×*–−-]\d+)*)|[^\W\d_]+")
_MARK, _JOINED = re.compile(r"\s*(?:[^\w\s]|_|\Z)"), re.compile(r"\s+(?:and|or)\b")
_NUMERALS = (
    WORDS["numerals"]["ones"],
    ["", *WORDS["numerals"]["ranks"]],
    ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"],
)


class Number(str):
    """A number in the form it was written; it may be the index of a choice."""


def float_type(dtype: Any) -> Callable[[float], object] | None:
    """The numpy type of the floating-point numbers of a column or array, also in lists and categories; None: none."""
    import numpy as np  # whoever looks for a task by its name need not wait for it

    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    while hasattr(dtype, "value_type"):
        dtype = dtype.value_type
    dtype = np.dtype(_ARROW[str(dtype)]) if str(dtype) in _ARROW else dtype
    return dtype.type if getattr(dtype, "kind", "") == "f" else None


def field_value(value: Any, name: str, where: str, *, floats: Callable[[float], object] | None = None) -> Any:
    """A Python, numpy or pandas value as JSON Lines would have it: numbers as `Number`, arrays as lists.

    `floats` is the `float_type` of the column, whose numbers have lost their form: 4.0 is 4, and 0.1 of 32 bits is 0.1.
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


def plain(value: Any) -> Any:
    """What stands in a row with its numbers as Python's, not as they were written."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    number = value.item() if hasattr(value, "item") and not value.ndim else value
    return isinstance(number, float) and math.isnan(number)


def chosen(answer: str, choices: Sequence[str], where: str) -> str:
    """The choice that an answer names, by its text or else by its place; an answer that names none is returned.

    A number counts from 0; a capital letter from A, where no choice is that letter, capital or not.
    """
    place, start = None, "0"
    if isinstance(answer, Number) and _WHOLE.fullmatch(answer):
        place = int(answer)
    elif len(answer) == 1 and answer in string.ascii_uppercase and answer.lower() not in map(str.lower, choices):
        place, start = string.ascii_uppercase.index(answer), "A"
    if place is None or place >= len(choices):
        return str(answer)
    alike = next((choice for choice in choices if choice != choices[place] and _reads_like(choice, answer)), None)
    if alike is not None:
        raise UsageError(
            f"{where}: the answer {short(answer)} may be the choice '{short(alike)}' or the place of"
            f" '{short(choices[place])}' among the choices, counted from {start}; give the right choice as a text in"
            " quotation marks, letter for letter."
        )
    return choices[place]


def _reads_like(choice: str, answer: str) -> bool:
    """Whether a choice may be meant by a whole number or a letter.

    It is where the first number of its first three words is this, or it has this as a word: before a mark or the end
    (`B: x`, `plan B`), at its beginning (`B flat`; but `A dog` and `I am` are sentences), or a number among at most
    three words (`two cm`).
    """
    text = unicodedata.normalize("NFKC", superscripts(choice)).casefold()
    words = list(islice(_WORD.finditer(text), 4))
    counted, names = answer.isdecimal(), [answer.lower()]
    if counted:
        names = [numerals[int(answer)] for numerals in _NUMERALS if int(answer) < len(numerals)]
    for place, word in enumerate(words[: 3 if counted else 2]):
        if _JOINED.match(text, word.end()):
            return False
        if counted and word["number"]:
            return _same_number(word[0], answer)
        near = len(words) <= 3 if counted else place == 0
        if word[0] in names and (_MARK.match(text, word.end()) or (near and word[0] not in ("a", "i"))):
            return True
    return False


def _same_number(text: str, answer: str) -> bool:
    try:
        return Decimal(text) == Decimal(answer)
    except InvalidOperation:
        return False
