"""What stands beside every accuracy: how answers ended, and the label where they were ended in loops."""

from __future__ import annotations

import pandas as pd

from lesion.engines.endings import LEAST
from lesion.tasks.style import unclosed
from lesion.tasks.task import TRUNCATED


def rates(answers: pd.DataFrame) -> dict[str, float]:
    """Shares of answers, in 0…1.

    `truncated` hit the token limit or were ended in a loop, `looped` are the latter among them; `unclosed` never closed
    their thinking, so that they have no final answer; in `unparsed`, of the others, no answer could be read;
    `nonfinite` were broken off since logits were not finite.
    """
    open_ended = answers["text"].map(unclosed).astype(bool)
    return {
        "truncated": float(answers["finish"].isin(TRUNCATED).mean()),
        "looped": float((answers["finish"] == "loop").mean()),
        "unclosed": float(open_ended.mean()),
        "unparsed": float((answers["parsed"].isna() & ~open_ended).mean()),
        "nonfinite": float((answers["finish"] == "nonfinite").mean()),
    }


def approximate(stop_loops: int | None) -> str | None:
    """What makes numbers approximate where loops were stopped after so many repetitions; None: they went on."""
    if stop_loops is None:
        return None
    return (
        f"An answer was ended as soon as it had said the same piece {stop_loops} times in a row, over {LEAST} tokens or"
        " more, and judged by what it had said until then: one that would have left its loop may be judged wrongly."
        " Answers ended so count as truncated, and their share is told as looped."
    )
