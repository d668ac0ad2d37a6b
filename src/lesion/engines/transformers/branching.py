"""Branching: rows of one prompt run as one until, block by block, those under edits part from it."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lesion.engines.transformers.growing import Growth, before_blocks
from lesion.models.load import Model


@contextmanager
def with_branches(model: Model, growth: Growth, chosen: tuple[Tensor, Tensor] | None = None) -> Iterator[None]:
    """While inside, each block runs on as many rows as it should; new ones start as copies of their prompt's row.

    The head is given the chosen positions alone, rows and distances from the end, as if they were of one row.
    """
    rows_at, prompts = growth.rows_at, int(growth.trunks.max()) + 1
    joined = [prompts, *rows_at]
    # What the trunks gave to the block before, for rows that start from that.
    before: list[Tensor] = []

    def grow(layer: int, stream: Tensor, others: dict[Any, Any]) -> tuple[Tensor, dict[Any, Any]] | None:
        held, wanted = before.copy(), rows_at[layer]
        lends = layer + 1 < len(rows_at) and bool(growth.earlier[wanted : rows_at[layer + 1]].any())
        # A copy, for a block may write into its input.
        before[:] = [stream[:prompts].clone()] if lends else []
        if wanted == prompts == stream.shape[0]:
            return None
        origin = growth.trunks[:wanted].to(stream.device)
        new = slice(joined[layer], wanted)
        if wanted > joined[layer]:
            branches = stream.index_select(0, origin[new])
            if bool((earlier := growth.earlier[new]).any()):
                late = earlier.nonzero()[:, 0].to(stream.device)
                # Some networks hold the stream in float32 from their first block on; Gemma's last blocks run on the
                # positions alone whose logits are wanted.
                lent = held[0][:, -stream.shape[1] :].to(stream)
                branches[late] = lent.index_select(0, origin[new][late])
            stream = torch.cat([stream, branches])
        return stream, {key: _grow_named(key, value, prompts, origin) for key, value in others.items()}

    with before_blocks(model, grow), ExitStack() as hooks:
        if (head := model.network.get_output_embeddings()) is not None:
            hooks.enter_context(head.register_forward_pre_hook(partial(_packed, chosen)))
        yield


def _packed(chosen: tuple[Tensor, Tensor] | None, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The chosen positions, or the last of every row, without gaps: else torch reads the whole head for each row."""
    stream = args[0]
    if chosen is None:
        return (stream.contiguous(), *args[1:])
    rows, back = (index.to(stream.device) for index in chosen)
    return (stream[rows, -back][None], *args[1:])


def _grow(value: Any, prompts: int, origin: Tensor) -> Any:
    """A block's other inputs for the grown batch: masks, positions and rotary tables that have a row per prompt.

    The single row of one prompt is repeated, without a copy. Vectors are left alone: they run along the sequence. A
    mapping that is no dict stays the same object: blocks write to it what they lend to all later ones.
    """
    if isinstance(value, Tensor):
        if prompts == 1 and value.dim() in (3, 4) and value.shape[0] == 1:
            return value.expand(len(origin), *value.shape[1:])
        if prompts > 1 and value.dim() >= 2 and value.shape[0] == prompts:
            return value.index_select(0, origin.to(value.device))
        return value
    if type(value) in (tuple, list):
        return type(value)(_grow(part, prompts, origin) for part in value)
    if type(value) is dict:
        return {key: _grow(part, prompts, origin) for key, part in value.items()}
    if isinstance(value, MutableMapping):
        for key, part in value.items():
            value[key] = _lent(part, prompts, origin)
    return value


def _lent(value: Any, prompts: int, origin: Tensor) -> Any:
    """What a block lends to all later ones, with the rows that joined since: they were their trunks until then."""
    if isinstance(value, Tensor):
        given = len(value)
        if prompts <= given < len(origin):
            return torch.cat([value, value.index_select(0, origin[given:].to(value.device))])
        return value
    return type(value)(_lent(part, prompts, origin) for part in value) if type(value) in (tuple, list) else value


def _grow_named(key: str | int, value: object, prompts: int, origin: Tensor) -> object:
    if key == "position_bias" and isinstance(value, Tensor) and value.dim() == 3:
        return value  # [heads, 1, length], the same for all rows: the linear biases of MPT
    return _grow_heads(value, prompts, origin) if key == "alibi" else _grow(value, prompts, origin)


def _grow_heads(value: Any, prompts: int, origin: Tensor) -> Any:
    """As `_grow`, for what has its prompts and heads in one dimension: the linear biases of BLOOM and Falcon."""
    if not isinstance(value, Tensor) or value.shape[0] % prompts:
        return value
    apart = value.view(prompts, value.shape[0] // prompts, *value.shape[1:])
    return apart.index_select(0, origin.to(value.device)).flatten(0, 1)
