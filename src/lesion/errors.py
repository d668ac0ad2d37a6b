"""The errors a person can do something about; everything else is a fault of `lesion` itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LesionError(Exception):
    """Base of every error whose message tells the person what to do next. The command exits with 1.

    Args:
        text: one paragraph.
        lines: what stands below it, a line each.
    """

    def __str__(self) -> str:
        return "\n  ".join(map(str, self.args))


class UsageError(LesionError):
    """What was asked cannot be meant: a wrong name, a layer outside the model. The command exits with 2."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """The clause ` (nearest: a, b)` naming known names close to `name`, or an empty string."""
    close = difflib.get_close_matches(name[:200], list(known), n=limit, cutoff=0.4)
    return f" (nearest: {', '.join(close)})" if close else ""
