"""Ways in which a network answers, by what its cache holds: the fast way shares batches, the simple one is its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lesion.engines.transformers.memory import positions
from lesion.models.load import Model
from lesion.models.owner import held

# Tokens of the two texts whose caches are measured.
SHORT, LONG = 2, 6
_SLIDING = DynamicSlidingWindowLayer.__name__


class Kind(IntEnum):
    """Ways from the fastest on: all by slots of keys and values, then by the network's own cache with rows of several
    edits in a batch, which share their prompt or not, of one edit, or one row at a time; at last one row at a time
    without a cache.
    """

    FAST = 0
    SHARED = 1
    MIXED = 2
    APART = 3
    ALONE = 4
    PLAIN = 5


@dataclass(frozen=True)
class Way:
    """How a network answers.

    Attributes:
        kind: what may share a batch.
        why: why not in the fast way, as a clause; empty where it is.
        row_bytes: what a row keeps of the tokens that it has read; 0 where that is not known.
    """

    kind: Kind
    why: str = ""
    row_bytes: int = 0

    @property
    def fast(self) -> bool:
        """Whether rows under any edits share batches, prompts and drafts."""
        return self.kind is Kind.FAST

    @property
    def mixed(self) -> bool:
        """Whether rows of several edits may share a batch."""
        return self.kind <= Kind.MIXED

    @property
    def batched(self) -> bool:
        """Whether several rows may share a batch."""
        return self.kind <= Kind.APART

    @property
    def generates(self) -> bool:
        """Whether the network's own `generate` answers."""
        return Kind.FAST < self.kind < Kind.PLAIN

    def __str__(self) -> str:
        return f"{_SAID[self.kind]}{f', since {self.why}' if self.why else ''}"


_SAID = {
    Kind.FAST: "fast: items and edits share batches, prompts and drafts (its cache is keys and values of every block)",
    Kind.SHARED: "simple: by its own generate and cache, prompts of equal length together, each row under its own edit,"
    " each prompt computed once up to the block where an edit begins",
    Kind.MIXED: "simple: by its own generate and cache, prompts of equal length together, each row under its own edit",
    Kind.APART: "simple: by its own generate and cache, prompts of equal length under one edit together",
    Kind.ALONE: "simple: by its own generate and cache, one item under one edit at a time",
    Kind.PLAIN: "simple: one item under one edit at a time, without a cache",
}


def kept_by(model: Model) -> tuple[str, int]:
    """What a network keeps of the tokens that it has read, by what is left of two short passes.

    Returns:
        What is not keys and values of every block, as a clause, empty where nothing is; and the bytes of a row.
    """
    try:
        caches = [_cache(model, length) for length in (SHORT, LONG)]
    except Exception as error:  # whatever its code raises
        return f"a pass with a cache fails ({type(error).__name__}: {error})", 0
    short, long = (sum(tensor.nbytes for tensor in tensors_of(cache)) for cache in caches)
    row_bytes = long + max(0, long - short) // (LONG - SHORT) * positions(model)
    other = _other(caches[1], len(model.anatomy.blocks))
    return other or _odd_attention(model.network.config), row_bytes


@torch.inference_mode()
def _cache(model: Model, length: int) -> Any:
    count = model.network.get_input_embeddings().num_embeddings
    ids = torch.tensor([[(3 * place + 5) % count for place in range(length)]], device=model.device)
    with held(model, "a look at its cache", calls=True):
        output = model.network(input_ids=ids, use_cache=True)
    return cache_in(output)


def cache_in(output: Any) -> Any:
    """The cache in what a network gives back, or None."""
    names = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
    return next((output[name] for name in names if name in output), None)


def _other(cache: Any, blocks: int) -> str:
    if cache is None:
        return "it gives back no cache"
    if type(cache) is not DynamicCache:
        return f"its cache is a {type(cache).__name__}, not keys and values"
    if others := _odd_layers(cache):
        return others
    filled = sum(layer.is_initialized for layer in cache.layers)
    return "" if filled == blocks else f"{blocks} blocks keep {filled} pairs of keys and values"


def _odd_layers(cache: DynamicCache) -> str:
    kinds = Counter(type(layer).__name__ for layer in cache.layers)
    others = {name: count for name, count in kinds.items() if name not in (DynamicLayer.__name__, _SLIDING)}
    listed = " and ".join(f"{count} × {name}" for name, count in others.items())
    return f"its cache has {listed}, not keys and values" if others else ""


def odd_by(config: PretrainedConfig) -> str:
    """What a network will keep that is not keys and values of every block, as far as its configuration tells."""
    try:
        others = _odd_layers(DynamicCache(config=config))
    except Exception:  # a configuration that only its own code understands
        return ""
    return others or _odd_attention(config)


def _odd_attention(config: PretrainedConfig) -> str:
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    named = [kind.replace("_", " ") for kind in sorted({*kinds} - {"full_attention", "sliding_attention"})]
    return f"it has blocks of {' and '.join(named)}" if named else ""


def tensors_of(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor in a cache, however it is built, once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_of(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_of(part, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from tensors_of(vars(value), seen)
