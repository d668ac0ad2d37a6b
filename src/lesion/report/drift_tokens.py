"""Tokens and their contexts as a page shows them: white space seen, nothing that acts; shares as small bars."""

from __future__ import annotations

from markupsafe import Markup

from lesion.labs.text import visible
from lesion.report.drift_rows import Leaving

WIDE = 120.0
"""Of a bar, in SVG units."""


def token_text(token: str) -> str:
    """A token with its white space made visible: `␣the`, `⏎`."""
    return visible(token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥"))


def share_bar(one: Leaving, overall: float | None) -> Markup:
    """A share as a bar with its interval, and a mark where the share of all tokens is."""
    parts = Markup('<rect class="ground" x="0" y="3" width="{:.0f}" height="8" rx="2"/>').format(WIDE)
    parts += Markup('<rect class="part" x="0" y="3" width="{:.1f}" height="8" rx="2"/>').format(WIDE * one.share)
    if one.low is not None and one.high is not None:
        parts += Markup('<path class="whisker" d="M{:.1f} 7H{:.1f}"/>').format(WIDE * one.low, WIDE * one.high)
    if overall is not None:
        parts += Markup('<path class="whole" d="M{:.1f} 0V14"/>').format(WIDE * overall)
    return Markup('<svg class="sharebar" viewBox="0 0 120 14" aria-hidden="true">{}</svg>').format(parts)


def shown(text: str) -> str:
    """A context in one line: line breaks and tabs as marks, and nothing in it that cannot be seen."""
    return visible(text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", "⇥"))
