"""Ways in which a network answers, by what its cache holds: the fast way shares batches, the simple one is its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from inspect import signature
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache

from lesion.engines.transformers.memory import positions
from lesion.engines.transformers.states import has_keys, has_states
from lesion.models.load import Model
from lesion.models.owner import held

# Tokens of the two texts whose caches are measured.
SHORT, LONG = 2, 6
# Layers of a cache that rows may have for themselves, with those of blocks that keep nothing; and the kinds of blocks.
_ROWS = (
    "DummyLayer",
    "DynamicLayer",
    "DynamicSlidingWindowLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndFullAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
)
_KINDS = {
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "conv",
    "hybrid",
    "hybrid_sliding",
    "mlp",
    "moe",
    "chunked_attention",
}


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
        token_bytes, fixed_bytes: of these what it keeps of each token, and whatever their number (states).
        states: whether it keeps states too, of which no token can be taken out again.
        resumes: whether a text may be read in parts.
        drafts: whether answers are compared with drafts: not where a state could not give a token back, nor where
            blocks that read the keys of others run on the last token of a prompt alone.
    """

    kind: Kind
    why: str = ""
    row_bytes: int = 0
    token_bytes: int = 0
    fixed_bytes: int = 0
    states: bool = False
    resumes: bool = True
    drafts: bool = True

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

    def rows_of(self, tokens: int, rows: int) -> int:
        """How many rows of so many tokens keep as much as `rows` that are as long as rows are expected to be."""
        return rows * self.row_bytes // max(1, self.fixed_bytes + self.token_bytes * tokens)

    def __str__(self) -> str:
        if self.fast and not self.drafts:
            return _UNDRAFTED
        return f"{_SAID[self.kind]}{f', since {self.why}' if self.why else ''}"


FASTEST = Way(Kind.FAST)
_SAID = {
    Kind.FAST: "fast: items and edits share batches, prompts and drafts (its cache is keys and values of every block)",
    Kind.SHARED: "simple: by its own generate and cache, prompts of equal length together, each row under its own edit,"
    " each prompt computed once up to the block where an edit begins",
    Kind.MIXED: "simple: by its own generate and cache, prompts of equal length together, each row under its own edit",
    Kind.APART: "simple: by its own generate and cache, prompts of equal length under one edit together",
    Kind.ALONE: "simple: by its own generate and cache, one item under one edit at a time",
    Kind.PLAIN: "simple: one item under one edit at a time, without a cache",
}
_UNDRAFTED = "fast: items and edits share batches and prompts (blocks keep states, or read the keys of others)"


def kept_by(model: Model) -> Way:
    """What a network keeps of the tokens that it has read, by what is left of two short passes.

    Returns:
        The fast way, or the last one with what it keeps that no row can have for itself.
    """
    try:
        caches = [_cache(model, length) for length in (SHORT, LONG)]
    except Exception as error:  # whatever its code raises
        return Way(Kind.PLAIN, f"a pass with a cache fails ({type(error).__name__}: {error})")
    short, long = (sum(tensor.nbytes for tensor in tensors_of(cache)) for cache in caches)
    token = max(0, long - short) // (LONG - SHORT)
    fixed = max(0, long - LONG * token)
    other = _other(caches[1], model)
    layers = () if other else caches[1].layers
    states = any(map(has_states, layers))
    drafts = all(has_keys(layer) and not has_states(layer) for layer in layers)
    kind = Kind.PLAIN if other else Kind.FAST
    sizes = fixed + token * positions(model), token, fixed
    return Way(kind, other, *sizes, states, not states or _resumes(model), drafts)


def _text(model: Model, length: int) -> Int[Tensor, "1 length"]:
    count = model.network.get_input_embeddings().num_embeddings
    return torch.tensor([[(3 * place + 5) % count for place in range(length)]], device=model.device)


@torch.inference_mode()
def _cache(model: Model, length: int) -> Any:
    with held(model, "a look at its cache", calls=True):
        output = model.network(input_ids=_text(model, length), use_cache=True)
    return cache_in(output)


@torch.inference_mode()
def _resumes(model: Model) -> bool:
    """Whether a text that is read in two parts has the logits of the whole one.

    In half precision a state that the second part does not look at would not be missed by that, but by this: without it
    the logits are the same, bit for bit.
    """
    network, text = model.network, _text(model, LONG)
    places = torch.arange(LONG, device=model.device)[None]

    def second(forgotten: str = "") -> Tensor:
        cache = DynamicCache(config=network.config)
        for part in (slice(SHORT), slice(SHORT, LONG)):
            inputs = {"input_ids": text[:, part], "position_ids": places[:, part], cache_argument(network): cache}
            logits: Tensor = network(**inputs, use_cache=True).logits
            for layer in filter(has_states, cache.layers):
                for state in filter(torch.is_tensor, getattr(layer, forgotten, {}).values()):
                    state.zero_()
                    held_states.add(forgotten)
        return logits.float()

    held_states: set[str] = set()
    try:
        with held(model, "a look at its states", calls=True):
            whole = network(input_ids=text, use_cache=False).logits[:, SHORT:].float()
            parts = second()
            without = {kind: second(kind) for kind in ("conv_states", "recurrent_states")}
    except Exception:  # whatever its code raises
        return False
    if any(torch.equal(parts, without[kind]) for kind in held_states):
        return False
    tolerance = (1e-3 if model.dtype == torch.float32 else 0.1) * float(whole.abs().max())
    return bool((whole - parts).abs().max() <= tolerance)


def cache_argument(network: Any) -> str:
    """What a network calls the cache that it is given."""
    return "cache_params" if "cache_params" in signature(network.forward).parameters else "past_key_values"


def cache_in(output: Any) -> Any:
    """The cache in what a network gives back, or None."""
    names = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
    return next((output[name] for name in names if name in output), None)


def _other(cache: Any, model: Model) -> str:
    if cache is None:
        return "it gives back no cache"
    if type(cache) is not DynamicCache:
        return f"its cache is a {type(cache).__name__}, not keys and values"
    if others := _odd_by(cache, model.network.config):
        return others
    blocks = len(model.anatomy.blocks)
    filled = sum(
        any(layer.has_previous_state.values()) if has_states(layer) else layer.is_initialized for layer in cache.layers
    )
    return "" if filled == blocks else f"{blocks} blocks keep {filled} pairs of keys and values"


def odd_by(config: PretrainedConfig) -> str:
    """What a network will keep that is not keys and values of every block, as far as its configuration tells."""
    try:
        cache = DynamicCache(config=config)
    except Exception:  # a configuration that only its own code understands
        return ""
    return _odd_by(cache, config)


def _odd_by(cache: DynamicCache, config: PretrainedConfig) -> str:
    kinds = {*(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())}
    count = Counter(name for layer in cache.layers if (name := type(layer).__name__) not in _ROWS)
    if count:
        listed = " and ".join(f"{number} × {name}" for name, number in count.items())
        return f"its cache has {listed}, not keys and values"
    named = [kind.replace("_", " ") for kind in sorted(kinds - _KINDS)]
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
