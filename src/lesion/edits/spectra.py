"""Spectra: the decompositions of a model's matrices, each computed once and kept, in memory and on disk.

A file is named after the fingerprint of the model, the address of the matrix and a digest of its values, so that what
is read belongs to these very weights, and holds a SHA-256 of that name and of its own numbers, so that what a disk has
damaged is computed anew. The folder is bounded: what was used longest ago goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lesion.atomic import replace
from lesion.cache import cache_folder
from lesion.edits.spectrum import Spectrum, decompose
from lesion.errors import UsageError
from lesion.models.fingerprint import values_digest
from lesion.models.load import Model

# Where spectra are kept, and how many GiB at most; 0 keeps none on disk.
LIMIT = "LESION_CACHE_GIB"
GIB = 4.0
# Of one model's spectra in memory, in bytes.
MEMORY = 2 << 30
# Smaller matrices are decomposed faster than they are read.
SMALLEST = 256
# Under this name a file holds the digest of what it is.
DIGEST = "sha256"

_OF_NETWORK: WeakKeyDictionary[nn.Module, Spectra] = WeakKeyDictionary()


def spectra(model: Model) -> Spectra:
    """The spectra of a model; one collection for each network, as long as it lives."""
    collection = _OF_NETWORK.get(model.network)
    if collection is None or collection.fingerprint != model.fingerprint:
        collection = _OF_NETWORK[model.network] = Spectra(model.fingerprint)
    return collection


class Spectra:
    """Decompositions by address and values; counts those computed (and the seconds that took), read from disk and
    reused.
    """

    def __init__(self, fingerprint: str, folder: Path | None = None, gib: float | None = None) -> None:
        self.fingerprint = fingerprint
        self.folder = (cache_folder("spectra") if folder is None else folder) / fingerprint
        self.limit = int((_limit() if gib is None else gib) * 2**30)
        self.computed = self.read = self.reused = 0
        self.seconds = 0.0
        self._memory: OrderedDict[tuple[str, str], Spectrum] = OrderedDict()

    def of(self, address: str, weight: Float[Tensor, "out in"]) -> Spectrum:
        """The spectrum of a matrix with these values.

        A folder that cannot be written, or a file in it that is damaged, costs the time of a decomposition, no more.
        """
        key = (address, values_digest(weight))
        if key in self._memory:
            self._memory.move_to_end(key)
            self.reused += 1
            return self._memory[key].on(weight.device)
        spectrum = self._stored(key, weight)
        if spectrum is None:
            spectrum = self._computed(key, weight)
        self._memory[key] = spectrum
        while len(self._memory) > 1 and sum(s.basis.nbytes for s in self._memory.values()) > MEMORY:
            self._memory.popitem(last=False)
        return spectrum

    def _computed(self, key: tuple[str, str], weight: Tensor) -> Spectrum:
        began = time.perf_counter()
        spectrum = decompose(weight, key[0])
        self.seconds += time.perf_counter() - began
        self.computed += 1
        if self.limit and spectrum.rank >= SMALLEST:
            basis, values = spectrum.basis.cpu(), spectrum.values.cpu()
            _keep(self._path(key), basis, values, self._digest(key, basis, values), self.limit, self.folder.parent)
        return spectrum

    def _stored(self, key: tuple[str, str], weight: Tensor) -> Spectrum | None:
        path = self._path(key)
        rank = min(weight.shape)
        if not self.limit or rank < SMALLEST:
            return None
        try:
            with safe_open(path, framework="pt") as file:
                digest = (file.metadata() or {}).get(DIGEST)
                basis, values = file.get_tensor("basis"), file.get_tensor("values")
        except (OSError, SafetensorError, KeyError):
            return None
        whole = basis.dtype == values.dtype == torch.float64 and basis.shape == (rank, rank) and values.shape == (rank,)
        if not whole or digest != self._digest(key, basis, values):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        self.read += 1
        return Spectrum(basis.to(weight.device), values.to(weight.device), (weight.shape[0], weight.shape[1]))

    def _digest(self, key: tuple[str, str], basis: Tensor, values: Tensor) -> str:
        """SHA-256 over what a file belongs to and over the bytes of its two tensors, which lie on the CPU."""
        digest = hashlib.sha256("\0".join((self.fingerprint, *key, *map(str, basis.shape), "")).encode())
        for tensor in (basis, values):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def _path(self, key: tuple[str, str]) -> Path:
        return self.folder / f"{key[0]}-{key[1]}.safetensors"


def _limit() -> float:
    text = os.environ.get(LIMIT, str(GIB))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{LIMIT} is how many GiB of spectra are kept on disk, a number from 0, not '{text}'.")
    return value


def _keep(path: Path, basis: Tensor, values: Tensor, digest: str, limit: int, folder: Path) -> None:
    data = save({"basis": basis, "values": values}, metadata={DIGEST: digest})
    if len(data) > limit:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(folder, limit - len(data))
        replace(path, data)


def _make_room(folder: Path, limit: int) -> None:
    files = []
    for file in folder.glob("*/*.safetensors*"):  # with what a process that was killed left half written
        with contextlib.suppress(OSError):
            files.append((file.stat().st_mtime, file.stat().st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            file.unlink()
            total -= size
