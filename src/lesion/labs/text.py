"""Text that somebody typed or that a corpus holds, made safe to show: what cannot be seen must not act either."""

from __future__ import annotations

import json
import unicodedata


def visible(text: str) -> str:
    """The text with U+FFFD for control characters, marks of direction and everything else that is not printable."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def quoted(symbol: str) -> str:
    r"""One character in quotes; by its code point where it is not seen, or would sit on the quote.

    Example:
        >>> quoted(" "), quoted("\n"), quoted("\u202e")
        ('" "', '"\\n"', 'U+202E (RIGHT-TO-LEFT OVERRIDE)')
    """
    if symbol in "\n\t\r" or (symbol.isprintable() and not any(unicodedata.category(one)[0] == "M" for one in symbol)):
        return json.dumps(symbol, ensure_ascii=False)
    names = [f" ({unicodedata.name(one)})" if unicodedata.name(one, "") else "" for one in symbol]
    return " ".join(f"U+{ord(one):04X}{name}" for one, name in zip(symbol, names, strict=True))
