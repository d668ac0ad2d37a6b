"""Whole numbers in answers and in words."""

from __future__ import annotations

import re

from lesion.tasks.judges.notation import WORDS

_ONES, _TENS = (WORDS["numerals"][kind] for kind in ("ones", "tens"))
# Digits of any script would pass \d; a number of more digits than any answer is none.
_INTEGER = r"[-−]?\s?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30})(?![0-9]|[.,][0-9])"
_NUMBER = re.compile(rf"(?<![0-9.,]){_INTEGER}")
# The question said again before the answer: "12 + 34 =", "12 plus 34 is".
_AGAIN = re.compile(r"[0-9]+\s*(?:[-−+*×x]|plus|minus|times)\s*[0-9]+\s*(?:=|is|equals)\s*")


def spelled(number: int) -> str:
    """A number from 0 to 999,999 in American English: `three hundred forty-six`."""
    if not 0 <= number < 1_000_000:
        raise ValueError(f"{number} is not spelled out here")
    if number >= 1000:
        rest = f" {spelled(number % 1000)}" if number % 1000 else ""
        return f"{spelled(number // 1000)} thousand{rest}"
    if number >= 100:
        rest = f" {spelled(number % 100)}" if number % 100 else ""
        return f"{_ONES[number // 100]} hundred{rest}"
    if number >= 20:
        return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    return _ONES[number]


def integer(text: str, *, complete: bool = True) -> int | None:
    """The whole number that an answer gives: the one its first line begins with, else the last one there.

    Commas between thousands are read; "4.6" is no whole number. A question that is said again is passed over.

    Args:
        text: the answer.
        complete: whether the answer ended itself; else a number at its very end may be cut off and is not read.
    """
    body = text.lstrip()
    line = body.split("\n", 1)[0]
    if again := _AGAIN.match(line):
        line = line[again.end() :]
    numbers = list(_NUMBER.finditer(line))
    if not numbers:
        return None
    chosen = numbers[0] if not line[: numbers[0].start()].strip() else numbers[-1]
    if not complete and "\n" not in body and chosen.end() == len(line):
        return None
    return int(re.sub(r"[,\s]", "", chosen[0]).replace("−", "-"))
