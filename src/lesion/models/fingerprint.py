"""Fingerprint: digits that tell one set of weights from another, wherever it lies; and values that are not finite."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.plain import some

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

EVERY_BYTE_UP_TO = 1_000_000_000  # bytes of weights
SAMPLE = 64_000_000  # bytes read of a model that is larger
CHUNK = 1 << 22  # entries of a matrix hashed at a time

# Configuration that changes with the folder, the library or the way of running, not with the computation.
VOLATILE = frozenset(
    {
        *("_attn_implementation", "_attn_implementation_internal", "_experts_implementation", "_name_or_path"),
        *("architectures", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label"),
        *("initializer_range", "label2id", "output_attentions", "output_hidden_states", "pad_token_id"),
        *("problem_type", "return_dict", "torch_dtype", "transformers_version", "use_cache"),
    }
)


def _settings(config: PreTrainedConfig) -> object:
    """The part of a configuration that shapes the computation: all that differs from the defaults of its class."""
    try:
        # A release of transformers that adds a setting, switched off, leaves the fingerprint as it was.
        defaults = type(config)().to_dict()
    except Exception:  # a class that came with a checkpoint may not have defaults
        defaults = {}

    def pruned(value: object, default: object) -> object:
        if not isinstance(value, dict):
            return value
        base = default if isinstance(default, dict) else {}
        return {
            str(key): pruned(item, base.get(key))
            for key, item in value.items()
            if key not in VOLATILE and (key == "model_type" or key not in base or item != base[key])
        }

    return pruned(config.to_dict(), defaults)


def stored_tensors(network: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every parameter once and every buffer that a checkpoint holds, by name; of quantised storages the packed ones."""
    aliases = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    tensors = dict(network.named_parameters())
    tensors.update({name: value for name, value in network.state_dict().items() if name not in aliases})
    for name, tensor in sorted(tensors.items()):
        yield from _plain(name, tensor)


def _plain(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor; one of a class of its own (a quantised storage) as the plain tensors that it is made of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if type(tensor) in (Tensor, nn.Parameter) or flatten is None:
        yield name, tensor
        return
    for part in sorted(flatten()[0]):
        yield from _plain(f"{name}.{part}", getattr(tensor, part))


def _bytes(tensor: Tensor) -> memoryview:
    # A fresh copy where strides are not those of plain memory (one row of every n-th has the stride of n).
    flat = tensor.detach().contiguous().cpu().flatten()
    plain = flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)
    return plain.view(torch.uint8).numpy().data


def _sum(tensor: Tensor) -> int:
    """The sum, modulo 2⁶⁴, of the memory of a tensor read as 64-bit integers: exact on every device."""
    flat = tensor.detach().contiguous().flatten()
    whole = flat.numel() * flat.element_size() // 8 * 8 // flat.element_size()
    words = flat[:whole]
    if words.storage_offset() * words.element_size() % 8:
        words = words.clone()
    rest = int.from_bytes(bytes(_bytes(flat[whole:])), "little") if whole < flat.numel() else 0
    return (int(words.view(torch.int64).sum()) + rest) % 2**64 if whole else rest


def fingerprint(network: PreTrainedModel, every_byte_up_to: int = EVERY_BYTE_UP_TO, sample: int = SAMPLE) -> str:
    """The fingerprint of a network as it is in memory: SHA-256, shortened to 16 hexadecimal digits.

    Hashed are the settings that shape the computation and, of every parameter and stored buffer in the order of their
    names, name, shape, dtype and bytes. Device, sharding, folder and tied names leave no trace; another dtype does.

    Of a model with more than `every_byte_up_to` bytes of weights, in place of all bytes: the sum of every tensor's
    memory as 64-bit integers and every n-th row of its first axis, with the n that reads about `sample` bytes in all.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps(_settings(network.config), sort_keys=True, default=str).encode())
    tensors = list(stored_tensors(network))
    total = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors)
    stride = 1 if total <= every_byte_up_to else -(-total // sample)
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if stride == 1 or tensor.dim() == 0:
            digest.update(_bytes(tensor))
        else:
            rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor
            digest.update(_sum(tensor).to_bytes(8, "little"))
            digest.update(_bytes(rows[::stride]))
    return digest.hexdigest()[:16]


def surroundings(network: nn.Module) -> str:
    """16 hexadecimal digits of what a network computes with besides: numbers in modules, buffers of no checkpoint."""
    digest = hashlib.sha256()
    for name, module in network.named_modules():
        rotary = str(getattr(module, "rope_type", ""))
        for key in () if "dynamic" in rotary or "longrope" in rotary else sorted(module._non_persistent_buffers_set):
            if (buffer := module._buffers.get(key)) is not None and not buffer.is_meta:
                digest.update(f"{name}.{key}".encode())
                digest.update(_bytes(buffer))
        numbers = [(key, value) for key, value in vars(module).items() if type(value) in (int, float)]
        counted = [pair for pair in sorted(numbers) if pair[0][0] != "_" and pair[0] != "max_seq_len_cached"]
        digest.update(f"{name} {counted}".encode())
    return digest.hexdigest()[:16]


def values_digest(weight: Float[Tensor, "out in"]) -> str:
    """16 hexadecimal digits of the values of a matrix: SHA-256 over them as float32, row after row.

    A matrix in half precision and the same one loaded in float32 have one digest.
    """
    digest = hashlib.sha256()
    rows = max(1, CHUNK // max(1, weight.shape[1]))
    for start in range(0, weight.shape[0], rows):
        part = weight[start : start + rows].detach().float().cpu().contiguous()
        digest.update(part.numpy().data)
    return digest.hexdigest()[:16]


NAMED = 3


@dataclass(frozen=True)
class NotFinite:
    """A parameter or stored buffer of `size` values, some of them NaN or infinite."""

    name: str
    nan: int
    infinite: int
    size: int

    def __str__(self) -> str:
        kinds = [f"{self.nan:,} NaN"] * (self.nan > 0) + [f"{self.infinite:,} infinite"] * (self.infinite > 0)
        return f"{self.name} ({' and '.join(kinds)} of {self.size:,})"


def not_finite(network: PreTrainedModel) -> tuple[NotFinite, ...]:
    """Every tensor of a network that is not finite throughout, by name; one pass over the weights."""
    broken = (not_finite_in(name, tensor) for name, tensor in stored_tensors(network))
    return tuple(tensor for tensor in broken if tensor is not None)


def not_finite_in(name: str, tensor: Tensor) -> NotFinite | None:
    """How many values of a tensor are not finite; None where all are."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    # The extremes of a tensor are finite exactly when all of it is; no copy of it is made.
    values = tensor.detach()
    low, high = torch.aminmax(values.float() if values.element_size() == 1 else values)
    if bool(low.isfinite() & high.isfinite()):
        return None
    return NotFinite(name, int(tensor.isnan().sum()), int(tensor.isinf().sum()), tensor.numel())


def complaint(broken: Sequence[NotFinite], model: str) -> str:
    """What is wrong with the weights of a model, as one sentence; empty where nothing is."""
    if not broken:
        return ""
    what = "tensor" if len(broken) == 1 else "tensors"
    named = some(list(map(str, broken)), NAMED)
    return f"{model} has {len(broken)} {what} with values that are not finite: {named}."
