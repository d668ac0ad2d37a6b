"""Sequential evidence on a cell, an edit on a task: it may be looked at at any time.

Its drop of accuracy *exceeds* an effect or does *not*; until one of the two is established the cell is *open* and is
evaluated on more items. What is critical is another question, which a full table answers (`critical`).

The evidence are e-values from bets (`bets`), so that looking after every item costs no error. Cells are decided
together with others (`sequential_families`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from lesion.statistics.bets import log_capital, log_capital_of_population, lower_limit

Decision = Literal["exceeds", "not", "open"]


@dataclass(frozen=True)
class Evidence:
    """The evidence of the pairs of one cell on its drop, the mean of baseline − edited over `items` pairs.

    Attributes:
        low, high: the confidence sequence, which holds the true drop after every number of items with a chance of at
            least 1 − level. The limits only close in, unless the mean itself drifts out of them.
        log_above: log e-value against "drop ≤ effect"; with a population −∞ where that is certain.
        log_below: log e-value against "drop ≥ effect"; with a population against "drop > effect", ∞ where that is
            refuted for certain, −∞ where it is certain.
    """

    items: int
    drop: float
    low: float
    high: float
    log_above: float
    log_below: float


def evidence(
    baseline: Bool[np.ndarray, " items"],
    edited: Bool[np.ndarray, " items"],
    effect: float,
    level: float,
    population: int | None = None,
) -> Evidence:
    """The evidence on a cell after any number of items, in a seeded random order in which no answer had a part.

    With a population (the items of the full table, of which these are the first) the question is what that table would
    say. The limits and `log_below` are about the drop over these very items; when all have been seen, only cells whose
    drop exceeds the effect can still be open. `log_above` is the smaller of two e-values, one about these items, one
    about whatever they were drawn from: a cell that is called exceeds the effect in the full table, and not by luck.
    Without a population everything is about what the items were drawn from; that takes more answers.

    `effect` is the drop that counts, and `level` the chance of error of the confidence sequence.
    """
    items = int(baseline.size)
    differences = baseline.astype(np.int64) - edited.astype(np.int64)
    drop = float(differences.mean())
    above, below = log_e_values(differences, effect, population)
    if items == population:
        low = high = drop
    else:
        low = lower_limit(differences, level / 2, population)
        high = -lower_limit(-differences, level / 2, population)
    # The mean may drift out of the limits of earlier items, and limits that err may even cross: then the interval
    # holds all of them. It becomes no less likely to hold the truth.
    low, high = min(low, high, drop), max(low, high, drop)
    return Evidence(items, drop, low, high, float(above[..., -1]), float(below[..., -1]))


def log_e_values(
    differences: Int[np.ndarray, "*cells items"],
    effect: float,
    population: int | None = None,
    bets: Bool[np.ndarray, "*cells items"] | None = None,
) -> tuple[Float[np.ndarray, "*cells items"], Float[np.ndarray, "*cells items"]]:
    """`log_above` and `log_below` of `Evidence` after every item, from baseline − edited in the order of the items.

    `bets` says on which items a cell bets, settled before they came; by default on all.
    """
    above = log_capital(differences, effect, bets)
    if population is None:
        return above, log_capital(-differences, -effect, bets)
    within = within_effect(effect, population)
    above = np.minimum(above, log_capital_of_population(differences, within, population, bets))
    below = log_capital_of_population(-differences, -within - 1, population, bets)
    # What is certain, whatever the items that are left will say, has no evidence against it.
    lost = np.cumsum(differences, axis=-1)
    left = population - np.arange(1, differences.shape[-1] + 1)
    return np.where(lost + left <= within, -np.inf, above), np.where(lost - left > within, -np.inf, below)


def within_effect(effect: float, population: int) -> int:
    """The most items that may be lost, net, over a population before the drop exceeds the effect."""
    # 0.07 · 100 is 7.000000000000001 in floating point, 0.29 · 100 is 28.999999999999996.
    return math.floor(effect * population + 1e-9)
