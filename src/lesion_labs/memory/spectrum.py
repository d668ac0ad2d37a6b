"""The spectrum of a memory's W: its singular values, and which of them holds the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from lesion_labs.memory.model import Codes
from lesion_labs.memory.result import NoisePlace, Side

EQUAL = 1e-7
"""Singular values nearer to each other than this share of the largest are equal: rounding alone parts them."""


@dataclass(frozen=True)
class Spectrum:
    """W = left · diag(values) · right, without what is zero.

    Attributes:
        values: singular values in descending order.
        alignment: cos² between each left singular vector and the code of the common class; their sum is the part of
            that code that W can reach at all.
        groups: runs of equal singular values: within one, the vectors are a matter of chance, the sums are not.
    """

    values: Float64[np.ndarray, " rank"]
    left: Float64[np.ndarray, "width rank"]
    right: Float64[np.ndarray, "rank width"]
    alignment: Float64[np.ndarray, " rank"]
    groups: tuple[slice, ...]


def spectrum(of_codes: Codes, coefficients: Float64[np.ndarray, "outputs inputs"]) -> Spectrum:
    """The singular value decomposition of W = W_Uᵀ A W_Eᵀ, worked out within the spans of the codes, where W lies."""
    basis, other = of_codes.bases
    core = (basis.T @ of_codes.outputs.T) @ coefficients @ (of_codes.inputs.T @ other)
    left, values, right = np.linalg.svd(core, full_matrices=False)
    kept = values > EQUAL * values[0] if values[0] > 0 else np.zeros(len(values), dtype=bool)
    values, left, right = values[kept], basis @ left[:, kept], right[kept] @ other.T
    return Spectrum(values, left, right, (left.T @ of_codes.common) ** 2, equals(values))


def equals(values: Float64[np.ndarray, " rank"]) -> tuple[slice, ...]:
    """Runs of equal values among descending ones."""
    if not len(values):
        return ()
    cuts = [i for i in range(1, len(values)) if values[i - 1] - values[i] > EQUAL * values[0]]
    return tuple(slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True))


def noise_place(of: Spectrum) -> NoisePlace:
    """Where the noise lies."""
    held = [float(of.alignment[group].sum()) for group in of.groups]
    if max(held, default=0.0) < EQUAL:
        return NoisePlace(side="absent", rank=0, ratio=0.0, alignment=0.0)
    index = int(np.argmax(held))
    group = of.groups[index]
    others = [of.values[other.start] for i, other in enumerate(of.groups) if i != index]
    ratio = float(of.values[group.start] / max(others)) if others else 1.0
    side: Side = "between"
    if group.stop - group.start > 1:
        side = "tied"
    elif index in (0, len(of.groups) - 1):
        side = "bottom" if index else "top"
    return NoisePlace(side=side, rank=group.start + 1, ratio=ratio, alignment=held[index])
