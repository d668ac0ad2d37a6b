"""Buffer: numbers of the rows of a batch that change where they lie, so that what was recorded reads the new ones."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


class Buffer:
    """Numbers of all rows on the CPU, and their copies on devices, changed together and in place.

    Args:
        numbers: of the rows, along the last axis.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers
        self._on: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def on(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The copy on a device, from now on always the same."""
        if (device, dtype) not in self._on:
            self._on[device, dtype] = self.numbers.to(device, dtype, copy=True)
        return self._on[device, dtype]

    def put(self, rows: Int[Tensor, " seated"], numbers: Tensor) -> None:
        """Give rows other numbers."""
        self.numbers[..., rows] = numbers
        for (device, dtype), copy in self._on.items():
            copy[..., rows.to(device)] = numbers.to(device, dtype)
