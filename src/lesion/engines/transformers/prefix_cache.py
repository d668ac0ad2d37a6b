"""Past: keys and values of what rows begin with, computed earlier, put before what is computed now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionAndFullAttentionLayer

from lesion.engines.transformers.states import KeptRows, StateRows, layers_as


@dataclass(frozen=True, eq=False)
class Past:
    """What a pass left of one text under many edits; it has `length` tokens, and a row takes at most so much memory, in
    whatever is counted.
    """

    kept: KeptRows
    length: int
    row_size: int = 0

    @property
    def size(self) -> int:
        """What all rows take at most."""
        return self.row_size * len(self.kept[0][1])


class Begun(NamedTuple):
    """Where the first tokens of a prompt have their keys and values: in row `row` of `past`, all of it."""

    past: Past
    row: int


Before = Callable[[int, Tensor, Tensor], None]
# Bytes of a row's keys in a layer from which on, on a CPU, rows are copied one by one.
LARGE = 1 << 17


class Recorder(Cache):
    """Keeps what each layer keeps of one forward pass, whatever number of rows it is run on: keys and values, states.

    Args:
        config: of the network.
        reach: columns that lie before those of the pass.
        before: given a layer's index, keys and values, writes these columns; called when the layer runs.
    """

    def __init__(self, config: PretrainedConfig, reach: int = 0, before: Before | None = None) -> None:
        layers = layers_as(config, _Layer, _Both, StateRows, reach, before if reach else None)
        super().__init__(layers=layers)
        for index, layer in enumerate(layers):
            layer.index = index


class _Layer(DynamicLayer):
    index: int

    def __init__(self, reach: int, before: Before | None, **states: int) -> None:
        super().__init__(**states)
        self.reach, self.before = reach, before

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self.before is None or self.is_initialized:
            keys, values = super().update(key_states, value_states, *args, **kwargs)
            return keys, values
        self.lazy_initialization(key_states, value_states)
        rows, heads, length, size = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.reach + length, size)
        self.values = value_states.new_empty(rows, heads, self.reach + length, value_states.shape[-1])
        self.keys[:, :, self.reach :], self.values[:, :, self.reach :] = key_states, value_states
        self.before(self.index, self.keys, self.values)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return int(super().get_seq_length()) if self.is_initialized else self.reach


class _Both(_Layer, StateRows, LinearAttentionAndFullAttentionLayer):
    """Of a block with attention and states."""


def known(prompt_of_row: Sequence[int], begun: Sequence[Begun | None], prompts: int) -> list[int]:
    """How many first tokens of each prompt are known for all of its rows."""
    lengths: dict[int, int] = {}
    for prompt, start in zip(prompt_of_row, begun, strict=True):
        length = start.past.length if start else 0
        lengths[prompt] = min(lengths.get(prompt, length), length)
    return [lengths[prompt] for prompt in range(prompts)]


def begin_states(state: StateRows, number: int, begun: Sequence[Begun | None]) -> None:
    """Have the states of a layer, by its number, begin as those of the first tokens of every row; at zero where none
    are known.
    """
    for past, (rows, of_past) in _by_past(begun).items():
        if past is not None:
            layer, sources = past.kept[number]
            state.put(layer, sources[of_past], rows, len(begun))


def _by_past(begun: Sequence[Begun | None]) -> dict[Past | None, tuple[Tensor, Tensor]]:
    """Rows by what they begin in, None for those that begin in nothing; and of each, its row there."""
    together: dict[Past | None, list[tuple[int, int]]] = {}
    for index, start in enumerate(begun):
        together.setdefault(start.past if start else None, []).append((index, start.row if start else 0))
    numbers = {past: torch.tensor(rows) for past, rows in together.items()}
    return {past: (rows[:, 0], rows[:, 1]) for past, rows in numbers.items()}


def put_before(
    keys: Float[Tensor, "rows heads columns size"],
    values: Float[Tensor, "rows heads columns value_size"],
    begun: Sequence[Begun | None],
    lengths: Int[Tensor, " rows"],
    layer: int,
) -> None:
    """Put a layer's keys and values of the first tokens of every row before what follows them, in place.

    They are aligned on the right of the first columns, as many as the largest length. What stands left of them is
    another token of the same text, or zeros: to be masked.

    Args:
        begun: per row; None only where its length is 0.
        lengths: how many of the known tokens a row wants, from the first on.
    """
    reach = int(lengths.max())
    for past, (chosen, of_past) in _by_past(begun).items():
        if past is None:
            keys[chosen.to(keys.device), :, :reach] = 0
            values[chosen.to(values.device), :, :reach] = 0
            continue
        kept, sources = past.kept[layer]
        for whole, held in ((keys, kept.keys), (values, kept.values)):
            put_columns(whole, chosen, 0, held, sources[of_past], lengths[chosen] - reach, reach)


def put_columns(
    target: Float[Tensor, "rows heads columns size"],
    rows: Int[Tensor, " chosen"],
    start: int,
    held: Float[Tensor, "held heads length size"],
    sources: Int[Tensor, " chosen"],
    starts: Int[Tensor, " chosen"],
    width: int,
) -> None:
    """Copy `width` columns of some rows into others, in place.

    Args:
        rows: of `target`, written from column `start` on.
        sources: the row of `held` that each of them reads.
        starts: the first column that each reads; below 0, column 0 is read.
    """
    heads, length, size = held.shape[1:]
    if held.device.type == "cpu" and heads * width * size * held.element_size() >= LARGE:
        # Row by row: what is gathered first is written twice, and of large memory the system takes its time to give.
        for row, source, first in zip(rows.tolist(), sources.tolist(), starts.tolist(), strict=True):
            missing = max(0, -first)
            target[row, :, start + missing : start + width] = held[source, :, first + missing : first + width]
            if missing:
                target[row, :, start : start + missing] = held[source, :, :1]
        return
    columns = (torch.arange(width) + starts[:, None]).clamp(min=0).to(held.device)
    head = torch.arange(heads, device=held.device)
    places = (sources.to(held.device)[:, None, None] * heads + head[:, None]) * length + columns[:, None]
    gathered = held.reshape(-1, size).index_select(0, places.flatten()).view(len(rows), heads, width, size)
    target[rows.to(target.device), :, start : start + width] = gathered
