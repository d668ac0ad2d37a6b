"""Tokens and their contexts as a page shows them: visible white space, nothing that acts."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binom

from lesion.plain import visible
from lesion.report.wording import ALPHA
from lesion.statistics.paired import holm
from lesion.studies.drift.result import Leaving

FEWEST = 5
"""A token with fewer occurrences is not tested, and not named: 1 of 1 says nothing."""


def named(tokens: Sequence[Leaving], overall: float, total: int) -> list[Leaving]:
    """The tokens that leave more often than all tokens do beyond chance, the surest first.

    One-sided binomial test of left of count against the overall share, corrected by Holm (1979) over all types with at
    least `FEWEST` occurrences, which are taken for independent. Only the foremost types are listed; as many others as
    the rest of the tokens allows are counted in, each with p = 1, so that this choice makes no p too small.
    `overall` is the share of all `total` tokens that leave.
    """
    often = [leaving for leaving in tokens if leaving.count >= FEWEST]
    unlisted = max(0, total - sum(leaving.count for leaving in tokens)) // FEWEST
    p = [float(binom.sf(leaving.left - 1, leaving.count, overall)) for leaving in often]
    corrected = holm([*p, *[1.0] * unlisted])
    order = sorted(range(len(p)), key=lambda place: (corrected[place], p[place], -(often[place].share.value or 0.0)))
    return [often[place] for place in order if corrected[place] <= ALPHA]


def token_text(token: str) -> str:
    """A token with its white space made visible: `␣the`, `⏎`."""
    return shown(token.replace(" ", "␣"))


def shown(text: str) -> str:
    """A context in one line: line breaks and tabs as marks, and nothing in it that cannot be seen."""
    return visible(text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", "⇥"))
