"""Shape of a curve over layers: a straight line, a hinge or a step, judged by how the curves of several runs vary.

The layers of one run share the problems, and noise at one layer is passed on to the next, so no test here takes them
for independent. A run's curve is reduced to its departure from its own straight line; only runs are taken for
independent of one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from scipy.stats import f as fisher
from scipy.stats import norm
from scipy.stats import t as student

LEAST_LAYERS = 5
FINE = 20
"""Places tried for a hinge between two neighbouring layers."""
POWER = 0.8
STUDIES = 400
"""Simulated studies from which power is read."""
# What is left of a curve that a line meets exactly, as a share of the curve's own size: rounding.
_EXACT = 1e-12

Kind = Literal["hinge", "step"]
Chosen = Literal["line", "hinge", "step", "neither", "untested"]


@dataclass(frozen=True)
class Line:
    """Whether a straight line is enough.

    Attributes:
        p: of a test that holds however layers of one run vary together (`lack_of_fit`); NaN with one run.
        f, degrees, f_p: the textbook's lack-of-fit F with runs as blocks, right only where all layers vary alike and
            their noise is independent or common to all; NaN with one run.
    """

    p: float
    f: float
    degrees: tuple[int, int]
    f_p: float


@dataclass(frozen=True)
class Departure:
    """A hinge or a step on top of a straight line, where it fits best.

    Attributes:
        kind: a hinge, where the slope changes, or a step, where the level does.
        layer, low, high: the place, and its interval by a bootstrap of runs; NaN with one run.
        size: of a hinge the change of slope per layer, of a step the change of level.
        gain: share of the mean curve's squares around a straight line that it explains, 0…1.
        slopes: per layer, before and after the place.
        p: of its size being zero, the search over places included; NaN with one run.
    """

    kind: Kind
    layer: float
    low: float
    high: float
    size: float
    gain: float
    slopes: tuple[float, float]
    p: float


@dataclass(frozen=True)
class Shape:
    """What a curve over layers is.

    Attributes:
        chosen: `line` where it is not rejected; else the hinge or the step whose p is at most 1 − level, where both are
            the one that fits better; `neither` where the line is rejected and neither is found; `untested` with one
            run.
        share: of the bootstrap's draws of runs in which the same of hinge and step fits better; NaN with one run.
    """

    chosen: Chosen
    line: Line
    hinge: Departure
    step: Departure
    share: float

    @property
    def departure(self) -> Departure | None:
        """The hinge or the step that was chosen."""
        return self.hinge if self.chosen == "hinge" else self.step if self.chosen == "step" else None


def shape(
    layers: Sequence[int],
    values: Float[np.ndarray, "runs layers"],
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Shape:
    """Test a straight line by replicates, fit a hinge and a step beside it, and choose.

    Every run has its own line and its own size of the hinge or step; the place is common. It is the one with the least
    squares summed over runs: for a hinge every twentieth of a layer between the second and the last but one, for a step
    every gap between two layers. p is that of a one-sample t test of the runs' sizes at that place. It needs no
    correction for the search: the choice depends on the curves only through sums of products over runs, which an
    orthogonal mixture of runs does not change, and under the null such a mixture has the distribution of the runs, so
    that t keeps its own whatever the covariance of layers (Läuter, Glimm & Kropf 1996, 1998). Runs are assumed
    independent and normal.

    Intervals of places hold the middle `level` of the best place over `draws` bootstrap means of runs, whose distance
    from the mean of all is stretched by what a bootstrap of few falls short of Student's interval for a mean: √(runs /
    (runs − 1)) and the quotient of the quantiles of t and the normal.

    A hinge at the second or the last but one layer and a step beside it are the same curve: one layer is off the line.

    `layers` rise and need not follow one another; a test rejects where p is at most 1 − level.
    """
    x = np.asarray(layers, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    families = _families(x)
    rest = _off_line(x, y)
    line = lack_of_fit(layers, y)
    rng = np.random.default_rng(seed)
    drawn = rest.mean(axis=0) + _bootstrap(rest, draws, level, rng)
    hinge, step = (_departure(kind, x, y, rest, family, drawn, level) for kind, family in families.items())
    squares = {kind: float(family.squares(rest).max()) for kind, family in families.items()}
    better: Kind = "hinge" if squares["hinge"] >= squares["step"] else "step"
    of_draws = {kind: (family.scores(drawn) ** 2).max(axis=1) for kind, family in families.items()}
    hinged = of_draws["hinge"] >= of_draws["step"]
    share = float(np.mean(hinged == (better == "hinge"))) if len(y) > 1 else math.nan
    return Shape(_choose(line, hinge, step, better, 1 - level), line, hinge, step, share)


def lack_of_fit(layers: Sequence[int], values: Float[np.ndarray, "runs layers"]) -> Line:
    """Whether the runs' curves depart from straight lines, all in the same direction.

    Every run's own line is taken away. What is left is weighted by the leading principal component of the uncentred
    sums of products over runs, and the runs' scores are tested by a one-sample t test: exact for independent normal
    runs whatever the covariance of layers, also with more layers than runs (Läuter, Glimm & Kropf 1998).
    """
    x, y = np.asarray(layers, dtype=np.float64), np.asarray(values, dtype=np.float64)
    runs, count = y.shape
    degrees = (count - 2, (runs - 1) * (count - 1))
    if runs < 2:
        return Line(math.nan, math.nan, degrees, math.nan)
    rest = _off_line(x, y)
    if not rest.any():
        return Line(1.0, 0.0, degrees, 1.0)
    p = float(_t_test(_principal(rest[None]))[0])
    mean = rest.mean(axis=0)
    pure = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    lack, error = runs * float(mean @ mean) / degrees[0], float(np.sum(pure**2)) / degrees[1]
    f = lack / error if error > 0 else math.inf
    return Line(p, f, degrees, float(fisher.sf(f, *degrees)))


def detectable(
    layers: Sequence[int], values: Float[np.ndarray, "runs layers"], *, level: float = 0.95, seed: int = 0
) -> dict[Kind, float]:
    """The smallest hinge and the smallest step that 80 % of studies with these runs, layers and noise would find.

    A simulated run is a straight line, a hinge or step at a random place, and normal noise. Its covariance between
    layers is that of the runs' departures from their own lines and from the mean, shrunk towards equal variance by the
    oracle-approximating estimate (Chen et al. 2010). A hinge or step counts as found where the line is rejected and its
    own p is at most 1 − level.

    By kind the size: of a hinge the change of slope per layer, of a step the change of level; NaN with one run or where
    runs do not differ.
    """
    x, y = np.asarray(layers, dtype=np.float64), np.asarray(values, dtype=np.float64)
    rest = _off_line(x, y)
    runs, families, rng = len(y), _families(x), np.random.default_rng(seed)
    deviations = rest - rest.mean(axis=0)
    if runs < 2 or float(np.sum(deviations**2)) <= _EXACT * float(np.sum(rest**2)):
        return dict.fromkeys(families, math.nan)
    covariance = _shrunk(deviations)
    variances, vectors = np.linalg.eigh(covariance)
    # The symmetric root is unique; eigenvectors alone are not, and processors return different ones.
    root = (vectors * np.sqrt(np.maximum(variances, 0))) @ vectors.T
    noise = rng.normal(size=(STUDIES, runs, len(x))) @ root
    sizes = {}
    for kind, family in families.items():
        at = rng.integers(0, len(family.places), STUDIES)
        terms = family.contrasts[at] * family.lengths[at, None]

        def power(size: float, family: _Family = family, terms: np.ndarray = terms) -> float:
            studies = noise + size * terms[:, None]
            best = np.argmax(family.squares(studies), axis=1)
            scores = np.einsum("srl,sl->sr", studies, family.contrasts[best])
            return float(np.mean((_t_test(_principal(studies)) <= 1 - level) & (_t_test(scores) <= 1 - level)))

        sizes[kind] = _smallest(power, math.sqrt(float(np.trace(covariance)) / (len(x) - 2)))
    return sizes


def _shrunk(deviations: Float64[np.ndarray, "runs layers"]) -> Float64[np.ndarray, "layers layers"]:
    """The covariance of departures from lines, in layers − 2 dimensions, shrunk towards equal variance (OAS)."""
    runs, layers = deviations.shape
    degrees, size = runs - 1, layers - 2
    sample = deviations.T @ deviations / degrees
    trace, squares = float(np.trace(sample)), float(np.sum(sample**2))
    spread = (degrees + 1 - 2 / size) * (squares - trace**2 / size)
    weight = min(1.0, ((1 - 2 / size) * squares + trace**2) / spread) if spread > 0 else 1.0
    equal = _off_line(np.arange(layers, dtype=np.float64), np.eye(layers)) * trace / size
    return np.asarray((1 - weight) * sample + weight * equal)


@dataclass(frozen=True, eq=False)
class _Family:
    """All places of a hinge or of a step, ascending.

    Attributes:
        terms: what is added to a line, of size 1.
        contrasts: the same without its own line, of length 1.
        lengths: by which a product with a contrast is divided to give a size.
    """

    places: Float64[np.ndarray, " places"]
    terms: Float64[np.ndarray, "places layers"]
    contrasts: Float64[np.ndarray, "places layers"]
    lengths: Float64[np.ndarray, " places"]

    @classmethod
    def of(cls, x: np.ndarray, places: np.ndarray, terms: np.ndarray) -> _Family:
        rest = _off_line(x, terms)
        lengths = np.linalg.norm(rest, axis=1)
        return cls(places, terms, rest / lengths[:, None], lengths)

    def scores(self, rest: Float64[np.ndarray, "... layers"]) -> Float64[np.ndarray, "... places"]:
        return rest @ self.contrasts.T

    def squares(self, rest: Float64[np.ndarray, "... runs layers"]) -> Float64[np.ndarray, "... places"]:
        """What a place takes away, each run having its own size."""
        return np.sum(self.scores(rest) ** 2, axis=-2)


def _families(x: Float64[np.ndarray, " layers"]) -> dict[Kind, _Family]:
    hinges = np.unique(np.concatenate([np.linspace(a, b, FINE + 1) for a, b in pairwise(x[1:-1])]))
    steps = (x[:-1] + x[1:]) / 2
    return {
        "hinge": _Family.of(x, hinges, np.maximum(0.0, x - hinges[:, None])),
        "step": _Family.of(x, steps, (x > steps[:, None]).astype(np.float64)),
    }


def _off_line(x: np.ndarray, curves: Float64[np.ndarray, "curves layers"]) -> Float64[np.ndarray, "curves layers"]:
    """Curves without their own straight lines; what is rounding is zero."""
    centred = x - x.mean()
    flat = curves - curves.mean(axis=1, keepdims=True)
    rest = flat - np.outer(flat @ centred / (centred @ centred), centred)
    rounding = _EXACT * max(float(np.sum(flat**2)), _EXACT * float(np.sum(curves**2)))
    return np.where(np.sum(rest**2) <= rounding, 0.0, rest)


def _principal(rest: Float64[np.ndarray, "studies runs layers"]) -> Float64[np.ndarray, "studies runs"]:
    """The runs' scores on the leading principal component of their uncentred sums of products, up to a factor."""
    return np.asarray(np.linalg.eigh(rest @ rest.swapaxes(-1, -2))[1][..., -1])


def _t_test(scores: Float64[np.ndarray, "studies runs"]) -> Float64[np.ndarray, " studies"]:
    """Two-sided p of a one-sample t test for every study; 1 where all scores are zero."""
    runs = scores.shape[-1]
    mean, spread = scores.mean(axis=-1), scores.std(axis=-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean) / spread * math.sqrt(runs)
    return np.where(mean == 0, 1.0, 2 * student.sf(np.where(np.isnan(t), 0.0, t), runs - 1))


def _departure(
    kind: Kind,
    x: Float64[np.ndarray, " layers"],
    y: Float64[np.ndarray, "runs layers"],
    rest: Float64[np.ndarray, "runs layers"],
    family: _Family,
    drawn: Float64[np.ndarray, "draws layers"],
    level: float,
) -> Departure:
    best = int(np.argmax(family.squares(rest)))
    at = float(family.places[best])
    scores = family.scores(rest)[:, best]
    mean = rest.mean(axis=0)
    straight = float(mean @ mean)
    size = float(scores.mean() / family.lengths[best])
    slope = float(np.polyfit(x, y.mean(axis=0) - size * family.terms[best], 1)[0])
    low = high = p = math.nan
    if len(y) > 1:
        p = float(_t_test(scores[None])[0])
        places = family.places[np.argmax(family.scores(drawn) ** 2, axis=1)]
        low = min(at, float(np.quantile(places, (1 - level) / 2, method="lower")))
        high = max(at, float(np.quantile(places, (1 + level) / 2, method="higher")))
    return Departure(
        kind, at, low, high, size, float(scores.mean() ** 2 / straight) if straight else 0.0,
        (slope, slope + size if kind == "hinge" else slope), p,
    )  # fmt: skip


def _choose(line: Line, hinge: Departure, step: Departure, better: Kind, alpha: float) -> Chosen:
    if math.isnan(line.p):
        return "untested"
    if line.p > alpha:
        return "line"
    significant: list[Kind] = [departure.kind for departure in (hinge, step) if departure.p <= alpha]
    return better if better in significant else significant[0] if significant else "neither"


def _bootstrap(
    rest: Float64[np.ndarray, "runs layers"], draws: int, level: float, rng: np.random.Generator
) -> Float64[np.ndarray, "draws layers"]:
    """How far the means of runs drawn with replacement are from the mean of all, stretched."""
    runs = len(rest)
    if runs < 2:
        return np.zeros((draws, rest.shape[1]))
    weights = rng.multinomial(runs, [1 / runs] * runs, size=draws) / runs
    tail = (1 - level) / 2
    stretch = math.sqrt(runs / (runs - 1)) * float(student.isf(tail, runs - 1) / norm.isf(tail))
    return np.asarray(stretch * (weights @ (rest - rest.mean(axis=0))))


def _smallest(power: Callable[[float], float], scale: float) -> float:
    """The least size with enough power, to a hundredth of itself."""
    high = scale
    for _ in range(30):
        if power(high) >= POWER:
            break
        high *= 2
    else:
        return math.nan
    low = 0.0
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
