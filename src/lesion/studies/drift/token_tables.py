"""Tokens and their contexts as a page shows them: white space seen, nothing that acts; shares as small bars."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from scipy.stats import binom

from lesion.plain import visible
from lesion.report.wording import ALPHA
from lesion.statistics.paired import holm
from lesion.studies.drift.result import Leaving

WIDE = 120.0
"""Of a bar, in SVG units."""
FEWEST = 5
"""A token that stood there less often is not tested, and not named: 1 of 1 says nothing."""


def named(tokens: Sequence[Leaving], overall: float, total: int) -> list[Leaving]:
    """The tokens that leave more often than all tokens do beyond chance, the surest first.

    One-sided binomial test of left of count against the overall share, corrected by Holm (1979) over all types that
    stood there at least `FEWEST` times. Only the foremost types are listed; of the others there are at most as many as
    the rest of the tokens allows, and so many are counted in, each with p = 1, so that having chosen the foremost
    makes no p too small. Occurrences are taken for independent.

    Args:
        tokens: the types that are listed, of one pair of layers.
        overall: the share of all tokens that leave, 0…1.
        total: how many tokens there are.
    """
    often = [leaving for leaving in tokens if leaving.count >= FEWEST]
    unlisted = max(0, total - sum(leaving.count for leaving in tokens)) // FEWEST
    p = [float(binom.sf(leaving.left - 1, leaving.count, overall)) for leaving in often]
    corrected = holm([*p, *[1.0] * unlisted])
    sure = [
        (after, before, -(leaving.share.value or 0.0), place)
        for place, (leaving, before, after) in enumerate(zip(often, p, corrected[: len(p)], strict=True))
        if after <= ALPHA
    ]
    return [often[place] for *_, place in sorted(sure)]


def token_text(token: str) -> str:
    """A token with its white space made visible: `␣the`, `⏎`."""
    return visible(token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥"))


def share_bar(leaving: Leaving, overall: float | None) -> Markup:
    """A share as a bar with its interval, and a mark where the share of all tokens is."""
    parts = Markup('<rect class="ground" x="0" y="3" width="{:.0f}" height="8" rx="2"/>').format(WIDE)
    wide = WIDE * (leaving.share.value or 0.0)
    parts += Markup('<rect class="part" x="0" y="3" width="{:.1f}" height="8" rx="2"/>').format(wide)
    low, high = leaving.share.low, leaving.share.high
    if low is not None and high is not None:
        parts += Markup('<path class="whisker" d="M{:.1f} 7H{:.1f}"/>').format(WIDE * low, WIDE * high)
    if overall is not None:
        parts += Markup('<path class="whole" d="M{:.1f} 0V14"/>').format(WIDE * overall)
    return Markup('<svg class="sharebar" viewBox="0 0 120 14" aria-hidden="true">{}</svg>').format(parts)


def shown(text: str) -> str:
    """A context in one line: line breaks and tabs as marks, and nothing in it that cannot be seen."""
    return visible(text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", "⇥"))
