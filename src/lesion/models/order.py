"""Order: which blocks of a decoder follow each other, repeated or left out; its text, and its configuration."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lesion.errors import UsageError
from lesion.plain import short

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedConfig

_PIECE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
MOST = 10_000
"""Blocks of an order at most."""
LISTS_OF_BLOCKS = ("mlp_only_layers", "attn_layer_indices", "hybrid_layer_ids", "full_attn_idxs")
"""Settings that list numbers of blocks; those with a value for every block are known by their length."""
BY_BLOCK = "per_layer_config"
"""The setting that has settings of some blocks by their number."""
OF_NO_BLOCK = ("_token_id", "_ids", "architectures")
"""Ends of settings that are lists of something else, which may be as many as there are blocks."""
Order = tuple[int, ...]


def parse_order(order: str | Sequence[int], blocks: int, name: str) -> Order:
    """The blocks of an order, first to last; a block may come several times or not at all.

    Args:
        order: text such as `0-13,10-29`, a range that falls (`5-3`) included, or a list of numbers.
    """
    numbers: list[int] = []
    pieces = order.split(",") if isinstance(order, str) else [str(number) for number in order]
    for piece in pieces if "".join(pieces).strip() else ():
        match = _PIECE.fullmatch(piece.strip())
        if match is None:
            raise UsageError(f"'{short(piece.strip())}' names no blocks; write numbers and ranges such as 0-13,10-29.")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) >= blocks:
            raise UsageError(f"there is no block {max(first, last)}: {name} has blocks 0 to {blocks - 1}.")
        numbers += range(first, last + 1) if first <= last else range(first, last - 1, -1)
        if len(numbers) > MOST:
            raise UsageError(f"An order has at most {MOST:,} blocks.")
    if not numbers:
        raise UsageError(f"The order is empty; name the blocks of {name} that stay, such as 0-{blocks - 1}.")
    return tuple(numbers)


def runs(order: Sequence[int]) -> list[tuple[int, int]]:
    """The order as ranges (first, last) of consecutive blocks; none of an empty one."""
    if not order:
        return []
    starts = [0, *(place for place, (one, two) in enumerate(pairwise(order), 1) if two != one + 1)]
    ends = [*(start - 1 for start in starts[1:]), len(order) - 1]
    return [(order[start], order[end]) for start, end in zip(starts, ends, strict=True)]


def order_text(order: Sequence[int]) -> str:
    """The one text form of an order: `0-13,10-29`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs(order))


def arranged(config: PreTrainedConfig, order: Sequence[int], blocks: int) -> PreTrainedConfig:
    """A configuration of the blocks in an order: their number, and what it says of each."""
    config = copy.deepcopy(config)
    for key, value in settings_of(config.get_text_config(decoder=True), order, blocks).items():
        setattr(config.get_text_config(decoder=True), key, value)
    return config


def settings_of(config: PreTrainedConfig, order: Sequence[int], blocks: int) -> dict[str, Any]:
    """What the configuration of a decoder says of its blocks, for another order, by the names of transformers."""
    settings: dict[str, Any] = {"num_hidden_layers": len(order)}
    for key, value in config.to_dict().items():
        if key in LISTS_OF_BLOCKS and value:
            settings[key] = [place for place, number in enumerate(order) if number in value]
        elif key == BY_BLOCK and value:
            settings[key] = {
                str(place): value[str(number)] for place, number in enumerate(order) if str(number) in value
            }
        elif isinstance(value, list | tuple) and len(value) == blocks and not key.endswith(OF_NO_BLOCK):
            settings[key] = [value[number] for number in order]
    return settings
