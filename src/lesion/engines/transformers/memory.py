"""Memory: how many rows a device holds, and half as many when it turns out to hold fewer."""

from __future__ import annotations

import os

import torch

from lesion.engines.engine import Work
from lesion.errors import LesionError
from lesion.models.load import Model

# Beyond these, more rows make a step longer and not the work shorter.
ROWS_ON_ACCELERATOR = 1024
ROWS_ON_CPU = 192
SLOWEST_ON_ACCELERATOR, SLOWEST_ON_CPU = 256, 64
# Positions that a row is expected to need at most, when a context is longer.
POSITIONS = 2048


def rows_that_fit(model: Model, sharers: int = 1, row_bytes: int = 0, slowest: bool = False) -> int:
    """A first guess of a batch size: rows whose keys and values fit the memory that they may have.

    That is half of an accelerator's free memory, or a quarter of all that a machine has, divided among so many
    `sharers`. A row takes `row_bytes`, where that is known. A batch that ends with its `slowest` row is smaller: of a
    larger one more rows would wait for it.
    """
    cuda = model.device.type == "cuda"
    most = (ROWS_ON_ACCELERATOR, SLOWEST_ON_ACCELERATOR) if cuda else (ROWS_ON_CPU, SLOWEST_ON_CPU)
    room = torch.cuda.mem_get_info(model.device)[0] // 2 if cuda else _machine_bytes() // 4
    return int(max(1, min(most[slowest], room // sharers // (row_bytes or token_bytes(model) * positions(model)))))


def token_bytes(model: Model) -> int:
    """What the keys and values of one token take."""
    config = model.network.config.get_text_config(decoder=True)
    # From its entries: asked for an attribute that differs from block to block, some configurations raise.
    entries = config.to_dict()
    count = entries.get(config.attribute_map.get("num_attention_heads", "num_attention_heads"))
    if not isinstance(count, int):  # without attention, or with another number of heads in every block
        return int(2 * config.num_hidden_layers * config.hidden_size * model.dtype.itemsize)
    heads = max(entries.get("num_key_value_heads") or count, entries.get("num_global_key_value_heads") or 0)
    size = max(entries.get("head_dim") or 0, entries.get("global_head_dim") or 0) or config.hidden_size // count
    return int(2 * config.num_hidden_layers * heads * size * model.dtype.itemsize)


def positions(model: Model) -> int:
    """How many positions a row is expected to need at most."""
    return min(model.context, POSITIONS)


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 8 << 30  # unknown on this system; most machines have that much


def ran_out(error: Exception) -> bool:
    """Whether the error says that memory did not suffice, on any device."""
    messages = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in messages)


def halve(work: Work, model: Model, error: Exception) -> None:
    """Go on with half the batch size after `error`; at 1 that is a LesionError."""
    if work.batch_size == 1:
        raise LesionError(
            f"Memory does not suffice to answer even one item with {model.name}; use --dtype bfloat16, fewer new"
            " tokens, or a device with more memory."
        ) from error
    work.batch_size //= 2
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
