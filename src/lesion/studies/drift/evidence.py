"""The rules by which a drift's numbers become words: how sure a place is, what is near it, do other measures agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from lesion.studies.drift.result import Curve, Departure, DriftOfModel, DriftSummary, within

DRAWS = 9_999
"""Shuffles behind the p of a rank correlation between the steps of two measures."""
FIRST = 0.25
"""A hinge or step within this many layers after the first step still marks the end of that step."""
WIDE = 0.5
"""A place whose interval is wider than this share of all layers is reported as uncertain."""


def at_the_start(summary: DriftSummary, departure: Departure) -> bool:
    """Whether a hinge or step stands at the first layer after the reference, or before it."""
    return departure.layer <= summary.reference + 1 + FIRST


def reach(model: DriftOfModel, departure: Departure) -> str | None:
    """`within` where the whole interval of a hinge or step is in critical blocks, `outside` where none of it is.

    Otherwise `open`; None without critical blocks or without an interval.
    """
    blocks = model.critical_blocks
    if not blocks or departure.low is None or departure.high is None:
        return None
    if departure.kind == "step":
        places = [block + 0.5 for block in range(int(departure.low), int(departure.high) + 1)]
    else:
        places = np.linspace(departure.low, departure.high, 401).tolist()
    inside = [within(place, blocks) for place in places]
    return "within" if all(inside) else "open" if any(inside) else "outside"


def agreement(curve: Curve, measure: str, reference: int, seed: int = 0) -> tuple[float, float] | None:
    """Spearman's ρ between the steps of NMI and of another measure over the blocks, and its p.

    The step onto the first layer after the reference is left out: there every measure leaves its own 1.

    Returns:
        ρ, and the share of shuffles (of `DRAWS`, and the order itself) with a ρ as large; None with fewer than four
        blocks, or where one of the two does not vary.
    """
    own, other = curve.steps("nmi"), curve.steps(measure)
    blocks = [block for block in own if block in other and block > reference]
    if len(blocks) < 4:
        return None
    x, y = (rankdata([steps[block] for block in blocks]) for steps in (own, other))
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    if norm == 0:
        return None
    draw = np.random.default_rng(seed)
    shuffled = draw.permuted(np.tile(y, (DRAWS, 1)), axis=1) @ x
    observed = float(x @ y)
    return observed / norm, (1 + int((shuffled >= observed - 1e-9).sum())) / (DRAWS + 1)


def at_least(hits: int, chances: Sequence[float]) -> float:
    """The chance of so many hits or more in independent trials with these chances (Poisson's binomial)."""
    tally = np.array([1.0])
    for chance in chances:
        tally = np.convolve(tally, [1 - chance, chance])
    return float(tally[hits:].sum())


def lost(model: DriftOfModel) -> list[int]:
    """The layers at which NMI, less a standard deviation, is no higher than the null reaches."""
    nmi, highs = dict(model.curve.along("nmi")), null_reach(model.curve)
    return [layer for layer, high in highs.items() if layer in nmi and nmi[layer].mean - (nmi[layer].std or 0) <= high]


def null_reach(curve: Curve) -> dict[int, float]:
    """By layer, how high shuffled tokens reach: the 97.5 % quantile over shuffles, the mean of the runs.

    Where that is unknown it is the null and a standard deviation between runs.
    """
    high = dict(curve.along("null_high"))
    return {
        layer: high[layer].mean if layer in high else value.mean + (value.std or 0.0)
        for layer, value in curve.along("null")
    }


def wide(model: DriftOfModel) -> bool:
    """Whether the interval of the model's hinge or step covers more than `WIDE` of its layers."""
    departure = model.curve.departure
    if departure is None or departure.low is None or departure.high is None:
        return False
    return departure.high - departure.low > WIDE * model.blocks
