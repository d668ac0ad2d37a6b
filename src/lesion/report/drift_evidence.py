"""The rules by which a drift's numbers become words: is there an elbow, is it near, do other measures agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from lesion.report.drift_rows import Curve, Drifts, Elbow, Followed, near, steps

DRAWS = 9_999
"""Shuffles behind the p of a rank correlation between the steps of two measures."""
FIRST = 0.25
"""So many layers behind the first step an elbow still marks its end."""
WIDE = 0.5
"""An elbow whose interval is wider than this share of all layers is said to be hardly located."""


def bends(model: Followed) -> bool:
    """Whether the model's curve has an elbow."""
    return model.curve.elbow is not None and bool(model.curve.elbow.bend)


def at_the_start(found: Drifts, elbow: Elbow) -> bool:
    """Whether an elbow stands at the first layer behind the reference, or before it."""
    return elbow.layer <= found.reference + 1 + FIRST


def reach(model: Followed, elbow: Elbow) -> str | None:
    """`near` where the elbow's whole interval lies within a layer of critical blocks, `far` where none of it does.

    Else `open`; None without critical blocks or without an interval.
    """
    blocks = model.critical_blocks
    if not blocks or elbow.low is None or elbow.high is None:
        return None
    places = np.linspace(elbow.low, elbow.high, 401)
    close = [near(float(place), blocks) for place in places]
    return "near" if all(close) else "open" if any(close) else "far"


def agreement(curve: Curve, measure: str, reference: int, seed: int = 0) -> tuple[float, float] | None:
    """Spearman's ρ between the steps of NMI and of another measure over the blocks, and its p.

    The step onto the first layer behind the reference is left out: there every measure leaves its own 1.

    Returns:
        ρ, and the share of shuffles (of `DRAWS`, and the order itself) with a ρ as large; None with fewer than four
        blocks, or where one of the two does not vary.
    """
    own, other = (dict(steps(curve, name)) for name in ("nmi", measure))
    blocks = [block for block in own if block in other and block > reference]
    if len(blocks) < 4:
        return None
    x, y = (rankdata([of[block] for block in blocks]) for of in (own, other))
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    if norm == 0:
        return None
    draw = np.random.default_rng(seed)
    shuffled = draw.permuted(np.tile(y, (DRAWS, 1)), axis=1) @ x
    observed = float(x @ y)
    return observed / norm, (1 + int((shuffled >= observed - 1e-9).sum())) / (DRAWS + 1)


def steepest(curve: Curve, measure: str, reference: int) -> int | None:
    """The block over which a measure falls most; the one behind the reference is left out."""
    of_blocks = [(change, block) for block, change in steps(curve, measure) if block > reference]
    return min(of_blocks)[1] if of_blocks and min(of_blocks)[0] < 0 else None


def at_least(hits: int, chances: Sequence[float]) -> float:
    """The chance of so many hits or more, of independent trials with these chances (Poisson's binomial)."""
    tally = np.array([1.0])
    for chance in chances:
        tally = np.convolve(tally, [1 - chance, chance])
    return float(tally[hits:].sum())


def lost(model: Followed) -> list[int]:
    """The layers at which NMI, less a standard deviation, is no higher than the null reaches."""
    nmi = dict(model.curve.along("nmi"))
    return [
        layer for layer, high in null_reach(model.curve).items()
        if layer in nmi and nmi[layer].mean - (nmi[layer].std or 0.0) <= high
    ]  # fmt: skip


def null_reach(curve: Curve) -> dict[int, float]:
    """By layer, how high shuffled tokens reach: the 97.5 % quantile over shuffles, the mean of the runs.

    Older summaries do not tell it; of these it is the null and a standard deviation between runs.
    """
    high = dict(curve.along("null_high"))
    return {
        layer: high[layer].mean if layer in high else value.mean + (value.std or 0.0)
        for layer, value in curve.along("null")
    }


def wide(model: Followed) -> bool:
    """Whether the interval of the model's elbow covers more than `WIDE` of its layers."""
    elbow = model.curve.elbow
    if elbow is None or elbow.low is None or elbow.high is None:
        return False
    return elbow.high - elbow.low > WIDE * model.blocks
