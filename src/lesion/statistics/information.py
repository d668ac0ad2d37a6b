"""Information: how much two clusterings, or two sets of vectors, of the same tokens have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int, Shaped

# Numbers of a float64 piece of a product: what is held beside the vectors themselves.
_PIECE = 1 << 21


def normalised_mutual_information(
    a: Shaped[np.ndarray, " tokens"], b: Shaped[np.ndarray, " tokens"], normalisation: str = "arithmetic"
) -> float:
    """Mutual information of two labellings over a mean of their entropies: 1 where they are the same, 0 if unrelated.

    I(a; b) / mean(H(a), H(b)) (Vinh et al. 2010, table 2), with the mean that is named (`_mean_of`); float64. As in
    scikit-learn, two labellings with one class each are the same (1), and one class against several is 0. Unrelated
    labellings of few tokens do not reach 0 (`shuffled`).
    """
    return _nmi(*_codes(a), *_codes(b), normalisation)


def shuffled(
    a: Shaped[np.ndarray, " tokens"],
    b: Shaped[np.ndarray, " tokens"],
    times: int,
    rng: np.random.Generator,
    normalisation: str = "arithmetic",
) -> Float64[np.ndarray, " times"]:
    """The same information where `b` is permuted over the tokens, `times` times: the floor that chance alone gives.

    Sizes and entropies stay; only the table of a permutation is counted, and c log c of every count is looked up.
    """
    (first, ka), (second, kb) = _codes(a), _codes(b)
    if min(ka, kb) <= 1:
        return np.full(times, _nmi(first, ka, second, kb, normalisation))
    tokens = len(first)
    counts = np.arange(tokens + 1, dtype=np.float64)
    logs = counts * np.log(np.maximum(counts, 1))
    rows, columns = np.bincount(first), np.bincount(second)
    entropies = [math.log(tokens) - float(logs[sizes].sum()) / tokens for sizes in (rows, columns)]
    mean = _mean_of(entropies[0], entropies[1], normalisation)
    cells = first * kb
    information = np.empty(times)
    for time in range(times):
        joint = math.log(tokens) - float(logs[np.bincount(cells + rng.permutation(second))].sum()) / tokens
        information[time] = min(1.0, max(0.0, entropies[0] + entropies[1] - joint) / mean)
    return information


def _codes(labels: Shaped[np.ndarray, " tokens"]) -> tuple[Int[np.ndarray, " tokens"], int]:
    values, codes = np.unique(labels, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _nmi(a: Any, classes_a: int, b: Any, classes_b: int, normalisation: str) -> float:
    if classes_a == classes_b <= 1:
        return 1.0
    table = np.bincount(a * classes_b + b, minlength=classes_a * classes_b).reshape(classes_a, classes_b)
    joint = table / table.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    i, j = joint.nonzero()
    shared = joint[i, j]
    mutual = float(np.sum(shared * (np.log(shared) - np.log(rows[i]) - np.log(columns[j]))))
    if mutual <= np.finfo(np.float64).eps:
        return 0.0
    return min(1.0, mutual / _mean_of(_entropy(rows), _entropy(columns), normalisation))


def _mean_of(first: float, second: float, normalisation: str) -> float:
    return {
        "arithmetic": (first + second) / 2,
        "geometric": math.sqrt(first * second),
        "min": min(first, second),
        "max": max(first, second),
    }[normalisation]


def _entropy(shares: Float64[np.ndarray, " classes"]) -> float:
    positive = shares[shares > 0]
    return float(-np.sum(positive * np.log(positive)))


def cosine(x: Float[np.ndarray, "tokens width"], y: Float[np.ndarray, "tokens width"]) -> float:
    """Mean over tokens of the cosine of a token's vectors in `x` and `y`; float64; a vector of zeros counts as 0."""
    total = 0.0
    step = max(1, _PIECE // x.shape[1])
    for start in range(0, len(x), step):
        first, second = (z[start : start + step].astype(np.float64) for z in (x, y))
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        dots = np.einsum("ij,ij->i", first, second)
        total += float(np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0).sum())
    return total / len(x)


class Alignment:
    """Linear centred kernel alignment of sets of vectors with one `x`, whose own norm is computed once.

    CKA is ‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖) with columns centred (Kornblith et al. 2019, Eq. 3). Both sides may be maps of files:
    they are read in pieces, in float64. Of the products [width, width] and [tokens, tokens], which have the same norms,
    the smaller are made, a stripe at a time.
    """

    def __init__(self, x: Float[np.ndarray, "tokens width_x"]) -> None:
        self.x = x
        self.mean = _mean(x)
        self.own = self._products(x, self.mean, x, self.mean)

    def cka(self, y: Float[np.ndarray, "tokens width_y"]) -> float:
        """CKA with vectors of the same tokens: 0…1; 1 for the same vectors up to rotation, shift and one scale.

        NaN where all vectors of a side are equal.
        """
        mean = _mean(y)
        with_itself = self._products(y, mean, y, mean)
        scale = math.sqrt(self.own * with_itself)
        # Vectors that are all equal leave rounding where 0 is meant.
        if self.own <= _noise(self.x, self.mean) or with_itself <= _noise(y, mean):
            return math.nan
        return min(1.0, self._products(self.x, self.mean, y, mean) / scale)

    @staticmethod
    def _products(x: Any, mean_x: Any, y: Any, mean_y: Any) -> float:
        """‖(Y − Ȳ)ᵀ (X − X̄)‖² = Σ (X̃X̃ᵀ ∘ ỸỸᵀ)."""
        tokens, width = len(x), min(x.shape[1], y.shape[1])
        total = 0.0
        if tokens <= width:
            step = max(1, _PIECE // tokens)
            for start in range(0, tokens, step):
                kernel: Any = _kernel(x, mean_x, slice(start, start + step))
                other = kernel if x is y else _kernel(y, mean_y, slice(start, start + step))
                total += float(np.vdot(kernel, other))
            return total
        step, rows = max(1, _PIECE // x.shape[1]), max(1, _PIECE // max(x.shape[1], y.shape[1]))
        for start in range(0, y.shape[1], step):
            stripe = slice(start, start + step)
            # Of XᵀX, which is symmetric, what lies below the diagonal stripe is what lies above it.
            columns = slice(start if x is y else 0, None)
            gram: Any = np.zeros((x[:1, columns].shape[1], y[:1, stripe].shape[1]))
            for row in range(0, tokens, rows):
                piece = slice(row, row + rows)
                left = x[piece, columns].astype(np.float64) - mean_x[columns]
                gram += left.T @ (y[piece, stripe].astype(np.float64) - mean_y[stripe])
            squares = float(np.vdot(gram, gram))
            if x is y:
                width = gram.shape[1]
                squares = 2 * squares - float(np.vdot(gram[:width], gram[:width]))
            total += squares
        return total


def _kernel(x: Any, mean: Any, rows: slice) -> Float64[np.ndarray, "rows tokens"]:
    """Some rows of X̃X̃ᵀ."""
    kernel: Any = np.zeros((len(x[rows]), len(x)))
    columns = max(1, _PIECE // len(x))
    for start in range(0, x.shape[1], columns):
        piece = slice(start, start + columns)
        centred = x[:, piece].astype(np.float64) - mean[piece]
        kernel += centred[rows] @ centred.T
    return np.asarray(kernel)


def _mean(x: Any) -> Float64[np.ndarray, " width"]:
    return np.asarray(np.mean(x, axis=0, dtype=np.float64))


def _noise(x: Any, mean: Any) -> float:
    """The largest ‖X̃ᵀX̃‖² where the rows of X are equal and only their mean was rounded."""
    return float((len(x) * np.vdot(mean, mean) * np.finfo(np.float64).eps ** 2) ** 2) * 16
