"""Cells of a drift study: what one run of one model under one number of clusters gave, a file each, written whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from pydantic import ValidationError

from lesion.atomic import replace
from lesion.core.values import Number, Value
from lesion.errors import LesionError
from lesion.files import SUMMARY_BYTES, read_text

CELLS = "cells"
FORMAT = 1


class MeasuredLayer(Value):
    """The measures of one layer in one run; None where there is none. `labels`: NMI with each labelling."""

    layer: int
    nmi: Number
    null: Number
    null_high: Number
    cosine: Number
    cka: Number
    inertia: Number
    labels: dict[str, float]


class Measured(Value):
    """One run of one model under one number of clusters.

    Attributes:
        clusters: how many.
        layers: the measures of every layer.
        ceiling: NMI between two clusterings of the reference layer from different starts.
        distinct: how many different vectors the reference layer has.
        assignments: [layers][tokens] cluster of every token that counts, at every layer of `layers`.
    """

    clusters: int
    layers: tuple[MeasuredLayer, ...]
    ceiling: float
    distinct: int
    assignments: tuple[tuple[int, ...], ...]

    def at(self, layer: int) -> Int[np.ndarray, " tokens"]:
        """[tokens] the clusters at a layer, by its own number, which is not always its place."""
        place = [one.layer for one in self.layers].index(layer)
        return np.asarray(self.assignments[place], dtype=np.int64)

    def along(self, measure: str) -> list[float]:
        """A measure at every layer, NaN where there is none."""
        values = [getattr(layer, measure) for layer in self.layers]
        return [np.nan if value is None else value for value in values]

    def against(self, label: str) -> list[float]:
        """NMI with a labelling at every layer."""
        return [layer.labels[label] for layer in self.layers]


class StoredCell(Value):
    """A cell with the key under which it is kept."""

    key: str
    measured: Measured


def key_of(parts: Mapping[str, Any], arrays: Sequence[np.ndarray] = ()) -> str:
    """A name for a cell, 32 hexadecimal digits: SHA-256 of all that decides what it holds.

    Args:
        parts: anything JSON can hold: fingerprint, texts, settings.
        arrays: whose values count too: the labellings.
    """
    digest = hashlib.sha256(json.dumps([FORMAT, parts], sort_keys=True).encode("ascii"))
    for array in arrays:
        plain = np.ascontiguousarray(array)
        digest.update(f"{plain.dtype.str}{plain.shape}".encode() + plain.tobytes())
    return digest.hexdigest()[:32]


def read(folder: Path, key: str) -> Measured | None:
    """The cell of a key; None: it is not there, or is not one.

    A file that was damaged is measured anew, for nothing in it cannot be had again.
    """
    path = folder / CELLS / f"{key}.json"
    if not path.is_file():
        return None
    try:
        stored = StoredCell.model_validate_json(read_text(path, limit=SUMMARY_BYTES))
    except (LesionError, ValidationError):
        return None
    return stored.measured if stored.key == key else None


def write(folder: Path, key: str, measured: Measured) -> None:
    """Keep a cell, whole or not at all.

    Raises:
        LesionError: the folder cannot be written.
    """
    text = StoredCell(key=key, measured=measured).model_dump_json()
    try:
        (folder / CELLS).mkdir(exist_ok=True)
        replace(folder / CELLS / f"{key}.json", text)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error
