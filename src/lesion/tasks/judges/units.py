"""Units: which words are some; how large known ones are in another of the same kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from math import prod

from lesion.tasks.source import packaged

SCALES = {
    "dozen": Fraction(12), "hundred": Fraction(100), "thousand": Fraction(10**3), "million": Fraction(10**6),
    "billion": Fraction(10**9), "trillion": Fraction(10**12), "k": Fraction(10**3), "K": Fraction(10**3),
    "M": Fraction(10**6), "B": Fraction(10**9),
}  # fmt: skip
"""Words and letters behind a number that multiply it."""

_SIZES = {
    name: (kind, Fraction(size))
    for kind, units in packaged("judges/words.toml")["units"].items()
    for names, size in units.items()
    for name in names.split()
}
_MONEY = frozenset(("dollar", "euro", "sterling", "rupee", "yen"))
_WRITTEN = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_LETTERS = frozenset("mgshlLVWNJKCFA")


def is_unit(word: str) -> bool:
    """Whether a word or letter is a known unit."""
    if len(word) == 1:
        return word in _LETTERS
    return _known(word.lower()) is not None


def size(unit: str) -> tuple[tuple[tuple[str, int], ...], Fraction] | None:
    """The kind of a known unit, as powers of simple kinds, and its size; None for any other text.

    Of `km / h` and `km per hour` the kind is length over time. Of money the time is dropped: `$5 per day` is $5.
    """
    unit = re.sub(r"degree c(?:elsius)?\b", "celsius", unit.strip(), flags=re.IGNORECASE)
    unit = re.sub(r"degree f(?:ahrenheit)?\b", "fahrenheit", unit, flags=re.IGNORECASE)
    factors: list[tuple[str, Fraction, int]] = []
    sign = power = 1
    for word in unit.split():
        known = _known(word.rstrip(".").lower() if len(word) > 1 else word)
        if word in ("/", "per", "a", "an") and factors:
            if factors[0][0] in _MONEY:
                break
            sign = -1
        elif word.lower().rstrip(".") in _WRITTEN:
            power = _WRITTEN[word.lower().rstrip(".")]
        elif re.fullmatch(r"\^-?\d", word) and factors:
            kind, scale, before = factors.pop()
            factors.append((kind, scale, before * int(word[1:])))
        elif known is not None and known[1] != 0:
            factors.append((*known, sign * power))
            sign = power = 1
        elif word not in ("*", "."):
            return None
    kinds: dict[str, int] = {}
    for kind, _, times in factors:
        for simple, share in _parts(kind):
            kinds[simple] = kinds.get(simple, 0) + share * times
    total = prod((scale**times for _, scale, times in factors), start=Fraction(1))
    return (tuple(sorted(each for each in kinds.items() if each[1])), total) if kinds else None


def _parts(kind: str) -> Iterator[tuple[str, int]]:
    """The simple kinds of which a kind is made, with their powers: a speed is of `length/time`, a volume `length^3`."""
    for place, part in enumerate(kind.split("/")):
        simple, _, power = part.partition("^")
        yield simple, int(power or 1) * (-1 if place else 1)


def _known(word: str) -> tuple[str, Fraction] | None:
    return _SIZES.get(word) or (_SIZES.get(word.removesuffix("s")) if len(word) > 2 else None)
