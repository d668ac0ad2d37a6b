"""Growing: in a first pass of the simple way, rows of one prompt run as one up to the block where their edit begins.

The network is given all rows. Its first block runs on one row per prompt, the trunk, which is the row whose edit begins
last; every other row joins, as a copy, at the first block that its edit changes. After the pass each layer of the cache
gets the rows that it lacks, as copies of their trunks', and the next passes run on all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from lesion.edits.place import UNITS
from lesion.edits.table import Table
from lesion.engines.transformers.ways import cache_in, tensors_of
from lesion.errors import LesionError
from lesion.models.load import Model


@dataclass(frozen=True, eq=False)
class Growth:
    """How a batch grows.

    Attributes:
        rows: of the given ones the trunks, then the others in the order in which they join.
        trunks: the trunk of each of these, by its place among them.
        rows_at: how many of them each block runs on.
        earlier: whether each starts from the input of the block before the one it joins at.
    """

    rows: Int[Tensor, " rows"]
    trunks: Int[Tensor, " rows"]
    rows_at: Sequence[int]
    earlier: Bool[Tensor, " rows"]

    @classmethod
    def of(cls, prompt_of_row: Int[Tensor, " rows"], table: Table, every: bool) -> Growth:
        """That of rows with these prompts, by number, each under its column of a table.

        Args:
            every: whether all rows come out of the last block, those too that no edit parts from their trunk; else
                these never join, and a row whose edit takes its first block away does not run through that.
        """
        starts, last = table.first_edited(), table.blocks - 1
        trunks = begins_last(prompt_of_row, starts, int(prompt_of_row.max()) + 1)
        earlier = torch.zeros_like(starts, dtype=torch.bool) if every else without_its_first(table, starts)
        earlier[trunks] = False
        joins = (starts + earlier).clamp(max=last if every else table.blocks)
        joins[trunks] = -1
        rows = joins.sort(stable=True).indices[: int((joins <= last).sum())]
        rows[: len(trunks)] = trunks
        rows_at = [int((joins <= layer).sum()) for layer in range(table.blocks)]
        return cls(rows, prompt_of_row[rows], rows_at, earlier[rows])

    def fill(self, value: Tensor, rows: int) -> Tensor:
        """A tensor with its first `rows` rows, where the later ones are those of their trunks."""
        return value.index_select(0, self.sources(len(value))[:rows].to(value.device))

    def sources(self, count: int) -> Int[Tensor, " rows"]:
        """Which of the first `count` rows each row is the same as."""
        return torch.cat([torch.arange(count), self.trunks[count:]])

    def fitted(self, value: Any, rows: int, handed: Sequence[Any], lent: bool = False) -> Any:
        """A block's input for its first rows.

        What all rows of a prompt have alike is cut. What the block before handed on, and what blocks lend to all later
        ones in a mapping, gets the rows that joined since. The mapping stays the same object, for blocks write to it.
        """
        if isinstance(value, Tensor):
            given = len(value) if value.dim() > 1 else 0
            if rows < given == len(self.rows):  # or something else that has as many
                return value[:rows] if torch.equal(value[-1], value[int(self.trunks[-1])]) else value
            lent = lent or any(value is other for other in handed)
            return self.fill(value, rows) if lent and given in self.rows_at and given < rows else value
        if type(value) in (tuple, list):
            return type(value)(self.fitted(part, rows, handed, lent) for part in value)
        if isinstance(value, MutableMapping):
            for key, part in value.items():
                value[key] = self.fitted(part, rows, handed, lent=True)
        return value


@contextmanager
def growing(model: Model, growth: Growth, then: Callable[[], None]) -> Iterator[None]:
    """Inside, the first pass grows so, given its rows in the order of `growth`; `then` is called at its end."""
    came = [len(growth.rows)]
    handed: list[Any] = []

    def grow(layer: int, stream: Tensor, others: dict[Any, Any]) -> tuple[Tensor, dict[Any, Any]]:
        if len(came) != layer + 1 or len(stream) != came[-1]:
            raise LesionError(f"Block {layer} of {model.anatomy.name} was not given what the block before it gave.")
        came.append(rows := growth.rows_at[layer])
        stream = growth.fill(stream, rows) if layer else stream[:rows]
        return stream, {key: growth.fitted(value, rows, handed) for key, value in others.items()}

    def hand_on(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        handed[:] = output[1:] if isinstance(output, tuple) else []

    def end(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        hooks.close()
        cache = cache_in(output)
        for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", ()):
            first = next((tensor for tensor in tensors_of(layer) if tensor.dim()), None)
            if first is not None and len(first) < len(growth.rows):
                layer.reorder_cache(growth.sources(len(first)).to(first.device))
        then()

    with ExitStack() as hooks:
        hooks.enter_context(before_blocks(model, grow))
        for block in model.anatomy.blocks:
            hooks.enter_context(block.module.register_forward_hook(hand_on))
        hooks.enter_context(model.network.register_forward_hook(end))
        yield


@contextmanager
def before_blocks(
    model: Model, grow: Callable[[int, Tensor, dict[Any, Any]], tuple[Tensor, dict[Any, Any]] | None]
) -> Iterator[None]:
    """Inside, `grow` makes of a block's number, its stream and its other inputs, by name or place, what it is given."""

    def hook(layer: int, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        given: dict[Any, Any] = dict(enumerate(args))
        given.update(kwargs)
        name = 0 if args else "hidden_states"
        grown = grow(layer, given.pop(name), given)
        if grown is None:
            return None
        given = {name: grown[0], **grown[1]}
        return tuple(given[place] for place in range(len(args))), {key: given[key] for key in kwargs}

    with ExitStack() as hooks:
        for block in model.anatomy.blocks:
            # Before the gates' own hooks, so that these see the grown batch.
            wrapped = partial(hook, block.index)
            hooks.enter_context(block.module.register_forward_pre_hook(wrapped, prepend=True, with_kwargs=True))
        yield


def begins_last(
    prompt_of_row: Int[Tensor, " rows"], starts: Int[Tensor, " rows"], prompts: int
) -> Int[Tensor, " prompts"]:
    """Per prompt, the row whose edit begins last: a baseline where there is one."""
    last = [-1] * prompts
    for row, (prompt, start) in enumerate(zip(prompt_of_row.tolist(), starts.tolist(), strict=True)):
        if last[prompt] < 0 or start > starts[last[prompt]]:
            last[prompt] = row
    return torch.tensor(last)


def without_its_first(table: Table, starts: Int[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """Which rows' edits take away the whole of the block that they begin with, and leave another to join at."""
    inner = starts.clamp(max=table.blocks - 1)
    gone = table.scales[inner, UNITS.index("block"), torch.arange(table.columns)] == 0
    return gone & (starts < table.blocks - 1)
