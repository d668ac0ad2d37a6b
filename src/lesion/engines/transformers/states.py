"""States: what the blocks of a cache keep of a changing set of rows, keys and values or the states of recurrent blocks.

A state, such as the sums of linear attention and state spaces, is that of all tokens that a row has read: none of them
can be taken out of it again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

KeptRows = Sequence[tuple[Any, Int[Tensor, " rows"]]]
"""The layers of a cache after a pass, in the order of blocks, and of each the row that each of some texts reads."""
_FLAGS = ("is_conv_states_initialized", "is_recurrent_states_initialized", "has_previous_state", "conv_kernel_size")


def layers_as(
    config: PretrainedConfig,
    keys: Callable[..., Any],
    both: Callable[..., Any],
    states: Callable[..., Any],
    *given: Any,
) -> list[Any]:
    """Layers of a cache, made for each block by what it keeps: keys and values, these and states, or states alone.

    Layers with keys and values are `given` something, and those with states their number.
    """
    text = config.get_text_config(decoder=True)
    layers: list[Any] = []
    for like in DynamicCache(config=config).layers or [DynamicLayer() for _ in range(text.num_hidden_layers)]:
        number = {"number_of_states": like.number_of_states} if has_states(like) else {}
        if has_keys(like):
            layers.append((both if number else keys)(*given, **number))
        else:
            layers.append(states(**number) if number else like)
    return layers


def has_states(layer: object) -> bool:
    """Whether a layer of a cache keeps states."""
    return isinstance(layer, LinearAttentionCacheLayerMixin)


def has_keys(layer: object) -> bool:
    """Whether a layer of a cache keeps keys and values."""
    return isinstance(layer, CacheLayerMixin)


class StateRows(LinearAttentionLayer):
    """A block's states of a changing set of rows: a convolution's last inputs, and sums, [rows, …] each."""

    device: torch.device | None
    dtype: torch.dtype | None

    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states)

    def put(self, new: StateRows, sources: Int[Tensor, " new"], slots: Int[Tensor, " new"], rows: int) -> None:
        """Put states of another layer into rows, of which there are `rows` then."""
        for name in ("conv_states", "recurrent_states"):
            held: dict[int, Tensor | None] = getattr(self, name)
            for index, state in getattr(new, name).items():
                if state is None:
                    continue
                before = held[index]
                kept = state.new_zeros(rows, *state.shape[1:]) if before is None or len(before) < rows else before
                if before is not None and kept is not before:
                    kept[: len(before)] = before
                kept[slots.to(state.device)] = state.index_select(0, sources.to(state.device))
                held[index] = kept
        for name in _FLAGS:
            setattr(self, name, dict(getattr(new, name)))
        self.device, self.dtype = new.device, new.dtype

    @property
    def tensors(self) -> list[Tensor]:
        """All states."""
        return [
            state
            for states in (self.conv_states, self.recurrent_states)
            for state in states.values()
            if state is not None
        ]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, in this order."""
        LinearAttentionLayer.reorder_cache(self, rows)


class _KeyRows(CacheLayerMixin):
    """A block's keys and values, [rows, heads, capacity, size]; its cache says where they are written and read."""

    is_sliding = False
    layer_type = "full_attention"

    def __init__(self, cache: Any) -> None:
        CacheLayerMixin.__init__(self)
        self.cache = cache
        self.is_compileable = cache.compileable
        self.is_initialized = True  # with the first rows

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None: ...

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.written(self, key_states, value_states)
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.width + query_length, 0

    def get_seq_length(self) -> int:
        return int(self.cache.width)

    def get_max_length(self) -> int:
        return -1


class _BothRows(_KeyRows, StateRows):
    """Of a block with attention and states."""

    def __init__(self, cache: Any, number_of_states: int) -> None:
        StateRows.__init__(self, number_of_states)
        _KeyRows.__init__(self, cache)


class RowsCache(Cache):
    """Keys and values, and states, of rows that come and go; it has a `width`, and says what is `written`."""

    compileable: ClassVar[bool] = False

    def __init__(self, config: PretrainedConfig) -> None:
        # Weakly, so that the memory of a cache that is given up is free at once.
        super().__init__(layers=layers_as(config, _KeyRows, _BothRows, StateRows, weakref.proxy(self)))
        self.attending = [layer for layer in self.layers if has_keys(layer)]
        self.recurrent = [layer for layer in self.layers if has_states(layer)]
