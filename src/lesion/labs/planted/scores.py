"""Scores of a method on planted truth: of its ranking of places, and of the places that it names."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from lesion.errors import LesionError
from lesion.statistics.paired import Contrast


@dataclass(frozen=True)
class Overlap:
    """How what is named and what is true overlap.

    Attributes:
        precision: the share of what is named that is true; None where nothing is named.
        recall: the share of what is true that is named.
    """

    precision: float | None
    recall: float


def rank(scores: Mapping[str, float], truth: Collection[str]) -> float:
    """The rank of the best true place among it and all places that are not true: 1 for the highest score. Places that
    tie with it count half.

    Raises:
        LesionError: there is no true place, or one has no score.
    """
    true = _checked(scores, truth)
    best = max(scores[place] for place in true)
    others = [score for place, score in scores.items() if place not in true]
    return 1 + sum(score > best for score in others) + sum(score == best for score in others) / 2


def average_precision(scores: Mapping[str, float], truth: Collection[str]) -> float:
    """Average precision, Σ (R_k − R_{k−1}) P_k over the distinct scores from the highest on; places that tie enter
    together. 1 where all true places stand before all others.

    Raises:
        LesionError: there is no true place, or one has no score.
    """
    true = _checked(scores, truth)
    total, recalled = 0.0, 0.0
    for bar in sorted(set(scores.values()), reverse=True):
        reached = {place for place, score in scores.items() if score >= bar}
        hits = len(reached & true)
        total += (hits / len(true) - recalled) * hits / len(reached)
        recalled = hits / len(true)
    return total


def overlap(named: Collection[str], truth: Collection[str]) -> Overlap:
    """Precision and recall of what is named.

    Raises:
        LesionError: there is no true place.
    """
    hits = len(set(named) & set(truth))
    if not truth:
        raise LesionError("Recall needs at least one true place.")
    return Overlap(hits / len(set(named)) if named else None, hits / len(set(truth)))


def mean(values: Sequence[float], level: float = 0.95) -> Contrast:
    """The mean over seeds with Student's interval; without ends (NaN) of a single seed.

    Raises:
        LesionError: there are no values.
    """
    if not values:
        raise LesionError("A mean over seeds needs at least one.")
    centre, count = float(np.mean(values)), len(values)
    if count == 1:
        return Contrast(centre, math.nan, math.nan)
    half = float(t.isf((1 - level) / 2, count - 1)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Contrast(centre, centre - half, centre + half)


def _checked(scores: Mapping[str, float], truth: Collection[str]) -> set[str]:
    if not truth:
        raise LesionError("A ranking is scored against at least one true place.")
    for place in truth:
        if place not in scores:
            raise LesionError(f"The true place {place} has no score; the method must score every place.")
    return set(truth)
