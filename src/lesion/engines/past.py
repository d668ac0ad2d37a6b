"""Past: keys and values of what rows begin with, computed before, put under what is computed now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


@dataclass(frozen=True, eq=False)
class Past:
    """Keys and values of one text under many edits, a row for each.

    Attributes:
        keys: per layer, of the rows that it was run on.
        values: the same for values.
        sources: per layer, the stored row that each row reads.
        length: tokens of the text.
    """

    keys: Sequence[Float[Tensor, "_ heads length size"]]
    values: Sequence[Float[Tensor, "_ heads length size"]]
    sources: Sequence[Int[Tensor, " rows"]]
    length: int

    @property
    def size(self) -> int:
        """Tokens that memory is taken for, at most: those of all rows."""
        return self.length * len(self.sources[0])


class Begun(NamedTuple):
    """Where the first tokens of a prompt have their keys and values: in row `row` of `past`, all of it."""

    past: Past
    row: int


Before = Callable[[int], tuple[Tensor, Tensor]]


class Recorder(Cache):
    """Keeps each layer's keys and values of one forward pass, whatever number of rows the layer is run on.

    Args:
        layers: of the network.
        reach: columns that lie before those of the pass.
        before: a layer's keys and values there, by its index; asked for when the layer runs, for as many rows.
    """

    def __init__(self, layers: int, reach: int = 0, before: Before | None = None) -> None:
        super().__init__(layers=[_Layer(layer, reach, before if reach else None) for layer in range(layers)])


class _Layer(DynamicLayer):
    def __init__(self, index: int, reach: int, before: Before | None) -> None:
        super().__init__()
        self.index, self.reach, self.before = index, reach, before

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self.before is None or self.is_initialized:
            keys, values = super().update(key_states, value_states, *args, **kwargs)
            return keys, values
        self.lazy_initialization(key_states, value_states)
        keys, values = self.before(self.index)
        self.keys = torch.cat([keys, key_states], dim=-2)
        self.values = torch.cat([values, value_states], dim=-2)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return int(super().get_seq_length()) if self.is_initialized else self.reach


def known(prompt_of_row: Sequence[int], begun: Sequence[Begun | None], prompts: int) -> list[int]:
    """How many first tokens of each prompt are known for all of its rows."""
    lengths: list[int | None] = [None] * prompts
    for prompt, one in zip(prompt_of_row, begun, strict=True):
        length, before = one.past.length if one else 0, lengths[prompt]
        lengths[prompt] = length if before is None else min(before, length)
    return [length or 0 for length in lengths]


def before(
    begun: Sequence[Begun | None], lengths: Int[Tensor, " rows"], layer: int
) -> tuple[Float[Tensor, "rows heads reach size"], Float[Tensor, "rows heads reach size"]]:
    """A layer's keys and values of the first tokens of every row, so many of each; aligned on the right.

    What stands left of them is another token of the same text, or zeros: to be masked.

    Args:
        begun: per row; None only where its length is 0, but not for all.
        lengths: how many of the known tokens a row wants, from the first on. The largest is the reach.
        layer: its index.
    """
    reach = int(lengths.max())
    together: dict[Past, list[int]] = {}
    for index, one in enumerate(begun):
        if one is not None:
            together.setdefault(one.past, []).append(index)
    found: list[Tensor] = []
    for kind in ("keys", "values"):
        parts = []
        for past, rows in together.items():
            held = getattr(past, kind)[layer]
            chosen = past.sources[layer][torch.tensor([begun[row].row for row in rows])]  # type: ignore[union-attr]
            columns = (torch.arange(reach) + (lengths[rows] - reach)[:, None]).clamp(min=0)
            parts.append((rows, of_columns(held, chosen.to(held.device), columns.to(held.device))))
        if len(parts) == 1 and len(parts[0][0]) == len(begun):
            found.append(parts[0][1])
            continue
        whole = parts[0][1].new_zeros(len(begun), *parts[0][1].shape[1:])
        for rows, part in parts:
            whole[torch.tensor(rows, device=whole.device)] = part.to(whole.device)
        found.append(whole)
    return found[0], found[1]


def of_columns(
    held: Float[Tensor, "held heads length size"], rows: Int[Tensor, " new"], columns: Int[Tensor, "new width"]
) -> Float[Tensor, "new heads width size"]:
    """Of every chosen row its own columns."""
    heads, length, size = held.shape[1:]
    head = torch.arange(heads, device=held.device)
    places = (rows[:, None, None] * heads + head[:, None]) * length + columns[:, None]
    return held.reshape(-1, size).index_select(0, places.flatten()).view(len(rows), heads, -1, size)
