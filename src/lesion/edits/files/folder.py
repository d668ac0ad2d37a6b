"""Folder: a checkpoint written beside its place, which it gets when it is whole, with what lies beside the weights.

An edited checkpoint has tensors of the same dtype and shape in the same places, so a shard is written with the very
header of its original: names, order, metadata and sharding stay, and no more than one tensor is in memory. Under other
names (`copied`) a shard has a header of its own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from torch import Tensor

from lesion.atomic import alive
from lesion.edits.files import card
from lesion.edits.files.card import AppliedEdit
from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.models.fingerprint import NotFinite, not_finite_in
from lesion.models.stored import Checkpoint, Entry, inside, write_index
from lesion.progress import Watcher

STRIDE = 16 << 20  # bytes copied at a time
NO_FACTORS: Mapping[str, float] = MappingProxyType({})
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
            copy_bytes(reading, writing, entry.start - reading.tell())
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
        copy_bytes(reading, writing, os.fstat(reading.fileno()).st_size - reading.tell())


def copied(
    source: Path, target: Path, entries: Sequence[tuple[Entry, str]], factors: Mapping[str, float] = NO_FACTORS
) -> None:
    """Write a shard of tensors of another one under other names; one may come several times.

    All are written byte for byte, but those that `factors` names, by their new names: these are multiplied.
    """
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
            if _has_floats(entry) or name in factors:
                data = bytearray(reading.read(entry.stop - entry.start))
                tensor = as_tensor(data, entry, name)
                before = not_finite_in(name, tensor)
                if before is None and name in factors:
                    tensor.mul_(factors[name])
                if (broken := not_finite_in(name, tensor) if name in factors else before) is not None:
                    _refuse_not_finite(broken, tensor, source, edited=before is None)
                writing.write(data)
                continue
            copy_bytes(reading, writing, entry.stop - entry.start)


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


def copy_bytes(reading: Any, writing: Any, size: int) -> None:
    """Write the next bytes of an open file into another one."""
    while size > 0:
        data = reading.read(min(size, STRIDE))
        if not data:
            raise LesionError(f"{reading.name} is cut short.")
        writing.write(data)
        size -= len(data)


def refuse_place(out: Path, *, folder: bool = True) -> None:
    """Refuse a target in whose place something lies, but for an empty folder where a `folder` is written, and one that
    cannot be made: a file is tried beside it, or in the folder above that is there.
    """
    if os.path.lexists(out) and not (folder and out.is_dir() and not out.is_symlink()):
        what = " and is a link" if out.is_symlink() else ", and is no folder" if folder else ""
        raise UsageError(f"{out} is there already{what}; nothing is overwritten. Give --out a new name.")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"The folder {out} is not empty; nothing in it is overwritten. Give --out a new one.")
    if out.is_dir() and (os.path.ismount(out) or out.samefile(".")):
        raise UsageError(f"{out} is the current folder or a disk, which is not replaced. Give --out a name in it.")
    place = next(parent for parent in out.absolute().parents if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UsageError(f"Nothing can be written in {place}: {reason(error)}. Give --out another place.") from error


def refuse_full(out: Path, size: int) -> None:
    """Refuse before hours of writing what the disk has no room for, `size` in bytes."""
    place = next(parent for parent in out.absolute().parents if parent.is_dir())
    if (free := shutil.disk_usage(place).free) < size:
        raise LesionError(
            f"The edited model takes {size / 1e6:,.1f} MB, and there are {free / 1e6:,.1f} MB left at {place}. Make"
            " room, or give --out another place."
        )


def clear_leftovers(out: Path, note: Callable[[str], None]) -> None:
    """Remove what killed runs to the same place left beside it, and say so."""
    start = f".{out.name}.partial-"
    for entry in sorted(out.parent.iterdir()) if out.parent.is_dir() else []:
        process = entry.name.removeprefix(start)
        if entry.name.startswith(start) and process.isdecimal() and not entry.is_symlink():
            if process != str(os.getpid()) and alive(process):
                continue
            _remove(entry)
            note(f"Removed {entry}, which a run that was stopped in the middle left behind.")


def sync(path: Path) -> None:
    """Have a file or folder on disk, not only on its way there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def emerging(out: Path, note: Callable[[str], None], *, folder: bool = True) -> Iterator[Path]:
    """A folder, or a file, to write into, which becomes `out` when the `with` ends well and is removed when it does
    not.

    Killed in the middle, it stays behind as `.NAME.partial-PID`; the next run to the same place removes it and notes
    that.
    """
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(out, note)
        if folder:
            partial.mkdir()
        yield partial
        for path in partial.rglob("*"):
            sync(path)
        sync(partial)
        os.rename(partial, out)
        sync(out.parent)
    except OSError as error:
        raise LesionError(
            f"{out} cannot be written: {error.strerror or error}. Nothing was left there; make room, or give --out "
            "another place."
        ) from error
    finally:
        _remove(partial)


# What a checkpoint needs beside its weights. Whatever else lies in the folder (other weights, code) stays there.
COPIED = frozenset({".json", ".txt", ".model", ".jinja", ".tiktoken", ".md", ".spm", ".bpe"})
COPIED_NAMES = frozenset({"LICENSE", "NOTICE", "USE_POLICY", "COPYING"})
TEMPLATES = "additional_chat_templates"
KEPT = "lesion"
MADE = f"{KEPT}/made.json"
"""How the checkpoint was made: the model, the options of `lesion apply` beside it, and the files that it wrote."""


def copy_others(folder: Path, partial: Path, checkpoint: Checkpoint, edits: Sequence[AppliedEdit]) -> tuple[str, ...]:
    """Copy tokenizer, templates, licences and earlier edits, and add these edits; gives the names of what was not."""
    written = {*checkpoint.shards, checkpoint.index, "config.json", "README.md"}
    left_out = []
    for entry in sorted(folder.iterdir()):
        if entry.name in written:
            continue
        wanted = entry.suffix in COPIED or entry.stem in COPIED_NAMES
        weights = entry.name.endswith(".index.json")  # of the formats that are left out
        if wanted and not weights and entry.is_file() and _safe(folder, entry):
            shutil.copyfile(entry, partial / entry.name)
        elif entry.name == TEMPLATES and entry.is_dir() and not entry.is_symlink():
            (partial / TEMPLATES).mkdir()
            for template in sorted(entry.glob("*.jinja")):
                if _safe(entry, template):
                    shutil.copyfile(template, partial / TEMPLATES / template.name)
        elif entry.name != KEPT and not entry.name.startswith("."):
            left_out.append(entry.name + "/" * entry.is_dir())
    (partial / KEPT).mkdir()
    for edit in edits:
        (partial / KEPT / edit.kept_as).write_bytes(edit.file.data)
    earlier = folder / KEPT
    for entry in sorted(earlier.glob("*.edit")) if earlier.is_dir() and not earlier.is_symlink() else []:
        if _safe(earlier, entry):
            name, number = entry.name, 2
            while (partial / KEPT / name).exists():
                name, number = f"{entry.stem}-{number}.edit", number + 1
            shutil.copyfile(entry, partial / KEPT / name)
    return tuple(left_out)


def note_made(partial: Path, model: str, options: Sequence[str]) -> None:
    """Write down how a checkpoint is made again, `lesion apply MODEL OPTIONS`, with which versions, and its files."""
    written = {path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file()}
    versions = {name: version(name) for name in ("lesion", "torch", "transformers", "safetensors")}
    made = {"model": model, "options": list(options), "versions": versions, "files": sorted({*written, "config.json"})}
    (partial / MADE).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _safe(folder: Path, entry: Path) -> bool:
    try:
        return inside(folder, entry.name).is_file()
    except LesionError:
        return False


def base_card(folder: Path, partial: Path, lines: Iterable[str]) -> None:
    """Write the card of a checkpoint that was made from another, with the other's below."""
    readme = folder / "README.md"
    original = readme.read_text(encoding="utf-8", errors="replace") if _safe(folder, readme) else None
    front, rest = card.front_and_rest(original or "")
    below = "" if original is None else f"\n---\n\n# The card of the base model\n\n{rest.strip()}\n"
    (partial / "README.md").write_text(front + "\n".join(lines) + "\n" + below, encoding="utf-8")
