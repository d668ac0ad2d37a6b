"""Not finite: which tensors of a model hold values that are not finite, so that nothing it says can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lesion.models.fingerprint import stored_tensors

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedModel

NAMED = 3


@dataclass(frozen=True)
class NotFinite:
    """A parameter or stored buffer of `size` values, some of them NaN or infinite."""

    name: str
    nan: int
    infinite: int
    size: int

    def __str__(self) -> str:
        kinds = [f"{self.nan:,} NaN"] * (self.nan > 0) + [f"{self.infinite:,} infinite"] * (self.infinite > 0)
        return f"{self.name} ({' and '.join(kinds)} of {self.size:,})"


def not_finite(network: PreTrainedModel) -> tuple[NotFinite, ...]:
    """Every tensor of a network that is not finite throughout, by name; one pass over the weights."""
    broken = (not_finite_in(name, tensor) for name, tensor in stored_tensors(network))
    return tuple(tensor for tensor in broken if tensor is not None)


def not_finite_in(name: str, tensor: Tensor) -> NotFinite | None:
    """How many values of a tensor are not finite; None where all are."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    # The extremes of a tensor are finite exactly when all of it is; no copy of it is made.
    values = tensor.detach()
    low, high = torch.aminmax(values.float() if values.element_size() == 1 else values)
    if bool(low.isfinite() & high.isfinite()):
        return None
    return NotFinite(name, int(tensor.isnan().sum()), int(tensor.isinf().sum()), tensor.numel())


def complaint(broken: Sequence[NotFinite], model: str) -> str:
    """What is wrong with the weights of a model, as one sentence; empty where nothing is."""
    if not broken:
        return ""
    more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    what = "tensor" if len(broken) == 1 else "tensors"
    named = ", ".join(map(str, broken[:NAMED]))
    return f"{model} has {len(broken)} {what} with values that are not finite: {named}{more}."
