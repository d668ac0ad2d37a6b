"""Cells: parts of a study that are measured one by one, a file each with a checksum in the folder of the study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from pydantic import ValidationError

from lesion.atomic import keep
from lesion.core.database import checksum
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.report.values import Value

CELLS = "cells"
FORMAT = 1

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Value)


class StoredCell(Value, Generic[V]):
    """A cell with the key under which it is kept, and the checksum of both."""

    key: str
    checksum: str
    measured: V


def key_of(parts: Mapping[str, object], arrays: Sequence[np.ndarray] = ()) -> str:
    """A name for a cell, 32 hexadecimal digits: SHA-256 of all that decides what it holds."""
    digest = hashlib.sha256(json.dumps([FORMAT, parts], sort_keys=True).encode("ascii"))
    for array in arrays:
        plain = np.ascontiguousarray(array)
        digest.update(f"{plain.dtype.str}{plain.shape}".encode() + plain.tobytes())
    return digest.hexdigest()[:32]


def path(folder: Path, key: str) -> Path:
    """Where the cell of a key is kept in the folder of a study."""
    return folder / CELLS / f"{key}.json"


def read(folder: Path, key: str, kind: type[V]) -> V | None:
    """The cell of a key; None where it is missing, damaged, or does not have the checksum that it was written with."""
    try:
        stored = StoredCell[kind].model_validate_json(  # type: ignore[valid-type]
            read_text(path(folder, key), limit=SUMMARY_BYTES)
        )
    except (LesionError, ValidationError):
        return None
    measured: V = stored.measured
    return measured if stored.key == key and stored.checksum == _checksum(key, measured) else None


def read_all(folder: Path, keys: Mapping[K, str], kind: type[V], note: Callable[[str], None], name: str) -> dict[K, V]:
    """The cells that are there, of those of the keys; those that are not as they were written are noted."""
    cells = {place: cell for place, key in keys.items() if (cell := read(folder, key, kind)) is not None}
    if unsound := sum(path(folder, key).exists() for place, key in keys.items() if place not in cells):
        note(f"{name}: {unsound} of {len(keys)} kept cells are not as they were written; they are measured again.")
    return cells


def write(folder: Path, key: str, measured: Value) -> None:
    """Keep a cell, whole or not at all."""
    stored: StoredCell[Value] = StoredCell(key=key, checksum=_checksum(key, measured), measured=measured)
    keep(path(folder, key), stored.model_dump_json(serialize_as_any=True))


def _checksum(key: str, measured: Value) -> str:
    return checksum([key, measured.model_dump_json()])
