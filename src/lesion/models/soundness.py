"""Soundness: which tensors of a model hold values that are not finite, so that nothing it says can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from lesion.models.fingerprint import stored_tensors

NAMED = 3


@dataclass(frozen=True)
class NotFinite:
    """A parameter, or a buffer that a checkpoint holds, with values that are not finite.

    Attributes:
        name: of the tensor, as in the checkpoint.
        nan: how many of its values are not a number.
        infinite: how many are infinite.
        size: how many values it has.
    """

    name: str
    nan: int
    infinite: int
    size: int

    def __str__(self) -> str:
        kinds = [f"{self.nan:,} NaN"] * (self.nan > 0) + [f"{self.infinite:,} infinite"] * (self.infinite > 0)
        return f"{self.name} ({' and '.join(kinds)} of {self.size:,})"


def not_finite(network: PreTrainedModel) -> tuple[NotFinite, ...]:
    """Every tensor of a network that is not finite throughout, by name; one pass over the weights."""
    found = []
    for name, tensor in stored_tensors(network):
        if not tensor.is_floating_point() or tensor.numel() == 0:
            continue
        # The extremes of a tensor are finite exactly when all of it is; no copy of it is made.
        low, high = torch.aminmax(tensor.detach())
        if bool(low.isfinite() & high.isfinite()):
            continue
        nan, infinite = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        found.append(NotFinite(name, nan, infinite, tensor.numel()))
    return tuple(found)


def complaint(found: Sequence[NotFinite], model: str) -> str:
    """What is wrong with the weights of a model, as one sentence; empty where nothing is."""
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    what = "tensor" if len(found) == 1 else "tensors"
    named = ", ".join(map(str, found[:NAMED]))
    return f"{model} has {len(found)} {what} with values that are not finite: {named}{more}."
