"""Margins: of tasks that compare a right and a tempting token, how much of their log-probabilities' difference is lost.

The difference log p(right) − log p(tempting) is that of the two logits, the metric of Wang et al. (2023). It moves
where no answer changes yet, so that it shows small effects of single heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.core.values import Estimate
from lesion.statistics.contrasts import mean, mean_p
from lesion.statistics.paired import holm
from lesion.studies.ablation.sweep import PlaceEdit


def compares(answers: pd.DataFrame) -> bool:
    """Whether every answer holds the log-probabilities of two tokens."""
    return "ranks" in answers and len(answers) > 0 and bool(answers["ranks"].map(len).eq(2).all())


def margins(
    baseline: pd.DataFrame, answered: Mapping[PlaceEdit, pd.DataFrame], tests: int, level: float
) -> dict[PlaceEdit, Estimate]:
    """By edit, the mean over items of the unedited difference minus that under the edit, in nats.

    With Student's interval and p, which Holm's method corrects over all `tests`. An edit under which a log-probability
    is not finite is left out, and all are where the task compares no tokens.
    """
    if not compares(baseline):
        return {}
    unedited = _differences(baseline)
    lost = {edit: unedited - _differences(frame) for edit, frame in answered.items() if compares(frame)}
    known = {edit: values for edit, values in lost.items() if len(values) > 1 and np.isfinite(values).all()}
    p = [mean_p(values) for values in known.values()]
    corrected = holm([*p, *[1.0] * (tests - len(p))])
    return {
        edit: Estimate.of(mean(values, level), p[place], corrected[place])
        for place, (edit, values) in enumerate(known.items())
    }


def _differences(frame: pd.DataFrame) -> Float[np.ndarray, " items"]:
    pairs = [tuple(scores) if len(scores) == 2 else (math.nan, math.nan) for scores in frame["scores"]]
    right, tempting = np.array(pairs, dtype=np.float64).T
    return right - tempting
