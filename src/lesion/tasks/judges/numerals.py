"""Numbers as people write them: their exact values, and when two of them are the same."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

PLACES = 6
"""Decimals from which on a decimal may be a rounded value."""

EXPONENT = 999
"""Largest power of ten that is read; a number beyond it counts as not readable."""

LONGEST = 500
"""Characters of a number that is read; Python refuses to convert thousands of digits."""

SPACE = "[ \t\u00a0\u2009\u202f]"
VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
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

_DRESSED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}")
_DIGITS_APART = re.compile(r"(?<=\d)(?:\\[,; ]|~|\{,\})(?=\d{3})")
_FRACTION = re.compile(r"\\[dt]?frac\s?(?:\{(\d+)\}|(\d))\s?(?:\{(\d+)\}|(\d))")
_REPEATING = re.compile(r"(?<![\d.,])(\d{0,20})\.(\d{0,20})\\overline\s?\{(\d{1,20})\}")
_QUANTITY = re.compile(
    rf"(?P<sign>{SIGN})?\s?(?P<currency>{CURRENCY})?{SPACE}?(?P<inner>[-−])?"
    rf"(?:(?P<whole>\d+(?={SPACE}|\sand\s))?(?:{SPACE}|\sand\s)?(?P<above>\d+)\s?[/⁄]\s?(?P<below>\d+)"
    rf"|(?P<decimal>{DECIMAL})"
    rf"(?:\s?(?:[x×·*]|\\times|\\cdot)\s?10\s?(?:\^|\*\*)\s?(?:\{{(?P<braced>[-−]?\d+)\}}|(?P<power>[-−]?\d+)))?)"
    rf"(?:(?P<thousands>{THOUSANDS})|(?P<unit>{UNIT}))?",
    re.IGNORECASE,
)
_COMPOUND = re.compile(rf"(?P<sign>{SIGN})?\s?(?:{CURRENCY})?{SPACE}?(?P<parts>{COMPOUND})", re.IGNORECASE)
_PART = re.compile(rf"({DECIMAL})(?:{SPACE}([a-z]+?)s?\b)?", re.IGNORECASE)
_SPELLED = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion"}
_FACTORS = {
    "%": Fraction(1, 100), "percent": Fraction(1, 100), "dozen": Fraction(12), "hundred": Fraction(100),
    "thousand": Fraction(10**3), "million": Fraction(10**6), "billion": Fraction(10**9),
    "trillion": Fraction(10**12), "k": Fraction(10**3), "m": Fraction(10**6), "b": Fraction(10**9),
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A number as written.

    Attributes:
        amount: the exact value of the digits.
        factor: what a percent sign (1/100), "dozen", "million" and the like multiply it by; None without one.
        places: decimals as written; infinite for a fraction that is no whole number.
    """

    amount: Fraction
    factor: Fraction | None
    places: float

    @property
    def value(self) -> Fraction:
        """The amount times the factor."""
        return self.amount if self.factor is None else self.amount * self.factor


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity | None:
    r"""The number that a text is, such as `1,200`, `-$18.00`, `3 1/2`, `½`, `1.2e3`, `12.5\%`, `2 million 500`.

    None for anything else. Not read: a malformed group of digits (`1,5`), an undecided sign (`±3`), a denominator of
    zero, an improper fraction behind a whole number, a power of ten beyond `EXPONENT`, and more than `LONGEST`
    characters.
    """
    typed = _typed(text) if len(text) <= LONGEST else ""
    compound = _COMPOUND.fullmatch(typed)
    if compound:
        return _sum(compound)
    match = _QUANTITY.fullmatch(typed)
    if match is None or (match["sign"] and match["inner"]) or (match["thousands"] and not match["currency"]):
        return None
    sign = (match["sign"] or match["inner"] or "+").strip().lower()
    if sign == "±":
        return None
    read = _decimal(match) if match["decimal"] else _fraction(match)
    if read is None:
        return None
    amount, places = read
    unit = re.sub(r"[\s\\]", "", (match["unit"] or match["thousands"] or "").lower())
    return Quantity(amount if sign == "+" else -amount, _FACTORS[unit.removesuffix("s")] if unit else None, places)


def spelled(number: str) -> str:
    """A number in prose with the letter behind it as a word, `20k` as `20 thousand`; other text as it is.

    In a formula such a letter is a variable, so that `quantity` reads it behind a currency sign only.
    """
    if number[-1:] not in _SPELLED or quantity(number) is not None:
        return number
    words = f"{number[:-1].rstrip()} {_SPELLED[number[-1]]}"
    return number if quantity(words) is None else words


def same(first: Quantity, second: Quantity) -> bool:
    """Whether two numbers are the same, as written or rounded.

    Where just one has a percent sign or a word such as "million", that may be the unit of the question: its amount
    alone counts too. Where both have at least `PLACES` decimals, they may differ by half a unit in the last place of
    the coarser.
    """
    pairs = [(first.value, second.value)]
    if (first.factor is None) != (second.factor is None):
        pairs.append((first.amount, second.amount))
    places = min(first.places, second.places)
    slack = Fraction(1, 2 * 10 ** int(min(places, 2 * EXPONENT))) if PLACES <= places < math.inf else Fraction(0)
    return any(abs(left - right) <= slack for left, right in pairs)


def _sum(compound: re.Match[str]) -> Quantity | None:
    """The value of `3 million 200 thousand`; None where a part is not below the unit of the one before it."""
    parts = [quantity(" ".join(filter(None, part))) for part in _PART.findall(compound["parts"].replace(" and ", " "))]
    total, unit = Fraction(0), None
    for part in parts:
        if part is None or (unit is not None and part.value >= unit):
            return None
        total, unit = total + part.value, part.factor or Fraction(1)
    negative = compound["sign"] and compound["sign"].strip() != "+"
    return None if compound["sign"] == "±" else Quantity(-total if negative else total, None, 0.0)


def _typed(text: str) -> str:
    """The text with LaTeX fractions, vulgar fractions, spaced digits and superscripts in one way of writing."""
    text = _DIGITS_APART.sub(",", undressed(text.strip()))
    text = _FRACTION.sub(lambda match: f" {match[1] or match[2]}/{match[3] or match[4]}", repeating(text))
    text = re.sub(rf"{SPACE}{{2,}}", " ", superscripts(plain_fractions(text)))
    return text.strip()


def undressed(text: str) -> str:
    r"""The text without the commands that only choose a typeface: `\text{12 cm}` as `12 cm`."""
    return _DRESSED.sub(r"\1", text)


def plain_fractions(text: str) -> str:
    """The text with vulgar fractions as digits: `1½` as `1 1/2`."""
    return re.sub(f"[{VULGAR}]", lambda match: " " + unicodedata.normalize("NFKC", match[0]).replace("⁄", "/"), text)


def repeating(text: str) -> str:
    r"""The text with repeating decimals as fractions: `0.1\overline{6}` as `\frac{15}{90}`."""

    def fraction(match: re.Match[str]) -> str:
        whole, fixed, period = match[1] or "0", match[2], match[3]
        once, ever = 10 ** len(fixed), 10 ** len(period) - 1
        above = (int(whole) * once + int(fixed or 0)) * ever + int(period)
        return rf"\frac{{{above}}}{{{once * ever}}}"

    return _REPEATING.sub(fraction, text)


def superscripts(text: str) -> str:
    """The text with raised digits as powers: `10⁶` as `10^{6}`."""
    return re.sub(f"[{SUPERSCRIPTS}]+", lambda match: f"^{{{unicodedata.normalize('NFKC', match[0])}}}", text)


def _decimal(match: re.Match[str]) -> tuple[Fraction, float] | None:
    digits = re.sub(r"[\s,'’_]", "", match["decimal"]).replace("−", "-").lower()
    mantissa, _, exponent = digits.partition("e")
    raised = (match["braced"] or match["power"] or "0").replace("−", "-")
    if max(len(exponent), len(raised)) > 6:
        return None
    power = int(exponent or 0) + int(raised)
    if abs(power) > EXPONENT:
        return None
    return Fraction(mantissa) * Fraction(10) ** power, float(max(0, len(mantissa.partition(".")[2]) - power))


def _fraction(match: re.Match[str]) -> tuple[Fraction, float] | None:
    above, below = int(match["above"]), int(match["below"])
    if below == 0 or (match["whole"] and above >= below):
        return None
    amount = int(match["whole"] or 0) + Fraction(above, below)
    return amount, 0.0 if amount.denominator == 1 else math.inf
