"""Static slots: keys and values in buffers that stay where they are, so that a step over them can be recorded.

Row r holds its tokens in columns 0 … length_r − 1, whatever the others hold. A step writes the newest token of every
row behind these, looks at columns up to a common window, and tells the network by masks which of them a row has.
Lengths lie on the device: a recorded step reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache

from lesion.engines.transformers.states import KeptRows, RowsCache, has_keys, has_states
from lesion.models.load import Model

# Columns in which the window of a step grows: each window is a recording of its own.
WINDOW = 128
# What networks call the mask of recurrent blocks, which a step needs not, and that of blocks which attend too.
_RECURRENT = ("linear_attention", "mamba")
_ATTENDING = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}


class StaticSlots(RowsCache):
    """Keys and values, and states, of a fixed number of rows.

    Attributes:
        lengths: [rows] on the device, the tokens that each row holds; the next one is written to that column.
        window: columns that a step looks at.
    """

    compileable = True

    def __init__(self, config: PretrainedConfig, rows: int, capacity: int, device: torch.device) -> None:
        super().__init__(config)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.row = torch.arange(rows, device=device)
        self.columns = torch.arange(capacity, device=device)
        self.window = min(WINDOW, capacity)

    @property
    def capacity(self) -> int:
        """Tokens that a row can hold."""
        return len(self.columns)

    @property
    def width(self) -> int:
        """Columns that a step looks at beside the one of the newest token."""
        return self.window - 1

    def written(self, layer: Any, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write what a layer is given of the newest tokens; all that these attend to."""
        for held, new in ((layer.keys, keys), (layer.values, values)):
            held[self.row, :, self.lengths] = new[:, :, 0]
        return layer.keys[:, :, : self.window], layer.values[:, :, : self.window]

    def insert(self, kept: KeptRows, mask: Tensor, slots: Int[Tensor, " new"], unread: Int[Tensor, " new"]) -> None:
        """Put freshly computed prompts, padded on the left, into rows; arguments as of `Slots.insert`.

        Behind its tokens a row holds others of its own, or zeros: numbers that are finite if the row's are, since
        also a masked column is multiplied.
        """
        length, device = mask.shape[1], self.lengths.device
        computed = mask.sum(1).to(device)
        lengths = computed - unread.to(device)
        slots, width = slots.to(device), int(lengths.max())
        columns = (length - computed[:, None] + torch.arange(width, device=device)).clamp(max=length - 1)
        for layer, (fresh, source) in zip(self.layers, kept, strict=True):
            if has_states(layer):
                layer.put(fresh, source, slots, len(self.lengths))
            for name in ("keys", "values") if has_keys(layer) else ():
                new, target = getattr(fresh, name), getattr(layer, name)
                if target is None:
                    target = new.new_zeros(len(self.lengths), new.shape[1], self.capacity, new.shape[3])
                    setattr(layer, name, target)
                # Of an index, a slice and an index, torch puts the indexed dimensions first.
                target[slots, :, :width] = new[source.to(device)[:, None], :, columns].transpose(1, 2)
                target[slots, :, width:] = 0
        self.lengths[slots] = lengths

    def vacate(self, rows: Int[Tensor, " left"], live: Int[Tensor, " live"]) -> None:
        """Rows that nobody reads any more begin again at the first column, so that they stay within the context."""
        self.lengths[rows.to(self.lengths.device)] = 0

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, in this order, in new buffers; one may be named several times."""
        rows = rows.to(self.lengths.device)
        for layer in self.recurrent:
            layer.keep(rows)
        for layer in self.attending:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        self.lengths = self.lengths[rows]
        self.row = torch.arange(len(rows), device=self.row.device)

    def widen(self, capacity: int) -> None:
        """Hold more tokens a row, in new buffers."""
        more = capacity - self.capacity
        for layer in self.attending if self.attending and self.attending[0].keys is not None else ():
            layer.keys, layer.values = (torch.nn.functional.pad(t, (0, 0, 0, more)) for t in (layer.keys, layer.values))
        self.columns = torch.arange(capacity, device=self.columns.device)

    def visible(self, sliding: int | None = None, chunked: bool = False) -> Bool[Tensor, "rows 1 1 window"]:
        """Which columns a row's newest token sees: all of the row, or those of a sliding window or of its own chunk."""
        columns, newest = self.columns[: self.window], self.lengths[:, None]
        seen = columns <= newest
        if sliding is not None:
            seen &= columns >= newest - newest % sliding if chunked else columns > newest - sliding
        return seen[:, None, None]

    def advance(self) -> None:
        """The step's token belongs to its row."""
        self.lengths.add_(1).clamp_(max=self.capacity - 1)


class Masks:
    """How a network is told which columns a row sees.

    Args:
        by_kind: whether it takes a mask for each kind of its layers; else it takes one.

    Raises:
        ValueError: it cannot be told so.
    """

    def __init__(self, model: Model, by_kind: bool) -> None:
        config = model.network.config.get_text_config(decoder=True)
        kinds: Sequence[str] = getattr(config, "layer_types", None) or ()
        layers = DynamicCache(config=config).layers
        attending = [number for number, layer in enumerate(layers) if has_keys(layer)]
        windows = {number: getattr(layers[number], "sliding_window", None) for number in attending}
        if by_kind and not kinds:
            raise ValueError("its layers are of no kinds")
        if not by_kind and len(set(windows.values())) > 1:
            raise ValueError("its layers see different columns, and it takes one mask for all")
        self._unmasked = {*kinds, *_RECURRENT} if by_kind and any(map(has_states, layers)) else set()
        self._sliding = {_ATTENDING.get(kinds[at], kinds[at]): windows[at] for at in attending} if by_kind else {}
        self._only = None if by_kind else next(iter(windows.values()), None)
        self._attends = bool(attending)
        self._additive = model.network.config._attn_implementation == "eager"
        self._dtype = model.dtype

    def of(self, slots: StaticSlots) -> Tensor | dict[str, Tensor | None] | None:
        """For the next step; None where no block attends."""
        if not self._attends:
            return None
        if self._sliding:
            masks = {
                kind: self._mask(slots, sliding, kind == "chunked_attention") for kind, sliding in self._sliding.items()
            }
            return {**dict.fromkeys(self._unmasked), "attention": next(iter(masks.values())), **masks}
        return self._mask(slots, self._only)

    def _mask(self, slots: StaticSlots, sliding: int | None, chunked: bool = False) -> Tensor:
        seen = slots.visible(sliding, chunked)
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros_like(seen, dtype=self._dtype).masked_fill(~seen, lowest)
