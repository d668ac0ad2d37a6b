"""Stored weights: which safetensors files of a folder hold a model's weights, and what lies in them, by headers alone.

Nothing else is read: an index may name anything, and other formats hold code that runs when they are opened.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from lesion.errors import LesionError
from lesion.files import read_object
from lesion.plain import some

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
LARGEST_HEADER = 100 << 20  # bytes, the limit of the format
FLOATS = ("F64", "F32", "BF16", "F16")


@dataclass(frozen=True)
class Entry:
    """One tensor in a file; `dtype` as safetensors names it (`BF16`), `start` and `stop` in bytes of the file."""

    shard: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a checkpoint on disk; `index` is the file that lists the shards (or ought to be there and is not),
    None where there is one shard only.
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
    """A file of a checkpoint's folder, by its plain name."""
    if not name or name != os.path.basename(name) or name in (".", "..") or "\\" in name or "\0" in name:
        raise LesionError(f"{folder / INDEX} names the file {name!r}, which does not lie in the folder; it is refused.")
    path = folder / name
    home, target = folder.resolve(), Path(os.path.realpath(path))
    homes = [home] + ([home.parent.parent] if home.parent.name == "snapshots" else [])
    cached = target.parent.name == "blobs" and target.parent.parent.name.startswith("models--")
    if path.is_symlink() and not cached and not any(target.is_relative_to(parent) for parent in homes):
        raise LesionError(
            f"{path} is a link that leads out of the folder, to {target}; it is not followed. Put the file itself "
            "there."
        )
    return path


def files(folder: Path, name: str) -> tuple[tuple[str, ...], dict[str, str] | None]:
    """The files that hold the weights of a folder, in order, and what its index says, or would: tensor → file."""
    listed = listing(folder / INDEX) if inside(folder, INDEX).is_file() else None
    if inside(folder, SINGLE).is_file():  # which is taken where both are there
        return (SINGLE,), None
    if listed is None:
        shards = _without_index(folder, name)
        return shards, {tensor: shard for shard in shards for tensor in header(inside(folder, shard))}
    shards = tuple(sorted(set(listed.values())))
    for shard in shards:
        if not inside(folder, shard).is_file():
            raise LesionError(
                f"{folder / INDEX} names the file {shard}, which is not there; the download is incomplete."
            )
    return shards, listed


def _without_index(folder: Path, name: str) -> tuple[str, ...]:
    """The safetensors files of a folder that has no index, where they are one set of shards or a single file."""
    there = sorted(p.name for p in folder.iterdir() if p.suffix == ".safetensors" and p.is_file())
    if not there:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt", ".h5"))
        hint = f" {others[0]} may hold code and is not read." if others else ""
        raise LesionError(
            f"The weights in the folder {name} cannot be read: it has no safetensors weights ({SINGLE}, or {INDEX})."
            f"{hint}"
        )
    sets: dict[tuple[str, int], set[int]] = {}
    for file in there:
        if (shard := SHARD.fullmatch(file)) is not None:
            sets.setdefault((shard[1], int(shard[3])), set()).add(int(shard[2]))
    if not sets and len(there) == 1:
        return (there[0],)
    if len(sets) != 1:
        raise LesionError(
            f"The folder {name} has {len(there)} safetensors files ({', '.join(there[:3])}) and no {INDEX} that says "
            f"which of them hold the model: leave only its own there, as {SINGLE} or model-00001-of-0000N.safetensors."
        )
    (((stem, count), numbers),) = sets.items()
    shards = tuple(f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1))
    if missing := [shard for shard in shards if shard not in there]:
        raise LesionError(
            f"The folder {name} has {len(numbers)} of {count} shards; missing: {some(missing)}. Download the rest."
        )
    return shards


def write_index(checkpoint: Checkpoint, target: Path) -> None:
    """Write what lists the shards into another folder that has them too; nothing where there is one shard only."""
    if checkpoint.index is None:
        return
    source = inside(checkpoint.folder, checkpoint.index)
    if source.is_file():
        shutil.copyfile(source, target / checkpoint.index)
        return
    size = sum(entry.stop - entry.start for entry in checkpoint.entries.values())
    shard_of = {tensor: entry.shard for tensor, entry in checkpoint.entries.items()}
    index = {"metadata": {"total_size": size}, "weight_map": shard_of}
    (target / checkpoint.index).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


@contextmanager
def with_index(folder: Path, name: str) -> Iterator[Path]:
    """The folder itself; where transformers would miss an index, for a while another with links and an index."""
    if (folder / SINGLE).is_file() or (folder / INDEX).is_file():
        yield folder
        return
    checkpoint = survey(folder, name)
    with tempfile.TemporaryDirectory(prefix="lesion-") as place:
        for file in folder.iterdir():
            (Path(place) / file.name).symlink_to(file.resolve())
        write_index(checkpoint, Path(place))
        yield Path(place)


def survey(folder: Path, name: str) -> Checkpoint:
    """What a folder holds in weights; nothing but headers is read."""
    shards, listed = files(folder, name)
    entries: dict[str, Entry] = {}
    for shard in shards:
        for tensor, entry in header(folder / shard).items():
            if tensor in entries:
                raise LesionError(
                    f"The tensor {tensor} lies in {entries[tensor].shard} and in {shard}; one is too many."
                )
            entries[tensor] = entry
    for tensor, shard in (listed or {}).items():
        if tensor not in entries or entries[tensor].shard != shard:
            raise LesionError(f"{folder / INDEX} says that {tensor} lies in {shard}, and it does not.")
    return Checkpoint(folder, shards, None if listed is None else INDEX, entries)


def refuse_packed(folder: Path, name: str, parameters: Container[str]) -> None:
    """Refuse weights that are stored as anything but floating-point numbers of 16 to 64 bits; buffers may be.

    Without a `quantization_config`, transformers takes the codes of a quantised storage for weights.
    """
    if not any(folder.glob("*.safetensors")):
        return  # of the hub, converted elsewhere
    for shard in files(folder, name)[0]:
        for tensor, entry in header(folder / shard).items():
            if entry.dtype not in FLOATS and ("weight" in tensor.rpartition(".")[2] or tensor in parameters):
                raise LesionError(
                    f"{name} stores {tensor} as {entry.dtype}, and its config.json has no quantization_config that "
                    "says what these numbers mean. Use the checkpoint in float32, bfloat16 or float16 that it was made "
                    "from."
                )


def listing(path: Path) -> dict[str, str]:
    """What an index of shards says: the file of every tensor."""
    try:
        shard_of = read_object(path).get("weight_map")
    except LesionError as error:
        raise LesionError(f"{path} is not an index of shards: {error}") from error
    if not isinstance(shard_of, dict) or not shard_of or not all(isinstance(name, str) for name in shard_of.values()):
        raise LesionError(
            f"{path} is not an index of shards: it maps no tensors to files. Save or download the model again."
        )
    for shard in sorted(set(shard_of.values())):
        inside(path.parent, shard)
        if not shard.endswith(".safetensors"):
            raise LesionError(f"{path} names the file {shard!r}, which is no safetensors file; it is refused.")
    return shard_of


def header(path: Path) -> dict[str, Entry]:
    """The tensors of one safetensors file, in the order of their bytes."""
    try:
        with safe_open(path, framework="pt") as opened:  # checks that the file is whole and holds together
            names = set(opened.keys())
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > LARGEST_HEADER:
                raise ValueError("its header is too large")
            table = json.loads(file.read(size))
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
