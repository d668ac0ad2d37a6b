"""Spectrum: a weight matrix taken apart into its singular components, once for every part of it that is kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lesion.errors import LesionError


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
    values are then measured on W itself. A float64 matrix is decomposed by `torch.linalg.svd`.
    """
    if not bool(weight.isfinite().all()):
        raise LesionError(f"{address} has weights that are not finite, and so no spectrum; the model is broken.")
    rows, columns = weight.shape
    wide = weight.detach().double()
    try:
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
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise LesionError(f"The decomposition of {address} does not converge: {error}") from error
    return Spectrum(basis.contiguous(), values, (rows, columns))
