"""How answers ended, as columns of a table."""

from __future__ import annotations

from lesion.report.forms import WHOLE_SHARE
from lesion.report.rows import Row, column


class Endings(Row):
    """How answers ended, as shares of them (`lesion.core.rates`).

    Attributes:
        truncated: at the token limit or in a loop; looped: the latter among them.
        unclosed: the thinking was never closed, so that there is no final answer.
        unparsed: of the others, no answer could be read.
        nonfinite: ended because logits were not finite.
    """

    truncated: float = column("Truncated", WHOLE_SHARE)
    looped: float = column("", WHOLE_SHARE, default=0.0)
    unclosed: float = column("", WHOLE_SHARE, default=0.0)
    unparsed: float = column("Unparsed", WHOLE_SHARE)
    nonfinite: float = column("", WHOLE_SHARE, default=0.0)
