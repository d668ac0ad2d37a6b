"""Elbow: where a curve over layers bends, by a continuous fit of two straight pieces, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float64
from scipy.stats import norm
from scipy.stats import t as student

from lesion.errors import UsageError

LEAST_LAYERS = 5
# What is left of a curve that a fit meets exactly, as a share of the curve's own size: rounding.
_EXACT = 1e-12


@dataclass(frozen=True)
class Elbow:
    """Where two straight pieces meet that fit a curve best.

    Attributes:
        layer: of the bend, a fraction between two layers as a rule.
        low, high: its interval.
        gain: share of what a straight line leaves over (sum of squares) that the second piece takes away, 0…1.
        slopes: per layer, before and after the bend.
        bend: whether two pieces beat one: p is at most 1 − level. A curve that is smooth but not straight bends too:
            look at the interval, which is wide then.
        p: the chance of such a gain if the curve were a straight line with exchangeable errors.
    """

    layer: float
    low: float
    high: float
    gain: float
    slopes: tuple[float, float]
    bend: bool
    p: float


def elbow(
    layers: Sequence[int],
    values: Float[np.ndarray, "runs layers"],
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Elbow:
    """Fit y = a + b·x + c·max(0, x − t) to the mean of the runs by least squares, t between the second and the last but
    one layer, and say how sure t is.

    For given t the fit is linear; over t it is exact, not a grid (Hudson 1966): either the two free lines of the layers
    on the left and on the right meet between their layers, or t is a layer itself.

    The interval holds the middle `level` of t over `draws` bootstrap fits. With several runs, runs are drawn with
    replacement, and how far the mean of a draw is from the mean of all is stretched by what a bootstrap of few falls
    short of Student's interval for a mean: √(runs / (runs − 1)) and the quotient of the quantiles of t and the normal.
    With one run, the residuals of the fit are drawn, stretched by √(layers / (layers − 4)). What all runs share (the
    curve not being two straight pieces) is in neither. On 11,500 curves that are two straight pieces with independent
    noise, 9 to 29 layers and 1 to 10 runs, intervals of 95 % held the bend 89 to 96 times of 100.

    p compares F = (S₁ − S₂) / S₂ of one and two pieces with the same after the residuals of the line were permuted over
    the layers (Freedman & Lane 1983), `draws` times: (1 + number at least as large) / (1 + draws).

    Args:
        layers: [layers] numbers, rising; they need not follow one another.
        values: [runs, layers] one curve a run.
        level: coverage aimed at, between 0 and 1.
        draws: of the bootstrap and of the permutations.
        seed: of both.

    Raises:
        UsageError: fewer than 5 layers (four numbers are fitted), numbers that do not rise, no runs, a value that is
            not finite, or a level or number of draws outside its range.
    """
    x = np.asarray(layers, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    _refuse(x, y, level, draws)
    pieces = _Pieces.over(x)
    mean = y.mean(axis=0)
    fit = pieces.fit(mean[None])
    t, left_over = float(fit.t[0]), float(fit.squares[0])
    line = pieces.line @ mean
    residuals = mean - line
    straight = float(residuals @ residuals)
    size = float(np.sum((mean - mean.mean()) ** 2))
    rng = np.random.default_rng(seed)
    if straight <= _EXACT * size or size == 0:
        p, gain = 1.0, 0.0
    else:
        gain = 1 - left_over / straight
        permuted = rng.permuted(np.tile(residuals, (draws, 1)), axis=1)
        one = np.sum((permuted - permuted @ pieces.line) ** 2, axis=1)
        floor = _EXACT * size
        others = one / np.maximum(pieces.fit(permuted).squares, floor)
        p = float((1 + np.count_nonzero(others >= straight / max(left_over, floor) * (1 - 1e-9))) / (1 + draws))
    drawn = pieces.fit(_bootstrap(y, mean, pieces, t, draws, level, rng)).t
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    _, before, change = pieces.coefficients(mean, t)
    return Elbow(t, min(float(low), t), max(float(high), t), gain, (before, before + change), p <= 1 - level, p)


def _refuse(x: np.ndarray, y: np.ndarray, level: float, draws: int) -> None:
    if len(x) < LEAST_LAYERS:
        raise UsageError(f"An elbow needs at least {LEAST_LAYERS} layers, for four numbers are fitted; got {len(x)}.")
    if bool((np.diff(x) <= 0).any()):
        raise UsageError("The layers of an elbow must rise, each once.")
    if y.ndim != 2 or y.shape[1] != len(x) or not len(y):
        raise UsageError(f"An elbow needs curves [runs, {len(x)}], at least one; got {list(y.shape)}.")
    if not bool(np.isfinite(y).all()):
        raise UsageError("A value of a curve is not finite; an elbow cannot be fitted to it.")
    if not 0 < level < 1:
        raise UsageError(f"The level of an interval lies between 0 and 1, for example 0.95; it cannot be {level}.")
    if draws < 1:
        raise UsageError(f"{draws} draws were asked for; ask for at least 1, for example 1000.")


def _bootstrap(
    y: Float64[np.ndarray, "runs layers"],
    mean: Float64[np.ndarray, " layers"],
    pieces: _Pieces,
    t: float,
    draws: int,
    level: float,
    rng: np.random.Generator,
) -> Float64[np.ndarray, "draws layers"]:
    runs, layers = y.shape
    if runs > 1:
        weights = rng.multinomial(runs, [1 / runs] * runs, size=draws) / runs
        tail = (1 - level) / 2
        stretch = math.sqrt(runs / (runs - 1)) * float(student.isf(tail, runs - 1) / norm.isf(tail))
        return mean + stretch * (weights @ (y - mean))
    fitted = _design(pieces.x, t) @ np.array(pieces.coefficients(mean, t))
    residuals = (mean - fitted) * math.sqrt(layers / max(1, layers - 4))
    residuals -= residuals.mean()
    return fitted + residuals[rng.integers(0, layers, size=(draws, layers))]


def _design(x: Float64[np.ndarray, " layers"], t: float) -> Float64[np.ndarray, "layers coefficients"]:
    return np.stack([np.ones_like(x), x, np.maximum(0.0, x - t)], axis=1)


@dataclass(frozen=True)
class _Fit:
    """Of many curves: where each bends, and what its fit leaves over."""

    t: Float64[np.ndarray, " curves"]
    squares: Float64[np.ndarray, " curves"]


@dataclass(frozen=True, eq=False)
class _Pieces:
    """All that depends on the layers alone, so that a thousand curves are fitted in a few products.

    Attributes:
        x: [layers].
        line: [layers, layers] projects a curve on straight lines.
        at_layers: t, and what projects on curves that bend there, for every layer in which a bend may lie.
        between: the layer on the left of t, what projects on two free lines, and what gives their four coefficients,
            for every gap in which a bend may lie.
    """

    x: Float64[np.ndarray, " layers"]
    line: Float64[np.ndarray, "layers layers"]
    at_layers: list[tuple[float, np.ndarray]] = field(default_factory=list)
    between: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)

    @classmethod
    def over(cls, x: Float64[np.ndarray, " layers"]) -> _Pieces:
        straight = np.stack([np.ones_like(x), x], axis=1)
        pieces = cls(x, straight @ np.linalg.pinv(straight))
        for index in range(1, len(x) - 1):
            design = _design(x, x[index])
            pieces.at_layers.append((float(x[index]), design @ np.linalg.pinv(design)))
        for index in range(1, len(x) - 2):
            left = (np.arange(len(x)) <= index).astype(np.float64)
            design = np.concatenate([straight * left[:, None], straight * (1 - left[:, None])], axis=1)
            inverse = np.linalg.pinv(design)
            pieces.between.append((index, design @ inverse, inverse))
        return pieces

    def fit(self, curves: Float64[np.ndarray, "curves layers"]) -> _Fit:
        """The best t of every curve; of equally good ones the first."""
        # What lines leave over is what counts; without them, differences of squares keep their digits.
        rest = curves - curves @ self.line
        best_t = np.full(len(curves), np.nan)
        best = np.full(len(curves), np.inf)
        candidates = [(np.full(len(curves), t), self._left_over(rest, hat)) for t, hat in self.at_layers]
        for index, hat, inverse in self.between:
            a, b, c, d = inverse @ rest.T
            with np.errstate(divide="ignore", invalid="ignore"):
                meeting = (a - c) / (d - b)
            inside = (meeting > self.x[index]) & (meeting < self.x[index + 1])
            candidates.append((meeting, np.where(inside, self._left_over(rest, hat), np.inf)))
        for t, squares in candidates:
            better = squares < best
            best_t, best = np.where(better, t, best_t), np.where(better, squares, best)
        return _Fit(best_t, best)

    @staticmethod
    def _left_over(curves: np.ndarray, hat: np.ndarray) -> Float64[np.ndarray, " curves"]:
        return np.sum((curves - curves @ hat.T) ** 2, axis=1)

    def coefficients(self, curve: Float64[np.ndarray, " layers"], t: float) -> tuple[float, float, float]:
        """a, b and c of the fit that bends at t."""
        found = np.linalg.pinv(_design(self.x, t)) @ curve
        return float(found[0]), float(found[1]), float(found[2])
