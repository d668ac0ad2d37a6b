"""Shards: the safetensors files of a checkpoint, read and rewritten one tensor at a time.

An edited checkpoint has tensors of the same dtype and shape in the same places, so a shard is written with the very
header of its original: names, order, metadata and sharding stay, and no more than one tensor is in memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lesion.errors import LesionError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 100 << 20  # bytes, the limit of the format
STRIDE = 16 << 20  # bytes copied at a time
DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True)
class Entry:
    """One tensor on disk.

    Attributes:
        shard: name of the file.
        dtype: as safetensors names it, `BF16`.
        shape: of the tensor.
        start, stop: its bytes, from the beginning of the file.
    """

    shard: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a checkpoint on disk.

    Attributes:
        folder: where they lie.
        shards: names of the files, in order.
        index: name of the file that lists the shards; None where there is one file only.
        entries: every tensor by name.
    """

    folder: Path
    shards: tuple[str, ...]
    index: str | None
    entries: Mapping[str, Entry]

    @property
    def bytes(self) -> int:
        """The size of all shards."""
        return sum((self.folder / shard).stat().st_size for shard in self.shards)


def inside(folder: Path, name: str) -> Path:
    """A file of a checkpoint's folder, by its plain name.

    Raises:
        LesionError: the name leads out of the folder, or a link does. Links within the Hugging Face cache are its own
            way of keeping files and may be followed.
    """
    if not name or name != os.path.basename(name) or name in (".", "..") or "\\" in name or "\0" in name:
        raise LesionError(f"{folder / INDEX} names the file {name!r}, which does not lie in the folder; it is refused.")
    path = folder / name
    home = folder.resolve()
    homes = [home] + ([home.parent.parent] if home.parent.name == "snapshots" else [])
    if path.is_symlink() and not any(path.resolve().is_relative_to(one) for one in homes):
        raise LesionError(f"{path} is a link that leads out of the folder, to {path.resolve()}; it is not followed.")
    return path


def survey(folder: Path, name: str) -> Checkpoint:
    """What a folder holds in weights; nothing but headers is read.

    Raises:
        LesionError: there are no safetensors weights, a shard is missing, damaged or lies elsewhere.
    """
    index = None
    if inside(folder, SINGLE).is_file():
        shards: tuple[str, ...] = (SINGLE,)
        listed: dict[str, str] | None = None
    elif inside(folder, INDEX).is_file():
        index = INDEX
        listed = _listed(folder / INDEX)
        shards = tuple(sorted(set(listed.values())))
    else:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt", ".h5"))
        hint = f" {others[0]} may hold code and is not read." if others else ""
        raise LesionError(f"{name} has no safetensors weights ({SINGLE}, or {INDEX}).{hint}")
    entries: dict[str, Entry] = {}
    for shard in shards:
        path = inside(folder, shard)
        if not path.is_file():
            raise LesionError(
                f"{folder / INDEX} names the file {shard}, which is not there; the download is incomplete."
            )
        for tensor, entry in header(path).items():
            if tensor in entries:
                raise LesionError(
                    f"The tensor {tensor} lies in {entries[tensor].shard} and in {shard}; one is too many."
                )
            entries[tensor] = entry
    for tensor, shard in (listed or {}).items():
        if tensor not in entries or entries[tensor].shard != shard:
            raise LesionError(f"{folder / INDEX} says that {tensor} lies in {shard}, and it does not.")
    return Checkpoint(folder, shards, index, entries)


def _listed(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LesionError(f"{path} is not an index of shards: {error!r}.") from error
    if not isinstance(found, dict) or not found or not all(isinstance(shard, str) for shard in found.values()):
        raise LesionError(f"{path} is not an index of shards: it maps no tensors to files.")
    for shard in sorted(set(found.values())):
        inside(path.parent, shard)
        if not shard.endswith(".safetensors"):
            raise LesionError(f"{path} names the file {shard!r}, which is no safetensors file; it is refused.")
    return found


def header(path: Path) -> dict[str, Entry]:
    """The tensors of one safetensors file, in the order of their bytes.

    Raises:
        LesionError: it is none, or is damaged.
    """
    try:
        with safe_open(path, framework="pt") as opened:  # checks that the file is whole and holds together
            names = set(opened.keys())
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > LARGEST_HEADER:
                raise ValueError("its header is too large")
            table: dict[str, Any] = json.loads(file.read(size))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise LesionError(f"{path} cannot be read as safetensors: {error}. It is damaged or cut short.") from error
    table.pop("__metadata__", None)
    entries = [
        (name, Entry(path.name, e["dtype"], tuple(e["shape"]), *(8 + size + at for at in e["data_offsets"])))
        for name, e in table.items()
    ]
    if {name for name, _ in entries} != names:
        raise LesionError(f"{path} cannot be read as safetensors: names stand in it twice.")
    return dict(sorted(entries, key=lambda pair: (pair[1].start, pair[1].stop)))


def rewrite(
    source: Path, target: Path, entries: Mapping[str, Entry], edits: Mapping[str, Callable[[Tensor], None]]
) -> None:
    """Write a shard again with some of its tensors edited.

    Args:
        source: the shard.
        target: the file to write.
        entries: its tensors, in the order of their bytes.
        edits: by name of a tensor, what changes it in place.

    Raises:
        OSError: it cannot be read or written.
        LesionError: a tensor to edit is not stored as floating-point numbers.
    """
    with source.open("rb") as reading, target.open("wb") as writing:
        for name, entry in entries.items():
            if name not in edits:
                continue
            _copy(reading, writing, entry.start - reading.tell())
            data = bytearray(entry.stop - entry.start)
            if reading.readinto(data) != len(data):
                raise LesionError(f"{source} is cut short within {name}.")
            edits[name](as_tensor(data, entry, name))
            writing.write(data)
            del data
        _copy(reading, writing, os.fstat(reading.fileno()).st_size - reading.tell())
        writing.flush()
        os.fsync(writing.fileno())


def as_tensor(data: bytearray, entry: Entry, name: str) -> Tensor:
    """The tensor that lies in these bytes, sharing them.

    Raises:
        LesionError: they are not floating-point numbers of 16 to 64 bits.
    """
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
