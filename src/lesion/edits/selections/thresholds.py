"""Thresholds: the exact cut between the top share of a matrix's weights and the rest, ties on one side.

The importance of a weight to a data set is |W_ij| · a_j (Christ et al. 2024, eq. 1). With a weight of at most 24
significant bits (float32, bfloat16, float16) and a float32 vector the product is exact in float64: nothing here rounds,
so that equal scores are ties and no others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.errors import LesionError

# Entries whose scores are looked at at a time: few enough to stay in the processor's cache.
CHUNK = 1 << 18
# Entries from which it is guessed how high the top share of a larger matrix begins.
SAMPLE = 1 << 14


@lru_cache(maxsize=4096)
def top_count(keep: float, size: int) -> int:
    """How many of `size` entries the top share `keep` is: ⌊keep · size⌋ in exact decimals, at least 1.

    0.29 of 100 is 29, not the 28 that binary floating point makes of it.
    """
    return min(size, max(1, int(Fraction(str(keep)) * size)))


def cut(weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], counts: Sequence[int]) -> list[float]:
    """The score of the k-th largest entry of |W| · a, for every k in `counts`, exact.

    Rounding to float32 keeps order, so the k-th largest rounded score says where the exact one lies; only the entries
    that round to it are looked at in float64. One pass over the matrix serves all counts, without a copy.

    Args:
        weight: float32, bfloat16 or float16.
        vector: a, float32.
    """
    most = max(counts)
    places, values = _candidates(weight, vector, most)
    top = np.partition(values, len(values) - most)[len(values) - most :]
    top.sort()
    if np.isnan(top[-1]):  # the largest of all, as numpy sorts
        raise LesionError("The weights of a matrix or the sums of its inputs are not finite; they have no order.")
    near = {k: top[most - k] for k in set(counts)}
    tied = {rounded: np.flatnonzero(values == rounded) for rounded in set(near.values())}
    exact = _exact_at(weight, vector, torch.from_numpy(places[np.concatenate(list(tied.values()))]))
    parts = np.split(exact, np.cumsum([len(at) for at in tied.values()])[:-1])
    ordered = {rounded: np.sort(part) for rounded, part in zip(tied, parts, strict=True)}
    score_of: dict[int, float] = {}
    for k, rounded in near.items():
        above = most - int(np.searchsorted(top, rounded, side="right"))
        score_of[k] = float(ordered[rounded][len(ordered[rounded]) - (k - above)])
    return [score_of[k] for k in counts]


def _candidates(weight: Tensor, vector: Tensor, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat places and rounded scores, among them the `most` largest entries with all that tie, and every NaN."""
    size = weight.numel()
    low, rank = -np.inf, most * SAMPLE / size
    if size > 4 * SAMPLE:
        spread = torch.from_numpy(np.arange(SAMPLE, dtype=np.int64) * 0x9E3779B1 % size)
        guess = torch.from_numpy(_exact_at(weight, vector, spread)).float().sort().values.numpy()
        # Lower than it need be by four standard deviations of the guess.
        low = guess[max(0, SAMPLE - 1 - int(rank + 4 * rank**0.5 + 8))]
    while True:
        places, values = [], []
        for start, scores in _rounded(weight, vector):
            high = ~(scores < low)
            at = np.flatnonzero(high) if isinstance(high, np.ndarray) else high.flatten().nonzero().flatten()
            chosen = scores.reshape(-1)[at]
            places.append(start * weight.shape[1] + np.asarray(at if isinstance(at, np.ndarray) else at.cpu()))
            values.append(np.asarray(chosen if isinstance(chosen, np.ndarray) else chosen.cpu()))
        if sum(map(len, values)) >= most:
            return np.concatenate(places), np.concatenate(values)
        low = -np.inf  # the guess was wrong


def _rounded(weight: Tensor, vector: Tensor) -> Iterator[tuple[int, Any]]:
    """Rows of |W| · a rounded to float32, with the number of the first, in memory that is used again.

    On a CPU as numpy arrays, whose loops are several times as fast; elsewhere as tensors on the device.
    """
    rows = max(1, CHUNK // weight.shape[1])
    if weight.device.type != "cpu":
        vector, rows = vector.to(weight.device), rows * 64  # few large kernels
        for start in range(0, weight.shape[0], rows):
            yield start, weight[start : start + rows].abs().float() * vector
        return
    factors = vector.cpu().numpy()
    buffer = torch.empty(min(rows, weight.shape[0]), weight.shape[1])
    for start in range(0, weight.shape[0], rows):
        part = weight[start : start + rows]
        scores = buffer[: len(part)].numpy()
        if weight.dtype == torch.float32:
            np.abs(part.numpy(), out=scores)
        else:
            np.abs(buffer[: len(part)].copy_(part).numpy(), out=scores)
        with np.errstate(all="ignore"):
            np.multiply(scores, factors, out=scores)
        yield start, scores


def cut_rows(
    weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], counts: Sequence[int]
) -> list[Float[Tensor, " out"]]:
    """The score of the k-th largest entry of every row of |W| · a, for every k in `counts`: exact, float64, on the CPU.

    Arguments and errors as of `cut`.
    """
    rows = max(1, CHUNK // weight.shape[1])
    scores_of: dict[int, list[Tensor]] = {k: [] for k in counts}
    for start in range(0, weight.shape[0], rows):
        scores = weight[start : start + rows].abs().double() * vector.to(weight.device).double()
        ordered = np.sort(scores.cpu().numpy(), axis=1)
        if np.isnan(ordered[:, -1]).any():
            raise LesionError("The weights of a matrix or the sums of its inputs are not finite; they have no order.")
        for k in scores_of:
            scores_of[k].append(torch.from_numpy(ordered[:, ordered.shape[1] - k].copy()))
    return [torch.cat(scores_of[k]) for k in counts]


def at_least(
    weight: Float[Tensor, "out in"], vector: Float[Tensor, " in"], cut: Float[Tensor, "*rows"]
) -> Bool[Tensor, "out in"]:
    """Where |W| · a reaches the cut and is not 0: exact, ties with the cut selected, on the device of the weight.

    The cut is float64, one for the matrix (no axes) or one per row [out]; the rest as in `cut`.
    """
    if cut.dim() == 0 and weight.device.type == "cpu":
        return _at_least_sizes(weight, _least_sizes(vector, float(cut)))
    mask = torch.empty(weight.shape, dtype=torch.bool, device=weight.device)
    cut = cut.to(weight.device)
    near = cut.float()
    for start, scores in _rounded(weight, vector):
        stop = start + len(scores)
        bar = near if near.dim() == 0 else near[start:stop, None]
        # Rounding keeps order: what differs from the rounded cut is on its side of the exact one.
        if isinstance(scores, np.ndarray):
            np.greater(scores, bar.numpy(), out=mask[start:stop].numpy())
            tied = torch.from_numpy(np.flatnonzero(scores == bar.numpy()))
        else:
            torch.gt(scores, bar, out=mask[start:stop])
            tied = (scores == bar).flatten().nonzero().flatten()
        if len(tied):
            places = tied + start * weight.shape[1]
            exact = torch.from_numpy(_exact_at(weight, vector, places)).to(weight.device)
            bars = cut if cut.dim() == 0 else cut[places // weight.shape[1]]
            mask.view(-1)[places] = (exact >= bars) & (exact > 0)
    return mask


def _least_sizes(vector: Float[Tensor, " in"], cut: float) -> np.ndarray:
    """The smallest |W_ij| above 0 in every column whose score reaches the cut, exact; NaN where there is none."""
    factors = vector.cpu().numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        least = np.maximum((cut / factors).astype(np.float32), np.float32(0))
        # The quotient is rounded, by far less than two steps: two below it surely do not reach the cut, or are 0.
        for _ in range(2):
            least = np.nextafter(least, np.float32(0))
        for _ in range(4):
            short = (least.astype(np.float64) * factors < cut) | (least == 0)
            least = np.where(short, np.nextafter(least, np.float32(np.inf)), least)
        reached = (least.astype(np.float64) * factors >= cut) & (factors > 0)
    return np.where(reached, least, np.float32(np.nan))


def _at_least_sizes(weight: Float[Tensor, "out in"], least: np.ndarray) -> Bool[Tensor, "out in"]:
    """Where |W| is at least as large as its column wants it: no score needs to be worked out."""
    mask = torch.empty(weight.shape, dtype=torch.bool)
    rows = max(1, CHUNK // weight.shape[1])
    buffer = torch.empty(min(rows, weight.shape[0]), weight.shape[1])
    for start in range(0, weight.shape[0], rows):
        part = weight[start : start + rows]
        sizes = buffer[: len(part)].numpy()
        values = part if weight.dtype == torch.float32 else buffer[: len(part)].copy_(part)
        np.abs(values.numpy(), out=sizes)
        with np.errstate(all="ignore"):
            np.greater_equal(sizes, least, out=mask[start : start + rows].numpy())
    return mask


def _exact_at(weight: Tensor, vector: Tensor, places: Tensor) -> np.ndarray:
    places = places.to(weight.device)
    values = torch.take(weight, places).abs().double() * vector.to(weight.device).double()[places % weight.shape[1]]
    return np.asarray(values.cpu().numpy(), dtype=np.float64)
