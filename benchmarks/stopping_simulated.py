"""Simulated layer studies for `stopping.py`: what cells lose, what stopping asks and calls, what the table says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from lesion.studies.sequential import e_bh, log_e_values, rounds, within_effect
from lesion.studies.sequential_bets import log_capital_of_counts
from lesion.studies.stopping import BUDGET

Differences = Int[np.ndarray, "cells items"]
Generator = np.random.Generator

# Whether the full table is what is asked about.
MODES = {"table": True, "beyond": False}


@dataclass(frozen=True)
class Rule:
    """How a study is stopped.

    Attributes:
        effect: the drop that counts.
        level: the share of wrong calls that is allowed.
        table: ask what the full table would say (`population` of `evidence`); else what holds beyond it.
        growth: of the rounds.
        budget: answers of a round, at least, so that batches are full.
    """

    effect: float = 0.1
    level: float = 0.05
    table: bool = True
    growth: float = 1.1
    budget: int = BUDGET


@dataclass(frozen=True, eq=False)
class Stopped:
    """A stopped study.

    Attributes:
        called: [cells] 1 for critical, −1 for not, 0 for open.
        items: [cells] items asked.
        answers: those of the cells and of the baseline.
    """

    called: Int[np.ndarray, " cells"]
    items: Int[np.ndarray, " cells"]
    answers: int


def stopped(differences: Differences, rule: Rule) -> Stopped:
    """Ask round after round, as `lesion.studies.stopping` does, until all is decided or all items have been asked."""
    cells, total = differences.shape
    ends = [stop for _, stop in rounds(total, growth=rule.growth)]
    above, below = _at(differences, ends, rule)
    called, looked, look = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64), -1
    while look < len(ends) - 1 and (called == 0).any():
        want = math.ceil(rule.budget / (1 + int((called == 0).sum())))
        least = (ends[look] if look >= 0 else 0) + want
        look = next((at for at in range(look + 1, len(ends)) if ends[at] >= least), len(ends) - 1)
        looked[called == 0] = look
        kept = np.arange(cells), looked
        up, down = e_bh(above[kept], rule.level), e_bh(below[kept], rule.level)
        called = np.where(up & ~down, 1, np.where(down & ~up, -1, 0))
    items = np.array(ends)[looked]
    return Stopped(called, items, int(items.sum() + items.max()))


def _at(
    differences: Differences, ends: list[int], rule: Rule
) -> tuple[Float[np.ndarray, "cells looks"], Float[np.ndarray, "cells looks"]]:
    """Log e-values for "critical" and for "not" at each look."""
    at = np.array(ends) - 1
    if rule.table:
        above, below = log_e_values(differences, rule.effect, differences.shape[1])
        return above[:, at], below[:, at]
    # Beyond the table only counts matter, so nothing has to be computed between the looks.
    up, down = np.cumsum(differences > 0, axis=1)[:, at], np.cumsum(differences < 0, axis=1)[:, at]
    same = np.array(ends) - up - down
    return log_capital_of_counts(up, down, same, rule.effect), log_capital_of_counts(down, up, same, -rule.effect)


@dataclass(frozen=True, eq=False)
class World:
    """What is true of a study: an edit loses some of the items that the baseline has right and wins some others.

    Attributes:
        items: of the full table.
        accuracy: of the baseline.
        drops: [cells] of the accuracy.
        gains: [cells] share of all items that the edit alone has right; so drop + gain is lost.
    """

    items: int
    accuracy: float
    drops: Float[np.ndarray, " cells"]
    gains: Float[np.ndarray, " cells"]

    def draw(self, generator: Generator) -> Differences:
        """[cells, items] baseline − edited; every item is drawn anew, and a cell's changes fall on it by chance."""
        right = generator.random(self.items) < self.accuracy
        chance = generator.random((len(self.drops), self.items))
        lost = ((self.drops + self.gains) / self.accuracy)[:, None]
        won = (self.gains / (1 - self.accuracy))[:, None]
        return np.where(right, (chance < lost).astype(np.int64), -(chance < won).astype(np.int64))


def like_the_paper(items: int, accuracy: float, gain: float, generator: Generator, cells: int = 28) -> World:
    """Block 0 takes all, two blocks take 0.6 to 0.8 where there is so much, the others 0 to 0.05."""
    most = min(0.8, accuracy - 0.01)
    drops = np.concatenate(
        [[accuracy], generator.uniform(min(0.6, 0.8 * most), most, 2), generator.uniform(0, 0.05, cells - 3)]
    )
    gains = np.concatenate([[0.0], np.full(2, min(gain, 0.01)), np.full(cells - 3, gain)])
    return World(items, accuracy, drops, gains)


def redrawn(items: int, accuracy: float, generator: Generator, cells: int = 28) -> Differences:
    """[cells, items] of a study without any edit whose answers come out anew each time, by how hard the item is."""
    difficulty = generator.beta(2 * accuracy, 2 * (1 - accuracy), size=items)
    right = generator.random((cells + 1, items)) < difficulty
    differences: Differences = right[0].astype(np.int64) - right[1:]
    return differences


def tables(items: int, total: int, won: int, generator: Generator, cells: int = 28) -> Differences:
    """[cells, items] of tables in which every cell wins `won` items and loses `total` more, in random order."""
    filled = np.repeat([1, -1, 0], [won + total, won, items - 2 * won - total])
    return generator.permuted(np.tile(filled, (cells, 1)), axis=1)


def fixed(differences: Differences, rule: Rule) -> Int[np.ndarray, " cells"]:
    """[cells] what the full table calls: score tests on both sides of the effect, Benjamini–Hochberg over the cells."""
    items = differences.shape[1]
    up, down = (differences > 0).sum(axis=1), (differences < 0).sum(axis=1)
    z = np.array([tango(rule.effect, int(b), int(c), items) for b, c in zip(up, down, strict=True)])
    critical, clear = (_benjamini_hochberg(norm.sf(one), rule.level) for one in (z, -z))
    return critical.astype(np.int64) - clear.astype(np.int64)


def tango(difference: float, b: int, c: int, n: int) -> float:
    """Tango's (1998) score of paired counts: b only the baseline has right, c only the edit, of n."""
    linear = -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    q = (math.sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)
    return (b - c - n * difference) / math.sqrt(n * (2 * q + difference * (1 - difference)))


def _benjamini_hochberg(p: Float[np.ndarray, " cells"], level: float) -> Bool[np.ndarray, " cells"]:
    # e-BH with 1/p in the place of e-values is this procedure.
    return e_bh(-np.log(np.maximum(p, 1e-300)), level)


def least(world: World, rule: Rule) -> float:
    """Evaluations of the base model that the best bets need on average, beyond the table (Wald's equation).

    Of a cell with known shares of lost and won items, the e-value against the nearest shares at the effect grows by KL,
    the divergence between the two, an item. So it takes log(bar) / KL items, with e-BH's bar when all cells of a side
    have reached it. The baseline is asked what the longest cell needs.
    """
    above = world.drops > rule.effect
    sides = np.where(above, 1, -1)
    items = [
        math.log(len(above) / (rule.level * np.count_nonzero(above == one))) / divergence(d, g, rule.effect, int(side))
        for one, side, d, g in zip(above, sides, world.drops, world.gains, strict=True)
    ]
    capped = np.minimum(items, world.items)
    return float(capped.sum() + capped.max()) / world.items


def divergence(drop: float, gain: float, effect: float, side: int) -> float:
    """KL from (lost, won) = (drop + gain, gain) to the nearest shares whose drop is the effect, in nats an item.

    By duality it is the growth of the capital of the best bet: the largest mean of log(1 + λ (D − effect)).
    """
    chances = np.array([gain, 1 - drop - 2 * gain, drop + gain])
    far = np.array([-1, 0, 1]) - effect
    bound = 1 / (1 + effect) if side > 0 else 1 / (1 - effect)

    def loss(share: float) -> float:
        pays = 1 + side * share * bound * far
        return -float(sum(c * math.log(p) for c, p in zip(chances, pays, strict=True) if c > 0))

    return -float(minimize_scalar(loss, bounds=(0, 1 - 1e-9), method="bounded", options={"xatol": 1e-9}).fun)


def told_by_table(differences: Differences, rule: Rule) -> Int[np.ndarray, " cells"]:
    """[cells] 1 where the full table's drop exceeds the effect, −1 where it does not."""
    return np.where(differences.sum(axis=1) > within_effect(rule.effect, differences.shape[1]), 1, -1)
