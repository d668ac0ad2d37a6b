"""Container: the bytes of a `.edit` file, a safetensors file with one JSON header, read with distrust.

The header carries the SHA-256 of the whole file, taken with the 64 digits of the sum itself as zeros: not one byte,
of a vector, of the header or between them, can be changed without the file being refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from lesion.atomic import replace
from lesion.edits.edit import refuse_absent
from lesion.errors import LesionError
from lesion.files import once

KEY = "lesion"
FORMAT = "lesion edit"
VERSION = 2  # of the newest format that is read; 2 came with truncations
BLANK = "0" * 64
LARGEST_HEADER = 64 << 20  # bytes; a model of 100,000 matrices stays below
DEEPEST = 60  # brackets within brackets; a recipe of twenty combinations stays below
_BRACKETS = re.compile(r"[\[\]{}]")


def encode(header: Mapping[str, object], tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file with this JSON header and these tensors, its format and content sum filled in."""
    whole = {"format": FORMAT, "version": VERSION, **header, "content": BLANK}
    # Escaped to ASCII, so that the file reads the same whatever names the items of a data set have.
    blank = to_bytes(dict(tensors), metadata={KEY: json.dumps(whole, allow_nan=False)})
    return blank.replace(_content(BLANK), _content(hashlib.sha256(blank).hexdigest()), 1)


def _content(digits: str) -> bytes:
    return rf"\"content\": \"{digits}\"".encode()


def decode(data: bytes, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, after its content sum was found right."""
    header = _header(data, name)
    if header.get("format") != FORMAT:
        raise LesionError(f"{name} is not an edit: its header does not say '{FORMAT}'.")
    version, content = header.get("version"), header.get("content")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise LesionError(f"{name} is not an edit that can be read: it has no version.")
    if version > VERSION:
        raise LesionError(
            f"{name} is an edit of format {version}; this lesion reads formats up to {VERSION}. Install a newer lesion."
        )
    stated = _content(content) if isinstance(content, str) and len(content) == 64 and content.isalnum() else b""
    if not stated or data.count(stated) != 1:
        raise LesionError(f"{name} states no content sum, so that nobody can tell whether it is whole.")
    if hashlib.sha256(data.replace(stated, _content(BLANK))).hexdigest() != content:
        raise LesionError(
            f"{name} was changed or damaged after it was written: its content does not have the sum that it states. "
            "Get the file again, or make it anew."
        )
    try:
        return header, from_bytes(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise _unreadable(name, error) from error


def _header(data: bytes, name: str) -> dict[str, Any]:
    """The JSON header out of the safetensors header, before any library looks at the file."""
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if size < 2 or data[8:9] != b"{":
        raise LesionError(f"{name} is not an edit: an .edit file is a safetensors file.")
    if size > LARGEST_HEADER:
        raise LesionError(
            f"{name} is not an edit that can be read: its header would be {size:,} bytes, at most {LARGEST_HEADER:,} "
            "are read."
        )
    if 8 + size > len(data):
        raise LesionError(f"{name} is cut short: of its header alone {8 + size - len(data):,} bytes are missing.")
    outer = _json(data[8 : 8 + size], name)
    metadata = outer.get("__metadata__")
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise LesionError(f"{name} is a safetensors file, but not an edit: it has no header of lesion.")
    return _json(text.encode(), name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _json(data: bytes, name: str) -> dict[str, Any]:
    try:
        text = data.decode()
        if _depth(text) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets within brackets")
        value = json.loads(text, object_pairs_hook=once, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, error) from error
    if not isinstance(value, dict):
        raise LesionError(f"{name} is not an edit: its header is not a table of names and values.")
    return value


def _depth(text: str) -> int:
    """How deep brackets stand within brackets, those in strings left out."""
    deepest = depth = 0
    for index, piece in enumerate(text.replace(r"\\", "").replace(r"\"", "").split('"')):
        if index % 2 == 0:
            for bracket in _BRACKETS.findall(piece):
                depth += 1 if bracket in "[{" else -1
                deepest = max(deepest, depth)
    return deepest


def _unreadable(name: str, error: Exception) -> LesionError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return LesionError(f"{name} cannot be read as an edit: {first.rstrip('.')}. It is damaged or something else.")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file that a person named."""
    refuse_absent(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise LesionError(f"{path} cannot be read: {error.strerror}.") from error


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all: under another name first, then renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data)
    except OSError as error:
        raise LesionError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path
