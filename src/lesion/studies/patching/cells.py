"""Cells of a patching study: what every patch of one pair of one model gave, a file a pair, with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from lesion.atomic import keep
from lesion.core.integrity import checksum
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.load import Model
from lesion.report.values import Value
from lesion.studies.patching.pairs import Pair
from lesion.studies.patching.passes import Place, Readout
from lesion.studies.patching.result import Direction

CELLS = "cells"
FORMAT = 1


class StoredPair(Value):
    """The readouts of a pair, by name (`name_of`), with the key under which they are kept and the checksum of both."""

    key: str
    checksum: str
    readouts: dict[str, tuple[float, float, float]]


def name_of(direction: Direction, place: Place, position: str) -> str:
    """What a patch is called in a file: `denoise 3.mlp last`."""
    return f"{direction} {place} {position}"


def key_of(model: Model, pair: Pair) -> str:
    """The name of the file of a pair, 32 hexadecimal digits: SHA-256 of all that decides what it holds."""
    parts = [FORMAT, model.fingerprint, str(model.dtype), pair.clean, pair.corrupted, pair.right, pair.tempting]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()[:32]


def read(folder: Path, key: str) -> dict[str, Readout]:
    """The readouts of a pair; none where the file is missing, damaged, or without its checksum."""
    try:
        stored = StoredPair.model_validate_json(read_text(_path(folder, key), limit=SUMMARY_BYTES))
    except (LesionError, ValidationError):
        return {}
    if stored.key != key or stored.checksum != _checksum(key, stored.readouts):
        return {}
    return {name: Readout(*numbers) for name, numbers in stored.readouts.items()}


def write(folder: Path, key: str, readouts: Mapping[str, Readout]) -> None:
    """Keep the readouts of a pair, whole or not at all."""
    numbers = {name: (readout.right, readout.tempting, readout.log_probability) for name, readout in readouts.items()}
    stored = StoredPair(key=key, checksum=_checksum(key, numbers), readouts=numbers)
    keep(_path(folder, key), stored.model_dump_json())


def _path(folder: Path, key: str) -> Path:
    return folder / CELLS / f"{key}.json"


def _checksum(key: str, readouts: Mapping[str, tuple[float, float, float]]) -> str:
    return checksum([key, json.dumps(readouts, sort_keys=True)])
