"""Running text in a layer study: its perplexity under every edit, against that of the unedited model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.edits.edit import BASELINE
from lesion.report.values import Estimate
from lesion.statistics.contrasts import perplexity, perplexity_p, perplexity_ratio
from lesion.statistics.paired import Contrast, holm
from lesion.studies.ablation.result import TextResult, TextUnderEdit
from lesion.studies.ablation.sweep import PlaceEdit, by_kind, complete, place_of_edit, text_of

FEW = 5
"""Fewer texts than these are said to be few."""


def scored(answers: pd.DataFrame) -> bool:
    """Whether these are log-probabilities of one text each, of which none is right or wrong."""
    if "scores" not in answers:
        return False
    return any(len(scores) == 1 and not text for scores, text in zip(answers["scores"], answers["text"], strict=True))


def measured(
    task: str, ids: Sequence[str], answers: pd.DataFrame, edits: Sequence[PlaceEdit], level: float
) -> TextResult | None:
    """The perplexity of a task under every edit that has scored all of its texts; None without a complete baseline.

    Args:
        task: its name.
        ids: of its texts, in the order of the draw.
        answers: to it, of one model, from `Store.answers`.
        edits: that the study plans; p-values are corrected over all of one unit and factor, missing ones too.
        level: of the intervals.
    """
    frames = complete(answers, ids)
    unedited = frames.get(str(BASELINE))
    if unedited is None:
        return None
    tokens = unedited["tokens"].to_numpy(dtype=np.int64)
    before = _scores(unedited)
    cells = []
    for kind in by_kind(edits):
        after = {edit: _scores(frames[text]) for edit in kind if (text := text_of(edit, task)) in frames}
        p = [perplexity_p(before, scores, tokens) for scores in after.values()]
        known = [1.0 if math.isnan(value) else value for value in p]
        corrected = holm([*known, *[1.0] * (len(kind) - len(p))])
        for place, (edit, scores) in enumerate(after.items()):
            ratio = _estimate(perplexity_ratio(before, scores, tokens, level))
            known_p = {"p": p[place], "p_corrected": corrected[place]} if math.isfinite(p[place]) else {}
            cells.append(
                TextUnderEdit(
                    **place_of_edit(edit, task),
                    perplexity=_estimate(perplexity(scores, tokens, level)),
                    ratio=ratio.model_copy(update=known_p),
                )
            )
    return TextResult(
        task=task,
        texts=len(ids),
        tokens=int(tokens.sum()),
        baseline=_estimate(perplexity(before, tokens, level)),
        planned=len(edits),
        cells=cells,
    )


def limits(model: str, text: TextResult, vocabulary: int | None) -> Iterator[str]:
    """What limits the perplexities of a text, a sentence each; `vocabulary`: tokens that the model chooses among."""
    about = f"{model}, {text.task}: "
    if text.texts == 1:
        yield f"{about}one text has no interval and no test, which go by the spread between texts; give more text."
    elif text.texts < FEW:
        yield f"{about}{text.texts} texts are few; intervals go by the spread between them and are wide."
    worst = text.baseline.value
    if vocabulary and worst is not None and worst >= vocabulary:
        yield (
            f"{about}worse than guessing. The perplexity of the unedited model is {worst:,.0f}, and choosing any of its"
            f" {vocabulary:,} tokens alike gives {vocabulary:,}: what a cut takes cannot be told from such a text."
        )


def _estimate(contrast: Contrast) -> Estimate:
    """With its interval where there is one."""
    if not math.isfinite(contrast.high):
        return Estimate(value=contrast.value)
    return Estimate.of(contrast)


def _scores(frame: pd.DataFrame) -> Float[np.ndarray, " texts"]:
    return np.array([scores[0] if len(scores) else math.nan for scores in frame["scores"]], dtype=np.float64)
