"""Slots: a key-value cache in which rows come and go while the others decode on.

All rows share one column for the newest token, so a step writes one slice however long each row is: row r holds its
tokens right-aligned in columns `end − length_r … end − 1`. A new row enters right-aligned too; distances between
columns are distances between positions, which is all that causal and sliding-window masks look at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PretrainedConfig

from lesion.engines.transformers.prefix_cache import put_columns
from lesion.engines.transformers.states import KeptRows, RowsCache, has_keys, has_states

# Columns by which the buffers grow at a time: rarer copies against memory lying idle.
GROWTH = 64


class Slots(RowsCache):
    """Keys and values, and states, of a changing set of rows.

    What lies left of a row's first token is finite, if the row itself is: masked columns are multiplied by 0 only.
    Memory is kept from the first row on for `most` rows of `longest` tokens and some more.

    Attributes:
        mask: [rows, capacity] bool, True where a column holds a token of the row.
        lengths: number of tokens each row holds.
    """

    def __init__(self, config: PretrainedConfig, most: int = 0, longest: int = 0) -> None:
        super().__init__(config)
        self.most = most
        self.longest = longest
        self.start = self.end = 0  # the columns in use
        kinds: Sequence[str] = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
        for layer, kind in zip(self.layers, kinds, strict=False):
            # Which mask the network asks a layer about; the buffers themselves are alike.
            layer.is_sliding = kind in ("sliding_attention", "hybrid_sliding")
        self.mask = torch.zeros(0, 0, dtype=torch.bool)
        self.lengths = torch.zeros(0, dtype=torch.long)

    @property
    def rows(self) -> int:
        """Number of rows held."""
        return len(self.lengths)

    @property
    def width(self) -> int:
        """Number of columns that a forward pass attends to, the newest token not counted."""
        return self.end - self.start

    def written(self, layer: Any, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write what a layer is given of the newest tokens; all that these attend to."""
        rows, now = len(keys), self.end + keys.shape[-2]
        for held, new in ((layer.keys, keys), (layer.values, values)):
            held[:rows, :, self.end : now] = new
        return layer.keys[:rows, :, self.start : now], layer.values[:rows, :, self.start : now]

    def insert(
        self, kept: KeptRows, mask: Tensor, slots: Int[Tensor, " new"], unread: Int[Tensor, " new"] | None = None
    ) -> None:
        """Put freshly computed prompts, padded on the left, into rows.

        Args:
            kept: what the pass over them left, and which of its rows each new one is.
            mask: [new, length] bool, False at padding.
            slots: the rows to fill; rows beyond those held are appended, without gaps.
            unread: how many of its last tokens each new row does without; none by default, and where there are states.
        """
        drop = torch.zeros_like(slots) if unread is None else unread
        lengths = mask.sum(1).cpu() - drop
        length = int(lengths.max())
        rows = max(self.rows, int(slots.max()) + 1)
        self._reserve([fresh for fresh, _ in kept], rows, length)
        start, end = self.end - length, self.end
        # Right-aligned anew, without the last tokens of each; what stands left of a row's first token is masked.
        stops = mask.shape[1] - drop
        for layer, (fresh, source) in zip(self.layers, kept, strict=True):
            if has_states(layer):
                layer.put(fresh, source, slots, rows)
            for held, new in ((layer.keys, fresh.keys), (layer.values, fresh.values)) if has_keys(layer) else ():
                put_columns(held, slots, start, new, source, stops - length, length)
                # Also masked, a NaN of a row before this one would reach whoever comes after.
                if start:
                    held[slots.to(held.device), :, :start] = 0
        device = self.mask.device
        self.mask[slots.to(device)] = False
        self.mask[slots.to(device), start:end] = (torch.arange(length) >= length - lengths[:, None]).to(device)
        self.lengths[slots] = lengths

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, in this order."""
        span = slice(self.start, self.end)
        for layer in self.recurrent:
            layer.keep(rows)
        for layer in self.attending:
            chosen = rows.to(layer.keys.device)
            for name in ("keys", "values"):
                held = getattr(layer, name)
                held[: len(rows), :, span] = held[:, :, span].index_select(0, chosen)
                held[: len(rows), :, : span.start] = 0
        self.mask = self.mask[rows.to(self.mask.device)]
        self.lengths = self.lengths[rows]
        self._narrow(int(self.lengths.max()) if len(rows) else 0)

    def vacate(self, rows: Int[Tensor, " left"], live: Int[Tensor, " live"]) -> None:
        """Rows that nobody reads any more: they stop widening the window until they are filled again.

        One column stays visible, for attention over nothing is not defined.
        """
        self.lengths[rows] = 1
        self._narrow(int(self.lengths[live].max()) if len(live) else 1)

    def step_inputs(self) -> tuple[Tensor, Tensor]:
        """Make room for one token in every row; attention mask [rows, width + 1] and positions [rows, 1] for it.

        Without attention the mask is of the new token alone: Mamba 1 multiplies what it is given by it.
        """
        if self.end >= self.mask.shape[1]:
            self._make_room(1)
        # A row that nobody reads has its steps counted too, but no position beyond those of the others: it might be
        # beyond the context, and some rotary embeddings are those of the last position of all.
        self.lengths.clamp_(max=max(self.width, 1))
        end = self.end
        self.mask[:, end] = True
        device = self.mask.device
        return self.mask[:, self.start if self.attending else end : end + 1], self.lengths[:, None].to(device)

    def advance(self) -> None:
        """The step's token has been written to every layer: it now belongs to the rows."""
        self.end += 1
        self.lengths += 1

    def _narrow(self, longest: int) -> None:
        self.start = max(self.start, self.end - longest)

    def _reserve(self, like: Sequence[Any], rows: int, length: int) -> None:
        capacity = max(self.mask.shape[1], max(length, self.longest) + GROWTH)
        held = len(self.attending[0].keys) if self.attending and self.attending[0].keys is not None else 0
        if rows > held or capacity > self.mask.shape[1]:
            # In few strides, for each copies everything.
            self._resize(like, held if rows <= held else max(rows, self.most), capacity)
        self.mask = torch.cat([self.mask, self.mask.new_zeros(rows - len(self.mask), capacity)])
        if self.end < length:
            self._move(length - self.end)
        self.start = min(self.start, self.end - length)
        self.lengths = torch.cat([self.lengths, self.lengths.new_ones(rows - len(self.lengths))])

    def _resize(self, alike: Sequence[Any], rows: int, capacity: int) -> None:
        """Buffers of so many rows and columns, of the kind that the layers of another cache have."""
        for layer, other in zip(self.layers, alike, strict=True):
            for name in ("keys", "values") if has_keys(layer) else ():
                like, old = getattr(other, name), getattr(layer, name)
                # Zeros, not whatever lay there: a masked column still meets 0 · value, and 0 · NaN is NaN.
                new = _zeros((rows, like.shape[1], capacity, like.shape[3]), like)
                if old is not None:
                    new[: len(self.mask), :, : old.shape[2]] = old[: len(self.mask)]
                setattr(layer, name, new)
        device = self.attending[0].keys.device if self.attending else None
        mask = torch.zeros(len(self.mask), capacity, dtype=torch.bool, device=device)
        mask[:, : self.mask.shape[1]] = self.mask
        self.mask = mask

    def _make_room(self, columns: int) -> None:
        """Slide the window to the left edge; grow the buffers when that frees too little."""
        if self.start >= GROWTH // 2:
            self._move(-self.start)
        else:
            self._widen(self.mask.shape[1] + max(GROWTH, self.mask.shape[1] // 4))

    def _widen(self, capacity: int) -> None:
        self._resize(self.layers, len(self.attending[0].keys) if self.attending else 0, capacity)

    def _move(self, by: int) -> None:
        start, end = self.start, self.end
        if end + by > self.mask.shape[1]:
            self._widen(end + by + GROWTH)
        for layer in self.attending:
            for tensor in (layer.keys, layer.values):
                used = tensor[: len(self.mask)]
                used[:, :, start + by : end + by] = used[:, :, start:end].clone()
                # Columns that lay right of all rows may hold whatever rows before these have left there.
                used[:, :, end : start + by] = 0
        moved = self.mask[:, start:end].clone()
        self.mask.zero_()
        self.mask[:, start + by : end + by] = moved
        self.start, self.end = start + by, end + by


def _zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros that a CPU has for nothing until they are written to."""
    if like.device.type != "cpu":
        return like.new_zeros(*shape)
    size = math.prod(shape) * like.element_size()
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(like.dtype).view(*shape)
