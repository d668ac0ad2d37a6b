"""Token sums: squares and counts of what flows in a batch, added up over the tokens of every text, without padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Numbers that are squared in float64 at a time: 32 MB of them.
CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Batch:
    """Which positions of a running batch are tokens: the first `lengths[row]` of every row of `width`."""

    lengths: tuple[int, ...]
    width: int
    _cache: dict[tuple[str, torch.device], Tensor] = field(default_factory=dict, repr=False)

    def mask(self, device: torch.device) -> Bool[Tensor, "rows width"]:
        """True where a token stands."""
        if ("mask", device) not in self._cache:
            lengths = torch.tensor(self.lengths)
            self._cache["mask", device] = (torch.arange(self.width) < lengths[:, None]).to(device)
        return self._cache["mask", device]

    def tokens(self, device: torch.device) -> Float[Tensor, " rows"]:
        """Tokens of every row, float64."""
        if ("tokens", device) not in self._cache:
            self._cache["tokens", device] = torch.tensor(self.lengths, dtype=torch.float64).to(device)
        return self._cache["tokens", device]

    @property
    def padded(self) -> bool:
        """Whether some row is shorter than the batch."""
        return min(self.lengths) < self.width


@dataclass(frozen=True, eq=False)
class TextSums:
    """Sums over the tokens of every text of a batch, float64; None for what is not known or comes separately.

    Attributes:
        squares: Σ_t X[t, j]², [rows, in].
        tokens: how many came, [rows].
        active: tokens on which the activation of neuron j was above 0, [rows, in].
    """

    squares: Float[Tensor, "rows in"] | None
    tokens: Float[Tensor, " rows"] | None
    active: Float[Tensor, "rows in"] | None


def by_row(incoming: Tensor, batch: Batch, size: int) -> Float[Tensor, "rows width in"] | None:
    """What a module is given, one vector per position; else None.

    OPT and routers are given rows end to end, latent attention has an axis of one head.
    """
    rows, width = len(batch.lengths), batch.width
    if not incoming.is_floating_point() or incoming.shape[-1] != size:
        return None
    axes = [count for count in incoming.shape[:-1] if count > 1]
    if axes in ([count for count in (rows, width) if count > 1], [rows * width]):
        return incoming.reshape(rows, width, size)
    return None


def row_sums(values: Float[Tensor, "rows width in"], batch: Batch) -> Float[Tensor, "rows in"]:
    """Σ_t x² over the tokens of every row, squared and summed in float64."""
    if values.device.type == "cpu":
        # In float64 without a copy of the whole, which squares in place.
        return _by_row(values, batch, torch.float64, lambda part, out: out.copy_(part).square_())
    return sums_at_once(values, batch)


def sums_at_once(values: Float[Tensor, "rows width in"], batch: Batch) -> Float[Tensor, "rows in"]:
    """`row_sums` by few large kernels: a loop over rows would keep an accelerator waiting."""
    rows, width, size = values.shape
    sums = torch.zeros(rows, size, dtype=torch.float64, device=values.device)
    step = max(1, CHUNK * 2 // (width * size))
    for start in range(0, rows, step):
        part = values[start : start + step].double()
        if batch.padded:
            part = part.masked_fill(~batch.mask(values.device)[start : start + step, :, None], 0.0)
        sums[start : start + step] = part.square().sum(1)
    return sums


def row_counts(values: Float[Tensor, "rows width in"], batch: Batch) -> Float[Tensor, "rows in"]:
    """On how many tokens of every row a value is above 0; float64, exact."""
    if values.device.type == "cpu":
        # Ones in float32 are added up several times as fast as booleans, and exactly up to 2²⁴ of them.
        return _by_row(values, batch, torch.float32, lambda part, out: torch.gt(part, 0, out=out))
    return counts_at_once(values, batch)


def counts_at_once(values: Float[Tensor, "rows width in"], batch: Batch) -> Float[Tensor, "rows in"]:
    """`row_counts` by few large kernels."""
    positive = values > 0
    if batch.padded:
        positive &= batch.mask(values.device)[:, :, None]
    return positive.sum(1).double()


def _by_row(
    values: Float[Tensor, "rows width in"], batch: Batch, dtype: torch.dtype, fill: Callable[[Tensor, Tensor], Tensor]
) -> Float[Tensor, "rows in"]:
    """Sums over tokens of what `fill` makes, in one piece of memory that is used again; padding is not touched."""
    rows, width, size = values.shape
    sums = torch.zeros(rows, size, dtype=torch.float64)
    step = max(1, CHUNK // size)
    space = torch.empty(min(width, step), size, dtype=dtype)
    for row, length in enumerate(batch.lengths):
        for start in range(0, length, step):
            stop = min(start + step, length)
            sums[row] += fill(values[row, start:stop], space[: stop - start]).sum(0)
    return sums
