"""What stands beside every accuracy: how answers ended, and the label where they were ended in loops."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lesion.engines.endings import LEAST
from lesion.tasks.style import unclosed
from lesion.tasks.task import TRUNCATED


def truncated(answers: pd.DataFrame) -> float:
    """The share of answers that did not end themselves: at the token limit, or ended in a loop."""
    return float(answers["finish"].isin(TRUNCATED).mean())


def rates(answers: pd.DataFrame) -> dict[str, float]:
    """Shares of answers, in 0…1.

    `truncated` hit the token limit or were ended in a loop, `looped` are the latter among them; `unclosed` never closed
    their thinking, so that they have no final answer; in `unparsed`, of the others, no answer could be read;
    `nonfinite` were broken off since logits were not finite.
    """
    open_ended = answers["text"].map(unclosed).astype(bool)
    return {
        "truncated": truncated(answers),
        "looped": float((answers["finish"] == "loop").mean()),
        "unclosed": float(open_ended.mean()),
        "unparsed": float((answers["parsed"].isna() & ~open_ended).mean()),
        "nonfinite": float((answers["finish"] == "nonfinite").mean()),
    }


def loops(times: int | None) -> dict[str, Any]:
    """What a summary says of its study where loops were stopped: after how many repetitions, and what follows.

    None: loops went on, and nothing is said.
    """
    if times is None:
        return {}
    return {
        "stop_loops": times,
        "approximate": f"An answer was ended as soon as it had said the same piece {times} times in a row, over {LEAST}"
        " tokens or more, and judged by what it had said until then: one that would have left its loop may be judged"
        " wrongly. Answers ended so count as truncated, and their share is told as looped.",
    }
