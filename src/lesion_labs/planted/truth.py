"""Truth: where a planted skill lies, as the card `planted.json` beside a model states it."""

from __future__ import annotations

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
        kind, seed, recipe: how it was made.
        statement: where the skill lies, in a sentence.
        skill, controls: names of the tasks; `NAME.jsonl` beside the card has the items of each.
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
