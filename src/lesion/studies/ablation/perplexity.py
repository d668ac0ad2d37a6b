"""Running text in a layer study: its perplexity under every edit, against that of the unedited model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.core.values import Estimate
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.contrasts import perplexity, perplexity_p, perplexity_ratio
from lesion.statistics.paired import holm
from lesion.studies.ablation.result import TextResult, TextUnderEdit
from lesion.studies.ablation.sweep import by_kind, complete


def scored(answers: pd.DataFrame) -> bool:
    """Whether these are log-probabilities of one text each, of which none is right or wrong."""
    if "scores" not in answers:
        return False
    return any(len(scores) == 1 and not text for scores, text in zip(answers["scores"], answers["text"], strict=True))


def measured(
    task: str, ids: Sequence[str], answers: pd.DataFrame, edits: Sequence[Scale], level: float
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
        after = {edit: _scores(frames[str(edit)]) for edit in kind if str(edit) in frames}
        p = [perplexity_p(before, scores, tokens) for scores in after.values()]
        known = [1.0 if math.isnan(value) else value for value in p]
        corrected = holm([*known, *[1.0] * (len(kind) - len(p))])
        for place, (edit, scores) in enumerate(after.items()):
            ratio = perplexity_ratio(before, scores, tokens, level)
            cells.append(
                TextUnderEdit(
                    layer=edit.layer,
                    unit=edit.unit,
                    factor=edit.factor,
                    perplexity=Estimate.of(perplexity(scores, tokens, level)),
                    ratio=Estimate.of(ratio, p[place], corrected[place] if math.isfinite(ratio.value) else None),
                )
            )
    return TextResult(
        task=task,
        texts=len(ids),
        tokens=int(tokens.sum()),
        baseline=Estimate.of(perplexity(before, tokens, level)),
        planned=len(edits),
        cells=cells,
    )


def _scores(frame: pd.DataFrame) -> Float[np.ndarray, " texts"]:
    return np.array([scores[0] if len(scores) else math.nan for scores in frame["scores"]], dtype=np.float64)
