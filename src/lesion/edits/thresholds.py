"""Thresholds: the exact cut between the top share of a matrix's weights and the rest, ties on one side.

The importance of a weight to a data set is |W_ij| · a_j (Christ et al. 2024, eq. 1). With a weight of at most 24
significant bits (float32, bfloat16, float16) and a float32 vector the product is exact in float64: nothing here rounds,
so that equal scores are ties and no others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.errors import LesionError

# Entries whose scores are looked at in float64 at a time: few enough to stay in the processor's cache.
CHUNK = 1 << 18


def top_count(keep: float, size: int) -> int:
    """How many of `size` entries the top share `keep` is: ⌊keep · size⌋ in exact decimals, at least 1.

    0.29 of 100 is 29, not the 28 that binary floating point makes of it.
    """
    return min(size, max(1, int(Fraction(str(keep)) * size)))


def cut(weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], counts: Sequence[int]) -> list[float]:
    """The score of the k-th largest entry of |W| · a, for every k in `counts`, exact.

    Rounding to float32 keeps order, so the k-th largest rounded score says where the exact one lies; only the entries
    that round to it are looked at in float64. One partition serves all counts.

    Args:
        weight: float32, bfloat16 or float16.
        vector: a, float32.
        counts: each in 1…out·in.

    Raises:
        LesionError: a score is not a number, since the weights or the vector are not finite.
    """
    host = (weight.abs().float() * vector.to(weight.device)).flatten().cpu().numpy()
    most = max(counts)
    top = np.sort(np.partition(host, len(host) - most)[len(host) - most :])
    if np.isnan(top[-1]):  # the largest of all, as numpy sorts
        raise LesionError("The weights of a matrix or the sums of its inputs are not finite; they have no order.")
    found: dict[int, float] = {}
    for k in set(counts):
        near = top[most - k]
        above = most - int(np.searchsorted(top, near, side="right"))
        exact = np.sort(_exact_at(weight, vector, torch.from_numpy(np.flatnonzero(host == near))))
        found[k] = float(exact[len(exact) - (k - above)])
    return [found[k] for k in counts]


def cut_rows(
    weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], counts: Sequence[int]
) -> list[Float[Tensor, " out"]]:
    """The score of the k-th largest entry of every row of |W| · a, for every k in `counts`: exact, float64, on the CPU.

    Args:
        weight: float32, bfloat16 or float16.
        vector: a, float32.
        counts: each in 1…in.

    Raises:
        LesionError: a score is not a number, since the weights or the vector are not finite.
    """
    rows = max(1, CHUNK // weight.shape[1])
    found: dict[int, list[Tensor]] = {k: [] for k in counts}
    for start in range(0, weight.shape[0], rows):
        scores = weight[start : start + rows].abs().double() * vector.to(weight.device).double()
        ordered = np.sort(scores.cpu().numpy(), axis=1)
        if np.isnan(ordered[:, -1]).any():
            raise LesionError("The weights of a matrix or the sums of its inputs are not finite; they have no order.")
        for k in found:
            found[k].append(torch.from_numpy(ordered[:, ordered.shape[1] - k].copy()))
    return [torch.cat(found[k]) for k in counts]


def at_least(
    weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], cut: Float[Tensor, "*rows"]
) -> Bool[Tensor, "out in"]:
    """Where |W| · a reaches the cut and is not 0: exact, ties with the cut selected, on the device of the weight.

    Args:
        weight: float32, bfloat16 or float16.
        vector: a, float32.
        cut: float64, one for the matrix (no axes) or one per row [out].
    """
    vector = vector.to(weight.device)
    cut = cut.to(weight.device)
    mask = torch.empty(weight.shape, dtype=torch.bool, device=weight.device)
    rows = max(1, CHUNK // weight.shape[1])
    for start in range(0, weight.shape[0], rows):
        scores = weight[start : start + rows].abs().double() * vector.double()
        bar = cut if cut.dim() == 0 else cut[start : start + rows, None]
        torch.logical_and(scores >= bar, scores > 0, out=mask[start : start + rows])
    return mask


def _exact_at(weight: Tensor, vector: Tensor, places: Tensor) -> np.ndarray:
    rows, columns = (part.to(weight.device) for part in (places // weight.shape[1], places % weight.shape[1]))
    values = weight[rows, columns].abs().double() * vector.to(weight.device).double()[columns]
    return np.asarray(values.cpu().numpy(), dtype=np.float64)
