"""Text that somebody else wrote, made safe to print: nothing in it acts on a terminal or looks like another line."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence

# Zero width joiners are parts of ordinary words and of emoji; every other control or format character is escaped.
_KEPT = {"\u200c", "\u200d"}
_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_SUSPECT = re.compile(r"[^ -~]")


def plain(text: str) -> str:
    r"""The text on one line, with every character that acts instead of being seen written as an escape.

    Escaped are control characters (C0, C1, DEL, line breaks and tabs too), marks and overrides of direction, other
    invisible format characters, line and paragraph separators, and lone surrogates.

    Example:
        >>> plain("a\x1b[31m\nb\u202e")
        'a\\x1b[31m\\nb\\u202e'
    """
    return _SUSPECT.sub(_escaped, text)


def unruly(text: str) -> bool:
    """Whether `plain` would change the text."""
    return plain(text) != text


def layout(text: str) -> str:
    """The text with its line breaks and tabs, and everything else escaped as `plain` does."""
    return "".join(piece if piece in "\n\t" else plain(piece) for piece in re.split(r"([\n\t])", text))


def some(names: Sequence[str], limit: int = 3) -> str:
    """The first of several names, and how many there are more."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key under which `step 2` stands before `step 10`."""
    pieces = re.split(r"(\d+)", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece]


def short(value: object, limit: int = 80) -> str:
    """A value for a message: on one line, escaped, and no longer than `limit` characters, the rest shown as `…`."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; lists in lists in lists
        text = f"a very long {type(value).__name__}"
    text = plain(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def amount(size: int | float) -> str:
    """A number of bytes with a unit that leaves something before the point, `3.2 MiB`."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min((max(int(size), 1).bit_length() - 1) // 10, len(units) - 1)
    return f"{size:,.0f} bytes" if power == 0 else f"{size / 1024**power:,.1f} {units[power]}"


def duration(seconds: float) -> str:
    """A time that something may take: `40 s`, `2 min 10 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 595:
        minutes, tens = divmod(round(seconds / 10), 6)
        return f"{minutes} min {10 * tens} s" if tens else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def visible(text: str) -> str:
    """The text with U+FFFD for control characters, marks of direction and everything else that is not printable."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def quoted(symbol: str) -> str:
    r"""One character in quotes; by its code point where it is not seen, or would sit on the quote.

    Example:
        >>> quoted(" "), quoted("\n"), quoted("\u202e")
        ('" "', '"\\n"', 'U+202E (RIGHT-TO-LEFT OVERRIDE)')
    """
    if symbol in "\n\t\r" or (
        symbol.isprintable() and not any(unicodedata.category(character)[0] == "M" for character in symbol)
    ):
        return json.dumps(symbol, ensure_ascii=False)
    names = [f" ({unicodedata.name(character)})" if unicodedata.name(character, "") else "" for character in symbol]
    return " ".join(f"U+{ord(character):04X}{name}" for character, name in zip(symbol, names, strict=True))


def _escaped(match: re.Match[str]) -> str:
    letter = match[0]
    if letter in _KEPT or unicodedata.category(letter) not in _ESCAPED:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
