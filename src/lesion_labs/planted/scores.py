"""Scores of a method on planted truth: of its ranking of places, and of the places that it names.

Places with the same score stand in no order: rank and average precision are means over all their orders. A method that
scores all places alike so has the scores of a random order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lesion.errors import LesionError


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
    """The mean rank of the best true place among it and all places that are not true: 1 for the highest score."""
    true = _checked(scores, truth)
    best = max(scores[place] for place in true)
    others = [score for place, score in scores.items() if place not in true]
    tied = sum(scores[place] == best for place in true)
    # Of o others in random order with t true places, o / (t + 1) stand before the first true one.
    return 1 + sum(score > best for score in others) + sum(score == best for score in others) / (tied + 1)


def average_precision(scores: Mapping[str, float], truth: Collection[str]) -> float:
    """Average precision: the mean over true places of the share of true ones among the places down to it. 1 where all
    true places stand before all others.
    """
    true = _checked(scores, truth)
    total, before, hits = 0.0, 0, 0
    for bar in sorted(set(scores.values()), reverse=True):
        group = {place for place, score in scores.items() if score == bar}
        size, own = len(group), len(group & true)
        # A place is true with chance own / size; each place before it in the group then with (own − 1) / (size − 1).
        others = (own - 1) / (size - 1) if size > 1 else 0.0
        total += sum(own / size * (hits + 1 + place * others) / (before + place + 1) for place in range(size) if own)
        before, hits = before + size, hits + own
    return total / len(true)


def overlap(named: Collection[str], truth: Collection[str]) -> Overlap:
    """Precision and recall of what is named."""
    hits = len(set(named) & set(truth))
    if not truth:
        raise LesionError("Recall needs at least one true place.")
    return Overlap(hits / len(set(named)) if named else None, hits / len(set(truth)))


def _checked(scores: Mapping[str, float], truth: Collection[str]) -> set[str]:
    if not truth:
        raise LesionError("A ranking is scored against at least one true place.")
    for place in truth:
        if place not in scores:
            raise LesionError(f"The true place {place} has no score; the method must score every place.")
    return set(truth)
