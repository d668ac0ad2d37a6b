"""Numerals: how numbers are written in prose and formulas, as pieces of regular expressions."""

from __future__ import annotations

LONGEST = 500
"""Characters of an answer that is read; Python refuses to convert thousands of digits."""

EXPONENT = 999
"""Largest power of ten that is read; a number beyond it counts as not readable."""

SPACE = "[ \t\u00a0\u2009\u202f]"
VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
SIGN = r"(?:[-+−–±]|(?:negative|minus)\s)"
CURRENCY = r"\\?[$€£¥₹]"
_GROUPED = "|".join(rf"\d{{1,3}}(?:{mark}\d{{3}})+" for mark in (",", SPACE, "['’]", "_"))
WHOLE = rf"(?:(?:{_GROUPED}|\d{{1,2}}(?:,\d{{2}})+,\d{{3}})(?!\d)|\d+)"
DECIMAL = rf"(?:{WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+−]?\d+)?"
MIXED = rf"(?:\d+(?:{SPACE}|\sand\s)\d+[/⁄]\d+|(?:\d+{SPACE}?)?[{VULGAR}])"
UNIT = rf"{SPACE}?(?:\\?%|per\s?cent\b|(?:dozen|hundred|thousand|million|billion|trillion)s?\b)"
THOUSANDS = r"[kKMB]\b"
_LARGE = rf"{SPACE}(?:hundred|thousand|million|billion|trillion)s?\b"
COMPOUND = (
    rf"{DECIMAL}{_LARGE}(?:(?:,?{SPACE}(?:and{SPACE})?{DECIMAL}{_LARGE}){{1,4}}(?:{SPACE}\d{{1,3}}(?![\w.,]))?"
    rf"|{SPACE}\d{{1,3}}(?![\w.,:/%]))"
)
"""Such as `3 million 200 thousand` and `2 thousand 500`."""
_BASES = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen"
BASE = (
    rf"(?:_\{{\d{{1,2}}\}}|_\d{{1,2}}(?!\d)|[{SUBSCRIPTS}]{{1,2}}"
    rf"|[ \t]+(?:in[ \t]+)?\(?base[ \t-]+(?:\d{{1,2}}(?![\d.,]*\d)|(?:{_BASES})\b)\)?)"
)
"""What names the base behind a number: `4343_6`, `101 in base 2`."""
