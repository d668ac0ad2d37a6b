"""Growing: in a first pass of the simple way, rows of one prompt run as one up to the block where their edit begins.

The network is given all rows. Its first block runs on one row per prompt, the trunk, which is the row whose edit begins
last; every other row joins, as a copy, at the first block that its edit changes. After the pass each layer of the cache
gets the rows that it lacks, as copies of their trunks', and the next passes run on all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lesion.edits.table import Table
from lesion.engines.transformers.prefill import begins_last
from lesion.engines.transformers.ways import cache_in, tensors_of
from lesion.errors import LesionError
from lesion.models.load import Model


@dataclass(frozen=True, eq=False)
class Growth:
    """How a batch grows.

    Attributes:
        rows: the trunks, then the others in the order in which they join.
        trunks: the trunk of each of these.
        rows_at: how many of them each block runs on.
    """

    rows: Int[Tensor, " rows"]
    trunks: Int[Tensor, " rows"]
    rows_at: Sequence[int]

    @classmethod
    def of(cls, prompts: Sequence[tuple[int, ...]], table: Table) -> Growth:
        """That of rows with these prompts, each under its column of a table."""
        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        prompt_of_row = torch.tensor([numbers[prompt] for prompt in prompts])
        starts = table.first_edited()
        trunks = begins_last(prompt_of_row, starts, len(numbers))
        # Rows that no edit parts from their trunk join at the last block, so that all come out of it.
        joins = starts.clamp(max=table.blocks - 1)
        joins[trunks] = -1
        rows = joins.sort(stable=True).indices
        rows[: len(trunks)] = trunks
        return cls(rows, prompt_of_row[rows], [int((joins <= layer).sum()) for layer in range(table.blocks)])

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

    def hook(layer: int) -> Any:
        def grow(
            module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            stream = args[0] if args else kwargs["hidden_states"]
            if len(came) != layer + 1 or len(stream) != came[-1]:
                raise LesionError(f"Block {layer} of {model.anatomy.name} was not given what the block before it gave.")
            came.append(rows := growth.rows_at[layer])
            stream = growth.fill(stream, rows) if layer else stream[:rows]
            others = {
                key: growth.fitted(value, rows, handed) for key, value in kwargs.items() if key != "hidden_states"
            }
            if args:
                return (stream, *(growth.fitted(value, rows, handed) for value in args[1:])), others
            return args, {"hidden_states": stream, **others}

        return grow

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
        for block in model.anatomy.blocks:
            # Before the gates' own hooks, so that these see the grown batch.
            handle = block.module.register_forward_pre_hook(hook(block.index), prepend=True, with_kwargs=True)
            hooks.callback(handle.remove)
            hooks.callback(block.module.register_forward_hook(hand_on).remove)
        hooks.callback(model.network.register_forward_hook(end).remove)
        yield
