"""Stored answers as arrays: those under each edit, which are right, their scores, and how they ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lesion.tasks.style import unclosed
from lesion.tasks.task import TRUNCATED


def by_edit(answers: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The answers to one task under each edit, indexed by item."""
    return {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}


def complete(answers: pd.DataFrame, items: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The answers to these items, in this order, of each edit that has them all; none without items."""
    frames = by_edit(answers) if items else {}
    return {edit: frame.loc[list(items)] for edit, frame in frames.items() if set(items) <= set(frame.index)}


def verdicts(answers: pd.DataFrame) -> Bool[np.ndarray, " items"]:
    """Whether each answer is right."""
    return answers["correct"].to_numpy(dtype=bool)


def first_scores(answers: pd.DataFrame) -> Float[np.ndarray, " items"]:
    """The first log-probability of each answer in nats; NaN where it is no number."""
    return np.array([each[0] if len(each) else math.nan for each in answers["scores"]], dtype=np.float64)


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
    from lesion.engines.endings import LEAST  # who only reads answers need not wait for torch

    return (
        f"An answer was ended as soon as it had said the same piece {stop_loops} times in a row, over {LEAST} tokens or"
        " more, and judged by what it had said until then: one that would have left its loop may be judged wrongly."
        " Answers ended so count as truncated, and their share is told as looped."
    )
