"""Cells of a drift study: what one run of one model under one number of clusters gave, a file each, written whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from lesion.atomic import replace
from lesion.errors import LesionError
from lesion.files import UNFIT, stored_object

CELLS = "cells"
FORMAT = 1


@dataclass(frozen=True)
class Measured:
    """One run of one model under one number of clusters.

    Attributes:
        clusters: how many.
        layers: per layer its measures: layer, nmi, null, null_high, cosine, cka, and nmi against each labelling in
            `labels`; a measure that there is none of is None.
        ceiling: NMI between two clusterings of the reference layer from different starts.
        distinct: how many different vectors the reference layer has.
        assignments: [layers][tokens] cluster of every token that counts, at every layer of `layers`.
    """

    clusters: int
    layers: tuple[Mapping[str, Any], ...]
    ceiling: float
    distinct: int
    assignments: tuple[tuple[int, ...], ...]

    def at(self, layer: int) -> Int[np.ndarray, " tokens"]:
        """[tokens] the clusters at a layer, by its own number, which is not always its place."""
        place = [int(one["layer"]) for one in self.layers].index(layer)
        return np.asarray(self.assignments[place], dtype=np.int64)

    def along(self, measure: str) -> list[float]:
        """A measure at every layer, NaN where there is none."""
        return [np.nan if layer[measure] is None else float(layer[measure]) for layer in self.layers]

    def against(self, label: str) -> list[float]:
        """NMI with a labelling at every layer."""
        return [float(layer["labels"][label]) for layer in self.layers]


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
    try:
        stored = stored_object(folder / CELLS / f"{key}.json", "")
        if stored is None or stored["key"] != key:
            return None
        told = stored["measured"]
        return Measured(
            int(told["clusters"]),
            tuple(dict(layer) for layer in told["layers"]),
            float(told["ceiling"]),
            int(told["distinct"]),
            tuple(tuple(map(int, layer)) for layer in told["assignments"]),
        )
    except (*UNFIT, LesionError):
        return None


def write(folder: Path, key: str, measured: Measured) -> None:
    """Keep a cell, whole or not at all.

    Raises:
        LesionError: the folder cannot be written.
    """
    text = json.dumps({"key": key, "measured": asdict(measured)}, allow_nan=False)
    try:
        (folder / CELLS).mkdir(exist_ok=True)
        replace(folder / CELLS / f"{key}.json", text)
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error
