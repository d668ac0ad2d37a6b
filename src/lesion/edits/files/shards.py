"""Shards: the safetensors files of a checkpoint, rewritten one tensor at a time.

An edited checkpoint has tensors of the same dtype and shape in the same places, so a shard is written with the very
header of its original: names, order, metadata and sharding stay, and no more than one tensor is in memory. Under other
names (`copied`) a shard has a header of its own.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from lesion.errors import LesionError
from lesion.models.fingerprint import NotFinite, not_finite_in
from lesion.models.stored import Checkpoint, Entry, inside, write_index
from lesion.progress import Watcher

STRIDE = 16 << 20  # bytes copied at a time
DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def rewrite_all(
    checkpoint: Checkpoint, target: Path, edits: Mapping[str, Callable[[Tensor], None]], watcher: Watcher, name: str
) -> None:
    """Write every shard of a model again, as `rewrite` does, and the index last."""
    watcher.begin(name, len(checkpoint.shards), 0, "shards")
    for shard in checkpoint.shards:
        entries = {tensor: entry for tensor, entry in checkpoint.entries.items() if entry.shard == shard}
        rewrite(inside(checkpoint.folder, shard), target / shard, entries, edits)
        watcher.answered(1)
    write_index(checkpoint, target)


def rewrite(
    source: Path, target: Path, entries: Mapping[str, Entry], edits: Mapping[str, Callable[[Tensor], None]]
) -> None:
    """Write a shard again; `edits` change some of its tensors in place, by name."""
    with source.open("rb") as reading, target.open("wb") as writing:
        for name, entry in entries.items():
            if name not in edits and not _has_floats(entry):
                continue
            _copy(reading, writing, entry.start - reading.tell())
            data = bytearray(entry.stop - entry.start)
            if reading.readinto(data) != len(data):
                raise LesionError(f"{source} is cut short within {name}.")
            tensor = as_tensor(data, entry, name)
            before = not_finite_in(name, tensor)
            if name in edits:
                edits[name](tensor)
            if (after := not_finite_in(name, tensor)) is not None:
                _refuse_not_finite(before or after, tensor, source, edited=before is None)
            writing.write(data)
            del tensor
            del data
        _copy(reading, writing, os.fstat(reading.fileno()).st_size - reading.tell())
        writing.flush()
        os.fsync(writing.fileno())


def copied(source: Path, target: Path, entries: Sequence[tuple[Entry, str]]) -> None:
    """Write a shard of tensors of another one, byte for byte, under other names; one may come several times."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for entry, name in entries:
        size = entry.stop - entry.start
        table[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the data begin at a multiple of eight
    with source.open("rb") as reading, target.open("wb") as writing:
        writing.write(len(head).to_bytes(8, "little") + head)
        for entry, name in entries:
            reading.seek(entry.start)
            if _has_floats(entry):
                tensor = as_tensor(bytearray(reading.read(entry.stop - entry.start)), entry, name)
                if (broken := not_finite_in(name, tensor)) is not None:
                    _refuse_not_finite(broken, tensor, source, edited=False)
                reading.seek(entry.start)
            _copy(reading, writing, entry.stop - entry.start)
        writing.flush()
        os.fsync(writing.fileno())


def _has_floats(entry: Entry) -> bool:
    return entry.dtype in DTYPES and entry.start < entry.stop


def _refuse_not_finite(broken: NotFinite, tensor: Tensor, source: Path, *, edited: bool) -> NoReturn:
    """Refuse to write a tensor with NaN or infinite values, which the edit made, or which the source has."""
    if edited:
        raise LesionError(
            f"Edited, {broken} would not be finite: values are larger than {str(tensor.dtype).removeprefix('torch.')}"
            " can hold. Use a smaller factor or scale."
        )
    raise LesionError(
        f"{source} has values that are not finite, in {broken}, and so would what is written. Get the checkpoint again,"
        " or mend that tensor first."
    )


def as_tensor(data: bytearray, entry: Entry, name: str) -> Tensor:
    """The tensor that lies in these bytes, sharing them; refuses quantised and packed storages."""
    dtype = DTYPES.get(entry.dtype)
    if dtype is None:
        raise LesionError(
            f"{name} is stored as {entry.dtype}, a quantised or packed storage, which lesion cannot edit. Use the "
            "checkpoint in float32, bfloat16 or float16 from which it was made."
        )
    assert len(data) == math.prod(entry.shape) * dtype.itemsize
    return torch.frombuffer(data, dtype=dtype).view(entry.shape)


def _copy(reading: Any, writing: Any, size: int) -> None:
    while size > 0:
        data = reading.read(min(size, STRIDE))
        if not data:
            raise LesionError(f"{reading.name} is cut short.")
        writing.write(data)
        size -= len(data)
