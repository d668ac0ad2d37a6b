"""Numerals with a base, such as `4343_6` and `101 in base 2`: the digits and the base, compared as both."""

from __future__ import annotations

import re

_NAMES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "sixteen": 16,
}  # fmt: skip
_LOWERED = "₀₁₂₃₄₅₆₇₈₉"
_LARGEST = 36
"""Largest base that has a digit for every value: 0 to 9 and a to z."""

BASE_BEHIND = (
    rf"(?:_\{{\d{{1,2}}\}}|_\d{{1,2}}(?!\d)|[{_LOWERED}]{{1,2}}"
    rf"|[ \t]+(?:in[ \t]+)?\(?base[ \t-]+(?:\d{{1,2}}(?![\d.,]*\d)|(?:{'|'.join(_NAMES)})\b)\)?)"
)
"""What names the base behind a number in prose."""

_DRESS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}|\\[,;: ]|\$")
_BASED = re.compile(
    r"\(?([-−]?[0-9a-z]+)\)?\s*(?:_\s*\{?\s*\(?(?:base[\s-]*)?([0-9a-z]+)\)?\s*\}?"
    r"|(?:in\s+)?\(?base[\s-]+([0-9a-z]+)\)?)",
    re.IGNORECASE,
)


def based(text: str) -> tuple[str, int] | None:
    """The digits and the base of a numeral that names its base; None for anything else.

    Letters are digits where the base has them, as in `1AF_{16}`. In `5C_2` and `x_5` they are no digits.
    """
    plain = re.sub(f"[{_LOWERED}]+", lambda match: f"_{_digits(match[0])}", text)
    match = _BASED.fullmatch(_DRESS.sub(lambda dressed: dressed[1] or " ", plain).strip())
    if match is None:
        return None
    digits, name = match[1].lower().replace("−", "-"), (match[2] or match[3]).lower()
    base = _NAMES.get(name) or (int(name) if re.fullmatch(r"[0-9]{1,2}", name) else 0)
    numeral = digits.lstrip("-")
    if not 2 <= base <= _LARGEST or not re.search("[0-9]", numeral):
        return None
    if not re.fullmatch("[0-9]+", numeral) and any(int(digit, 36) >= base for digit in numeral):
        return None
    return f"-{numeral.lstrip('0') or 0}" if digits.startswith("-") else numeral.lstrip("0") or "0", base


def _digits(lowered: str) -> str:
    return "".join(str(_LOWERED.index(digit)) for digit in lowered)
