"""The errors a person can do something about; everything else is a fault of `lesion` itself."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from lesion.plain import plain

# What somebody typed or sent stands in messages; of words longer than any path that is in use, both ends are enough.
_LONG = re.compile(r"\S{401,}")


class LesionError(Exception):
    """Base of every error whose message tells the person what to do next. The command exits with 1.

    Its text is safe to print: nothing in it acts on a terminal or makes a line of its own, and words of more than 400
    characters are shown by their ends.

    Args:
        text: one paragraph.
        lines: what stands below it, a line each.
    """

    def __str__(self) -> str:
        return "\n  ".join(shortened(plain(str(line))) for line in self.args)


class UsageError(LesionError):
    """What was asked cannot be meant: a wrong name, a layer outside the model. The command exits with 2."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """The clause ` (nearest: a, b)` naming known names close to `name`, or an empty string."""
    close = difflib.get_close_matches(name[:200], list(known), n=limit, cutoff=0.4)
    return f" (nearest: {', '.join(close)})" if close else ""


def shortened(text: str) -> str:
    """A message whose very long words, which somebody typed, are shown by their ends."""
    return _LONG.sub(lambda word: f"{word[0][:100]}…{word[0][-60:]}", text)
