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
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lesion.atomic import replace
from lesion.edits.cuts import Cut
from lesion.errors import LesionError, UsageError
from lesion.files import cache_folder
from lesion.models.fingerprint import values_digest
from lesion.models.load import Model


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The exact singular value decomposition of a matrix, W = Σ_i values[i] · u_i v_iᵀ, of rank r = min(out, in).

    Kept is the orthonormal basis of the shorter side alone; the other side follows from it and the weights: u_i
    values[i] = W v_i, or values[i] v_iᵀ = u_iᵀ W. So nothing is divided by a small singular value.

    Attributes:
        basis: float64, column i is u_i where out ≤ in, else v_i; on the device of the weights.
        values: float64, falling.
        shape: (out, in).
    """

    basis: Float[Tensor, "rank rank"]
    values: Float[Tensor, " rank"]
    shape: tuple[int, int]

    @property
    def rank(self) -> int:
        """How many components there are: min(out, in), those of value 0 included."""
        return min(self.shape)

    def on(self, device: torch.device) -> Spectrum:
        """The same on another device."""
        if self.basis.device == device:
            return self
        return Spectrum(self.basis.to(device), self.values.to(device), self.shape)

    def factors(
        self, weight: Float[Tensor, "out in"], start: int = 0, stop: int | None = None
    ) -> tuple[Float[Tensor, "out kept"], Float[Tensor, "kept in"]]:
        """Two thin factors whose product is the components from `start` to `stop`, float64."""
        stop = self.rank if stop is None else stop
        kept = self.basis[:, start:stop]
        wide = weight.to(kept)
        if self.shape[0] <= self.shape[1]:
            return kept, kept.T @ wide
        return wide @ kept, kept.T

    def kept(self, weight: Float[Tensor, "out in"], start: int, stop: int) -> Float[Tensor, "out in"]:
        """The components from `start` to `stop` of the matrix, computed in float64 and rounded once to its dtype.

        The first k are the best approximation of rank k (Eckart, Young and Mirsky). All components are the matrix
        itself, bit for bit; none are zeros.
        """
        if start >= stop:
            return torch.zeros_like(weight)
        if start == 0 and stop == self.rank:
            return weight.clone()
        left, right = self.factors(weight, start, stop)
        return (left @ right).to(weight.dtype)


def on_random_subspace(weight: Float[Tensor, "out in"], dimensions: int, seed: str) -> Float[Tensor, "out in"]:
    """The matrix on a random subspace of its shorter side, W Q Qᵀ or Q Qᵀ W, in float64 and rounded once to its dtype.

    Q [shorter side, dimensions] is an orthonormal basis of what standard normal vectors span, drawn uniformly so by the
    seed, on no accelerator and by no library's global generator.
    """
    shorter = min(weight.shape)
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()))
    basis = torch.from_numpy(np.linalg.qr(generator.standard_normal((shorter, dimensions))).Q).to(weight.device)
    wide = weight.double()
    kept = basis @ (basis.T @ wide) if weight.shape[0] == shorter else (wide @ basis) @ basis.T
    return kept.to(weight.dtype)


def decompose(weight: Float[Tensor, "out in"], address: str = "The matrix") -> Spectrum:
    """Take a matrix apart, in float64 whatever its dtype; `address` is for messages.

    Up to single precision the eigenvectors of the smaller Gram matrix (W Wᵀ or Wᵀ W) are taken: exact to about 1e-8 of
    the largest singular value, below what float32 can hold, and several times faster than a decomposition of W; the
    values are then measured on W itself. A float64 matrix is decomposed by `torch.linalg.svd`. What an accelerator
    gives is compared with the matrix (`accurate`); where it is no decomposition of it, or fails, a CPU takes it apart.
    """
    if not bool(weight.isfinite().all()):
        raise LesionError(f"{address} has weights that are not finite, and so no spectrum; the model is broken.")
    if weight.device.type != "cpu":
        with contextlib.suppress(RuntimeError):  # its library may have too little memory, or give up
            spectrum = _decomposed(weight)
            if accurate(spectrum, weight):
                return spectrum
        return decompose(weight.cpu(), address).on(weight.device)
    try:
        return _decomposed(weight)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise LesionError(f"The decomposition of {address} does not converge: {error}") from error


def _decomposed(weight: Float[Tensor, "out in"]) -> Spectrum:
    rows, columns = weight.shape
    wide = weight.detach().double()
    if weight.dtype == torch.float64:
        left, values, right = torch.linalg.svd(wide, full_matrices=False)
        basis = left if rows <= columns else right.mT
    else:
        # A matrix that is tiny or huge as a whole must not lose its squares.
        scale = float(wide.abs().max()) or 1.0
        wide = wide / scale
        gram = wide @ wide.mT if rows <= columns else wide.mT @ wide
        basis = torch.linalg.eigh(gram).eigenvectors.flip(-1)
        values = torch.linalg.vector_norm(
            basis.mT @ wide if rows <= columns else wide @ basis, dim=-1 if rows <= columns else 0
        )
        values, order = (values * scale).sort(descending=True, stable=True)
        basis = basis[:, order]
    return Spectrum(basis.contiguous(), values, (rows, columns))


def accurate(spectrum: Spectrum, weight: Float[Tensor, "out in"]) -> bool:
    """Whether a spectrum is one of this matrix, to `ACCURACY`.

    It is if its basis is orthonormal, and if the matrix has on it parts at right angles to each other that are as long
    as its values: of P = Bᵀ W (or Wᵀ for W where B is of the other side), P Pᵀ is then the diagonal of their squares.
    """
    basis, values = spectrum.basis, spectrum.values
    wide = weight.detach().double()
    scale = float(values[0]) or 1.0
    parts = (basis.mT @ (wide if spectrum.shape[0] <= spectrum.shape[1] else wide.mT)) / scale
    apart = (parts @ parts.mT - torch.diag((values / scale) ** 2)).abs().max()
    unit = (basis.mT @ basis - torch.eye(len(values), dtype=basis.dtype, device=basis.device)).abs().max()
    return bool(apart <= ACCURACY) and bool(unit <= ACCURACY)


# How far an accelerator's decomposition may be from the matrix, in squares of its largest singular value.
ACCURACY = 1e-12
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


@dataclass(frozen=True, eq=False)
class Truncated:
    """A matrix of which a part of the spectrum was kept.

    Attributes:
        moved: weights that have another value.
        energy: Σ σ² kept ÷ that of the whole matrix, which is ‖kept‖² ÷ ‖W‖²; 1 for a matrix of zeros.
        dtype: of the matrix, `bfloat16`.
    """

    cut: Cut
    moved: int
    energy: float
    dtype: str


def truncated(weight: Float[Tensor, "out in"], cut: Cut) -> tuple[Float[Tensor, "out in"], Truncated]:
    """The part of a matrix's spectrum that a cut keeps (a copy, as of `Spectrum.kept`), and what that did to it."""
    # Laid out as a model's matrix is when it is read, so that every sum is taken in the same order.
    weight = weight.clone(memory_format=torch.contiguous_format)
    spectrum = decompose(weight, cut.address)
    edited = spectrum.kept(weight, cut.start, cut.stop)
    squares = spectrum.values**2
    whole = float(squares.sum())
    return edited, Truncated(
        cut,
        int((edited != weight).sum()),
        float(squares[cut.start : cut.stop].sum()) / whole if whole else 1.0,
        str(weight.dtype).removeprefix("torch."),
    )


def counted(cut: Cut) -> str:
    """What two thin factors of a matrix save, in words."""
    sizes = f"two thin factors have {cut.thin:,} parameters in place of {cut.dense:,}"
    if cut.saved > 0:
        return f"{sizes}: {cut.saved:,} saved"
    return f"{sizes}: it does not pay" + (f", they are {-cut.saved:,} more" if cut.saved else "")
