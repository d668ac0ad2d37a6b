"""Static slots: keys and values in buffers that stay where they are, so that a step over them can be recorded.

Row r holds its tokens in columns 0 … length_r − 1, whatever the others hold. A step writes the newest token of every
row behind these, looks at columns up to a common window, and tells the network by masks which of them a row has.
Lengths lie on the device: a recorded step reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from lesion.engines.transformers.states import StateRows, has_keys, has_states, layers_as
from lesion.models.load import Model

# Columns in which the window of a step grows: each window is a recording of its own.
WINDOW = 128
# What networks call the mask of recurrent blocks, which a step needs not, and that of blocks which attend too.
_RECURRENT = ("linear_attention", "mamba")
_ATTENDING = {"hybrid": "full_attention", "hybrid_sliding": "sliding_attention"}


class _Layer(CacheLayerMixin):
    """One layer's keys and values, [rows, heads, capacity, size]."""

    is_compileable = True
    is_sliding = False
    layer_type = "full_attention"

    def __init__(self, slots: StaticSlots) -> None:
        super().__init__()
        self.slots = slots
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        slots = self.slots
        rows, capacity = len(slots.lengths), len(slots.columns)
        self.keys, self.values = (
            like.new_zeros(rows, like.shape[1], capacity, like.shape[3]) for like in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        slots = self.slots
        for held, new in ((self.keys, key_states), (self.values, value_states)):
            held[slots.row, :, slots.lengths] = new[:, :, 0]
        return self.keys[:, :, : slots.window], self.values[:, :, : slots.window]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots.window, 0

    def get_seq_length(self) -> int:
        return self.slots.window - 1

    def get_max_length(self) -> int:
        return len(self.slots.columns)


class _Both(_Layer, StateRows):
    """Of a block with attention and states."""

    def __init__(self, slots: StaticSlots, number_of_states: int) -> None:
        StateRows.__init__(self, number_of_states)
        _Layer.__init__(self, slots)


class StaticSlots(Cache):
    """Keys and values, and states, of a fixed number of rows.

    Attributes:
        lengths: [rows] on the device, the tokens that each row holds; the next one is written to that column.
        window: columns that a step looks at.
    """

    def __init__(self, config: PretrainedConfig, rows: int, capacity: int, device: torch.device) -> None:
        layers = layers_as(config, _Layer, _Both, StateRows, self)
        super().__init__(layers=layers)
        self.attending = [layer for layer in layers if has_keys(layer)]
        self.recurrent = [layer for layer in layers if has_states(layer)]
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.row = torch.arange(rows, device=device)
        self.columns = torch.arange(capacity, device=device)
        self.window = min(WINDOW, capacity)

    @property
    def capacity(self) -> int:
        """Tokens that a row can hold."""
        return len(self.columns)

    def insert(
        self,
        keys: Sequence[Float[Tensor, "_ heads length size"]],
        values: Sequence[Float[Tensor, "_ heads length value_size"]],
        sources: Sequence[Int[Tensor, " new"]],
        mask: Tensor,
        slots: Int[Tensor, " new"],
        unread: Int[Tensor, " new"],
        states: Sequence[tuple[StateRows, Int[Tensor, " new"]]] = (),
    ) -> None:
        """Put freshly computed prompts, padded on the left, into rows; arguments as of `Slots.insert`.

        Behind its tokens a row holds others of its own, or zeros: numbers that are finite if the row's are, since
        also a masked column is multiplied.
        """
        length, device = mask.shape[1], self.lengths.device
        computed = mask.sum(1).to(device)
        kept = computed - unread.to(device)
        slots, width = slots.to(device), int(kept.max())
        columns = (length - computed[:, None] + torch.arange(width, device=device)).clamp(max=length - 1)
        for state, (fresh, source) in zip(self.recurrent, states, strict=True):
            state.put(fresh, source, slots, len(self.lengths))
        for layer, key, value, source in zip(self.attending, keys, values, sources, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(key, value)
            for target, new in ((layer.keys, key), (layer.values, value)):
                # Of an index, a slice and an index, torch puts the indexed dimensions first.
                target[slots, :, :width] = new[source.to(device)[:, None], :, columns].transpose(1, 2)
                target[slots, :, width:] = 0
        self.lengths[slots] = kept

    def vacate(self, rows: Int[Tensor, " left"], live: Int[Tensor, " live"]) -> None:
        """Rows that nobody reads any more begin again at the first column, so that they stay within the context."""
        self.lengths[rows.to(self.lengths.device)] = 0

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, in this order, in new buffers."""
        rows = rows.to(self.lengths.device)
        for layer in self.recurrent:
            layer.keep(rows)
        for layer in self.attending:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        self.lengths = self.lengths[rows]
        self.row = self.row[: len(rows)]

    def widen(self, capacity: int) -> None:
        """Hold more tokens a row, in new buffers."""
        more = capacity - self.capacity
        for layer in self.attending if self.attending and self.attending[0].is_initialized else ():
            layer.keys, layer.values = (torch.nn.functional.pad(t, (0, 0, 0, more)) for t in (layer.keys, layer.values))
        self.columns = torch.arange(capacity, device=self.columns.device)

    def visible(self, sliding: int | None = None) -> Bool[Tensor, "rows 1 1 window"]:
        """Which columns a row's newest token sees: all of the row, or those of a sliding window."""
        columns, newest = self.columns[: self.window], self.lengths[:, None]
        seen = columns <= newest
        if sliding is not None:
            seen &= columns > newest - sliding
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
        self._additive = model.network.config._attn_implementation == "eager"
        self._dtype = model.dtype

    def of(self, slots: StaticSlots) -> Tensor | dict[str, Tensor | None]:
        """For the next step."""
        if self._sliding:
            masks = {kind: self._mask(slots, sliding) for kind, sliding in self._sliding.items()}
            return {**dict.fromkeys(self._unmasked), "attention": next(iter(masks.values())), **masks}
        return self._mask(slots, self._only)

    def _mask(self, slots: StaticSlots, sliding: int | None) -> Tensor:
        seen = slots.visible(sliding)
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros_like(seen, dtype=self._dtype).masked_fill(~seen, lowest)
