"""Asking no more than the answer needs: evidence on one cell that may be looked at at any time, decisions over all.

A cell is an edit on a task. It is *critical* when its drop of accuracy exceeds an effect, and *not* when it does not; until
the evidence for either is enough it is *open*, and is asked more. The evidence are e-values from bets (`sequential_bets`),
so that looking after every round, stopping some cells and asking others on costs no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from lesion.errors import LesionError, UsageError
from lesion.studies.sequential_bets import log_capital, log_capital_of_population, lower_limit

Decision = Literal["critical", "not", "open"]


@dataclass(frozen=True)
class Evidence:
    """What the pairs of one cell, an edit on a task, say of its drop.

    Attributes:
        items: pairs seen.
        drop: mean of baseline − edited over them.
        low, high: the confidence sequence: with a chance of at least 1 − level the true drop is between them after every
            number of items. Limits only close in, unless the mean itself drifts out of them.
        log_above: log e-value against "drop ≤ effect".
        log_below: log e-value against "drop ≥ effect"; with a population, against "drop > effect".
    """

    items: int
    drop: float
    low: float
    high: float
    log_above: float
    log_below: float


def evidence(
    baseline: Bool[np.ndarray, " items"],
    edited: Bool[np.ndarray, " same_items"],
    effect: float,
    level: float,
    population: int | None = None,
) -> Evidence:
    """The evidence on a cell after any number of items, drawn in an order that no answer had a part in.

    Without a population the true drop is that of whatever the items were drawn from: right for a claim about the skill,
    and for answers that would come out differently another time. With it, the true drop is that of the whole population,
    the very number that the full table would show: right for reproducing that table with fewer answers. It is sharper the
    larger the share seen, decides every cell when all are, and says nothing beyond these items: where the drop over all of
    them exceeds the effect by luck, the cell is critical.

    Args:
        baseline: [items] whether the unedited model is right, in the seeded random order of the items.
        edited: [items] whether the edited model is right on the same items.
        effect: the drop of accuracy that counts, between 0 and 1.
        level: the chance of error of the confidence sequence, between 0 and 1.
        population: how many items there are in all, of which these are the first; None for infinitely many.

    Raises:
        UsageError: the effect or the level is not between 0 and 1.
        LesionError: the two are not of the same length, there are no items, or more than the population has.
    """
    _between_0_and_1("effect", effect, 0.1)
    _between_0_and_1("level", level, 0.05)
    if baseline.shape != edited.shape or baseline.size == 0:
        raise LesionError(
            f"Evidence on a drop needs the same items on both sides, at least one; "
            f"the baseline has {baseline.size} answers and the edit {edited.size}."
        )
    items = int(baseline.size)
    if population is not None and population < items:
        raise LesionError(f"{items} items cannot be drawn from a population of {population}.")
    differences = baseline.astype(np.int64) - edited.astype(np.int64)
    drop = float(differences.mean())
    if population is None:
        above = log_capital(differences, effect)[-1]
        below = log_capital(-differences, -effect)[-1]
    else:
        # A drop over the population is a whole number of items; the largest that does not exceed the effect.
        within = math.floor(effect * population + 1e-9)
        above = log_capital_of_population(differences, within, population)[-1]
        below = log_capital_of_population(-differences, -within - 1, population)[-1]
    low = lower_limit(differences, level / 2, population)
    high = -lower_limit(-differences, level / 2, population)
    # The mean may drift out of the limits of earlier items, and limits that err may even cross: then the interval holds
    # all of them. It becomes no less likely to hold the truth.
    return Evidence(items, drop, min(low, high, drop), max(low, high, drop), float(above), float(below))


def decide(cells: Sequence[Evidence], level: float) -> list[Decision]:
    """What is established of every cell of a family, by e-BH for "critical" and for "not" (Wang and Ramdas 2022).

    Among the cells called critical the expected share of wrong ones is at most `level`, and among those called not
    likewise, whatever the dependence between cells. If no cell's drop exceeds the effect, the chance that any is called
    critical is at most `level`; and so is, for each cell by itself, the chance of a wrong call, as the bar is never under
    1/level. All this holds at any time of looking, if a cell that is decided is asked no more and keeps its evidence: then
    it also stays decided, as the bar only falls.

    Args:
        cells: of the whole family, also those that are decided or hardly asked.
        level: between 0 and 1.

    Raises:
        UsageError: the level is not between 0 and 1.
    """
    above = e_bh(np.array([cell.log_above for cell in cells], dtype=np.float64), level)
    below = e_bh(np.array([cell.log_below for cell in cells], dtype=np.float64), level)
    # Both at once would contradict each other; items in a random order do not do that.
    return [
        "critical" if up and not down else "not" if down and not up else "open"
        for up, down in zip(above, below, strict=True)
    ]


def e_bh(log_e: Float[np.ndarray, " cells"], level: float) -> Bool[np.ndarray, " cells"]:
    """Which hypotheses e-BH rejects: the k with the largest e-values, for the largest k such that all k are ≥ cells / (k · level).

    The expected share of true hypotheses among the rejected is at most `level`, whatever the dependence of the e-values.

    Args:
        log_e: [cells] natural logarithms of e-values.
        level: between 0 and 1.

    Raises:
        UsageError: the level is not between 0 and 1.
    """
    _between_0_and_1("level", level, 0.05)
    descending = np.sort(log_e)[::-1]
    bars = np.log(len(log_e) / (np.arange(1, len(log_e) + 1) * level))
    reached = np.flatnonzero(descending >= bars)
    if not reached.size:
        return np.zeros(len(log_e), dtype=bool)
    rejected: Bool[np.ndarray, " cells"] = log_e >= descending[reached[-1]]
    return rejected


def rounds(total: int, first: int = 8, growth: float = 1.25) -> Iterator[tuple[int, int]]:
    """Slices of the item order that are asked together; between them the evidence is looked at.

    Each round ends after `growth` times as many items as the one before it, rounded up, and after at least one more.

    Args:
        total: how many items there are.
        first: how many are asked before the first look.
        growth: at least 1.

    Yields:
        (start, stop) of each slice: together 0…total, without gaps.

    Raises:
        UsageError: a number is too small.
    """
    if total < 0 or first < 1 or not growth >= 1:
        raise UsageError(
            f"Rounds need a first one of at least 1 item and a growth of at least 1, not {first} and {growth}."
        )
    start, stop = 0, min(first, total)
    while start < total:
        yield start, stop
        start, stop = stop, min(total, max(stop + 1, math.ceil(stop * growth)))


def _between_0_and_1(name: str, value: float, example: float) -> None:
    if not 0.0 < value < 1.0:
        raise UsageError(f"The {name} lies between 0 and 1, for example {example:g}; it cannot be {value:g}.")
