"""GGUF: what the header of a file says (architecture, blocks, storage of every tensor), read without a large library.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Weights are read by `gguf_checkpoint.py`.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from lesion.errors import LesionError
from lesion.files import existing
from lesion.plain import short

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Of the tensors' bytes, where a file states none."""
PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
"""How a file that holds one part of a model ends."""
_STRING, _ARRAY = 8, 9
# Value types of fixed size, by number: as `struct` names them.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MOST_DIMENSIONS = 4
_LONGEST_LIST = 1024  # of numbers; those of a tokenizer are longer, and read by its own reader


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file: its kind of storage (`Q4_1`), its dimensions, fastest first, and its bytes in the file."""

    name: str
    kind: str
    dimensions: tuple[int, ...]
    start: int
    stop: int

    @property
    def weights(self) -> int:
        """The number of its weights."""
        return prod(self.dimensions)


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself.

    Attributes:
        architecture: as llama.cpp names it: `llama`, `qwen2`.
        metadata: numbers and texts by key, and lists of numbers as long as one for every block may be.
        entries: where the bytes of all keys and values begin and end.
        numbers: where the number of a key lies, and its form as `struct` names it.
    """

    path: Path
    architecture: str
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    entries: tuple[int, int]
    numbers: Mapping[str, tuple[int, str]]

    @property
    def blocks(self) -> int | None:
        """The number of blocks, None where the file does not say."""
        count = self.metadata.get(f"{self.architecture}.block_count")
        return count if isinstance(count, int) else None

    @property
    def weights(self) -> int:
        """The number of weights in all tensors."""
        return sum(tensor.weights for tensor in self.tensors)

    @property
    def storage(self) -> str:
        """How the weights are stored, the most frequent kind first: `GGUF, Q4_1 (78.9 %), Q8_0 (21.1 %)`."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[tensor.kind] += tensor.weights
        shares = ((kind, 100 * count / self.weights) for kind, count in counts.most_common())
        named = (f"{kind} ({f'{share:.1f} %' if share >= 0.1 else '< 0.1 %'})" for kind, share in shares)
        return f"GGUF, {', '.join(named)}"


def is_gguf(path: Path) -> bool:
    """Whether this is a regular file that is called GGUF or begins as one."""
    if not path.is_file():
        return False
    if path.suffix.lower() == SUFFIX:
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: str | Path) -> Header:
    """The header of a GGUF file, checked against the size of the file."""
    file = existing(path, "model")
    part = PART.search(file.name)
    if part is not None:
        _refuse_part(file, int(part[1]))
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            begins = opened.read(len(MAGIC))
            if begins != MAGIC:
                raise LesionError(
                    f"{file} is no GGUF file: it begins with {short(repr(begins)[1:])}, not with 'GGUF'. Get the file "
                    "again, or give a folder with a model."
                )
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                header = _Reader(content, file).header()
    except RecursionError:
        raise LesionError(
            f"{file} is damaged: lists in its header are nested too deeply. Get the file again."
        ) from None
    except (struct.error, IndexError):
        raise LesionError(
            f"{file} is cut short: it ends within its header, at byte {size:,}. Get the file again."
        ) from None
    except OSError as error:
        raise LesionError(f"{file} cannot be read: {error.strerror}.") from error
    last = max(header.tensors, key=lambda tensor: tensor.stop)
    if last.stop > size:
        raise LesionError(
            f"{file} is cut short: its tensor {short(last.name)} ends at byte {last.stop:,}, and the file has {size:,} "
            "bytes. Get the file again."
        )
    return header


def _refuse_part(file: Path, parts: object) -> None:
    if isinstance(parts, int) and parts > 1:
        raise LesionError(
            f"{file} is one of {parts} parts of a model: join them with `llama-gguf-split --merge FIRST-PART "
            "JOINED.gguf` and give the joined file."
        )


def read_tensor(header: Header, tensor: Tensor) -> list[float]:
    """The numbers of one tensor of a file, in their order; meant for short ones."""
    import numpy as np
    from gguf import GGMLQuantizationType, dequantize

    try:
        stored = np.fromfile(header.path, np.uint8, tensor.stop - tensor.start, offset=tensor.start)
    except OSError as error:
        raise LesionError(f"{header.path} cannot be read: {error.strerror}.") from error
    kind = GGMLQuantizationType[tensor.kind]
    plain = {"F32": np.float32, "F16": np.float16}.get(tensor.kind)
    values = dequantize(stored, kind) if plain is None else stored.view(plain)
    return [float(value) for value in values.ravel()]


class _Reader:
    """A place in the bytes of a header; reading moves it on."""

    def __init__(self, content: mmap.mmap, path: Path) -> None:
        self.content, self.path, self.place = content, path, len(MAGIC)

    def header(self) -> Header:
        version = self.number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            what = (
                "is stored in the byte order of other machines" if swapped else f"has version {version} of the format"
            )
            raise LesionError(f"{self.path} {what}; versions 2 and 3 in little-endian order can be read.")
        tensors, entries = self.number("Q"), self.number("Q")
        self.plausible(max(tensors, entries))
        metadata: dict[str, Any] = {}
        numbers: dict[str, tuple[int, str]] = {}
        began = self.place
        for _ in range(entries):
            key, kind = self.text(), self.number("I")
            if kind in _SCALARS:
                numbers[key] = self.place, _SCALARS[kind]
            value = self.value(kind)
            if value is not None:
                metadata[key] = value
        ended = self.place
        _refuse_part(self.path, metadata.get("split.count"))  # of a file that has got another name
        if (kind := metadata.get("general.type", "model")) != "model":
            raise LesionError(f"{self.path} holds no model, but a part for one ({short(str(kind))}).")
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise self.damaged("it does not say of which architecture it is (general.architecture)")
        rows = [self.tensor() for _ in range(tensors)]
        if not rows:
            raise LesionError(f"{self.path} holds no tensors, so it is not a model (a vocabulary alone, perhaps).")
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise self.damaged("its alignment is no positive number")
        begin = -(-self.place // alignment) * alignment
        spans = tuple(replace(t, start=begin + t.start, stop=begin + t.stop) for t in rows)
        return Header(self.path, architecture, metadata, spans, (began, ended), numbers)

    def tensor(self) -> Tensor:
        name = self.text()
        dimensions = self.number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise self.damaged(f"its tensor {short(name)} has {dimensions:,} dimensions")
        sizes = tuple(self.number("Q") for _ in range(dimensions))
        number, start = self.number("I"), self.number("Q")
        kind, weights_a_block, bytes_a_block = _storage(number, name, self.path)
        return Tensor(name, kind, sizes, start, start + prod(sizes) // weights_a_block * bytes_a_block)

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.content, self.place)
        self.place += struct.calcsize(f"<{form}")
        return value

    def text(self) -> str:
        length = self.number("Q")
        self.plausible(length)
        start, self.place = self.place, self.place + length
        try:
            return self.content[start : self.place].decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a text in its header is not UTF-8") from None

    def value(self, kind: int) -> Any:
        """A number, a text or a short list of numbers; of any other list, which is passed over, None."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.damaged(f"its header has a value of the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        self.plausible(count)
        if inner in _SCALARS and count <= _LONGEST_LIST:
            return tuple(self.number(_SCALARS[inner]) for _ in range(count))
        if inner in _SCALARS:
            self.place += count * struct.calcsize(f"<{_SCALARS[inner]}")
            self.plausible(0)
        else:
            skip = self._skip(inner)
            for _ in range(count):
                skip()
        return None

    def _skip(self, kind: int) -> Callable[[], None]:
        def text() -> None:
            length = self.number("Q")
            self.plausible(length)
            self.place += length

        return text if kind == _STRING else lambda: self.value(kind)

    def plausible(self, length: int) -> None:
        """Raise where so many bytes do not follow: the header ends before."""
        if self.place + length > len(self.content):
            raise IndexError

    def damaged(self, why: str) -> LesionError:
        return LesionError(f"{self.path} is damaged: {why}. Get the file again.")


def _storage(number: int, tensor: str, path: Path) -> tuple[str, int, int]:
    """The name of a kind of storage, and the weights and bytes of one of its blocks."""
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    try:
        kind = GGMLQuantizationType(number)
        block = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise LesionError(
            f"{path} stores {short(tensor)} in the unknown quantisation type {number}: update the package gguf "
            "(`pip install --upgrade gguf`), or get the model in another type."
        ) from None
    if kind.name not in _READABLE:
        try:
            dequantize(np.zeros(block[1], np.uint8), kind)
        except NotImplementedError:
            raise LesionError(
                f"{path} stores {short(tensor)} in the quantisation type {kind.name}, which the package gguf cannot "
                "turn into numbers: get the model in another type (Q4_K_M, Q8_0, F16)."
            ) from None
        _READABLE.add(kind.name)
    return kind.name, *block


_READABLE: set[str] = set()
"""Kinds of storage that were tried and can be read."""
