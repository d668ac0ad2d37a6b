"""Units: which words are some; how large known ones are in another of the same kind."""

from __future__ import annotations

import re
from fractions import Fraction

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
_LETTERS = frozenset("mgshlLVWNJKCFA")


def is_unit(word: str) -> bool:
    """Whether a word or letter is a known unit."""
    if len(word) == 1:
        return word in _LETTERS
    return _known(word.lower()) is not None


def size(unit: str) -> tuple[str, int, Fraction] | None:
    """The kind of a known unit, its power, and its size in the unit of its kind; None for any other text."""
    match = re.fullmatch(r"(?:(square|sq|cubic|cu) )?\.? ?([A-Za-z$€£¥₹¢]+)\.?(?: (?:\^)?(\d))?", unit.strip())
    if match is None:
        return None
    known = _known(match[2].lower() if len(match[2]) > 1 else match[2])
    if known is None or known[1] == 0:
        return None
    power = int(match[3] or {"square": 2, "sq": 2, "cubic": 3, "cu": 3}.get(match[1] or "", 1))
    return known[0], power, known[1] ** power


def _known(word: str) -> tuple[str, Fraction] | None:
    return _SIZES.get(word) or (_SIZES.get(word.removesuffix("s")) if len(word) > 2 else None)
