"""The truth of a planted model, read from its folder, and scores of a method on it.

Places with the same score stand in no order: rank and average precision are means over all their orders. A method that
scores all places alike so has the scores of a random order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lesion.core.values import read_value
from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.report.values import Value

CARD, MASKS = "planted.json", "planted.safetensors"
AGAIN = "delete the folder and run the same command again"


class Places(Value):
    """Where a skill lies: as far as the kind of truth says it, empty where it does not.

    Attributes:
        blocks: numbers.
        branches: addresses, `2.attention`, `4.mlp`.
        heads: addresses, `2.attention.head.1`.
        matrices: addresses, `4.mlp.down`.
    """

    blocks: tuple[int, ...] = ()
    branches: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()


class Truth(Places):
    """The card of a model.

    Attributes:
        statement: where the skill lies, in a sentence.
        skill, controls: tasks; `NAME.jsonl` beside the card has the items of each.
        weights: how many weights carry the skill; `planted.safetensors` names them.
        accuracy: of the finished model on every task, in 0…1.
        before: of the model before the skill was planted; None where it was not planted afterwards.
    """

    kind: str
    seed: int
    recipe: dict[str, Any]
    statement: str
    skill: str
    controls: tuple[str, ...]
    weights: int
    accuracy: dict[str, float]
    before: dict[str, float] | None = None


def read_truth(folder: Path | str) -> Truth:
    """The card in the folder of a planted model."""
    truth = read_value(Truth, Path(folder) / CARD, AGAIN)
    if truth is None:
        raise UsageError(f"{folder} has no {CARD}; give a folder that `lesion lab planted` made, such as block-0.")
    return truth


def read_masks(folder: Path | str) -> dict[str, Bool[Tensor, "out in"]]:
    """Which weights carry the skill, by the address of their matrix; none where the card names no weights."""
    truth, path = read_truth(folder), Path(folder) / MASKS
    if truth.weights == 0:
        return {}
    try:
        masks = {address: mask.to(torch.bool) for address, mask in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise LesionError(f"{path} cannot be read: {reason(error)}; {AGAIN}.") from error
    if sum(int(mask.sum()) for mask in masks.values()) != truth.weights:
        raise LesionError(f"{path} does not name the {truth.weights:,} weights of the card; {AGAIN}.")
    return masks


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
