"""Simulated layer studies for `stopping.py`: what cells lose, what stopping asks and calls, what the table says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from lesion.statistics.sequential_families import Standing, within_effect
from lesion.studies.ablation.stopping import FIRST, baseline_of, stretched

Differences = Int[np.ndarray, "cells items"]
Generator = np.random.Generator

# Whether the full table is what is asked about.
MODES = {"table": True, "beyond": False}


@dataclass(frozen=True)
class Rule:
    """How a study is stopped.

    Attributes:
        effect: the drop that counts.
        level: the false discovery rate that is allowed, or by e-Holm the family-wise error.
        by: closed e-BH or e-Holm.
        table: ask what the full table would say (`population` of `Standing`); else what holds beyond it.
        budget: answers of a round, at least, so that batches are full; None: as the library has it.
    """

    effect: float = 0.1
    level: float = 0.05
    table: bool = True
    budget: int | None = None
    by: Literal["closed e-BH", "e-Holm"] = "closed e-BH"


@dataclass(frozen=True, eq=False)
class Stopped:
    """A stopped study.

    Attributes:
        called: [cells] 1 for exceeding the effect, −1 for not, 0 for open.
        looked: [cells] items that its evidence is from.
        items: [cells] items asked.
        baseline: items that the baseline was asked.
        rounds: how many there were.
    """

    called: Int[np.ndarray, " cells"]
    looked: Int[np.ndarray, " cells"]
    items: Int[np.ndarray, " cells"]
    baseline: int
    rounds: int

    @property
    def answers(self) -> int:
        """Those of the cells and of the baseline."""
        return int(self.items.sum()) + self.baseline


def decided(differences: Differences, rule: Rule) -> Int[np.ndarray, " cells"]:
    """[cells] what a study ends with; how much is asked at a time has no part in it."""
    cells, total = differences.shape
    known = np.full(cells, total)
    population = total if rule.table else None
    return Standing.first(cells, rule.effect, rule.level, population, rule.by).follow(differences, known).called


def stopped(differences: Differences, rule: Rule) -> Stopped:
    """Ask round after round, as a study does, until all is decided or no item is left."""
    cells, total = differences.shape
    standing = Standing.first(cells, rule.effect, rule.level, total if rule.table else None, rule.by)
    known, baseline, rounds = np.zeros(cells, dtype=np.int64), 0, 0
    while True:
        wanted = standing.until_decided(differences, known) if rounds else np.full(cells, min(FIRST, total))
        stops = {("", str(cell)): int(wanted[cell]) for cell in np.flatnonzero(wanted > known)}
        if not stops:
            break
        reached = {("", str(cell)): items for cell, items in enumerate(known.tolist())} | {baseline_of(""): baseline}
        stops = stretched(stops, reached, {"": total}, rule.budget)
        for (_, cell), stop in stops.items():
            known[int(cell)] = stop
        baseline, rounds = max(baseline, *stops.values()), rounds + 1
        standing = standing.follow(differences[:, :baseline], known)
    return Stopped(standing.called, standing.looked, known, baseline, rounds)


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


def tables(items: int, totals: Sequence[int], won: int, generator: Generator) -> Differences:
    """[cells, items] of tables in which every cell wins `won` items and loses its total more, in random order."""
    filled = [np.repeat([1, -1, 0], [won + total, won, items - 2 * won - total]) for total in totals]
    return generator.permuted(np.array(filled), axis=1)


def fixed(differences: Differences, rule: Rule) -> Int[np.ndarray, " cells"]:
    """[cells] what the full table calls: score tests on both sides of the effect, Benjamini–Hochberg over the cells."""
    items = differences.shape[1]
    up, down = (differences > 0).sum(axis=1), (differences < 0).sum(axis=1)
    z = np.array([tango(rule.effect, int(b), int(c), items) for b, c in zip(up, down, strict=True)])
    exceeds, clear = (_benjamini_hochberg(norm.sf(one), rule.level) for one in (z, -z))
    return exceeds.astype(np.int64) - clear.astype(np.int64)


def tango(difference: float, b: int, c: int, n: int) -> float:
    """Tango's (1998) score of paired counts: b only the baseline has right, c only the edit, of n."""
    linear = -b - c + (2 * n - b + c) * difference
    constant = -c * difference * (1 - difference)
    q = (math.sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)
    return (b - c - n * difference) / math.sqrt(n * (2 * q + difference * (1 - difference)))


def _benjamini_hochberg(p: Float[np.ndarray, " cells"], level: float) -> Bool[np.ndarray, " cells"]:
    ranked = np.argsort(p)
    reached = np.flatnonzero(p[ranked] <= level * np.arange(1, len(p) + 1) / len(p))
    called = np.zeros(len(p), dtype=bool)
    called[ranked[: reached[-1] + 1 if reached.size else 0]] = True
    return called


def least(world: World, rule: Rule) -> float:
    """Evaluations of the base model that the best bets need on average, beyond the table (Wald's equation).

    Of a cell with known shares of lost and won items, the e-value against the nearest shares at the effect grows by KL,
    the divergence between the two, an item. A cell is not called before its e-value is 1/level, so it takes at least
    log(1/level) / KL items. The baseline is asked what the longest cell needs.
    """
    sides = np.where(world.drops > rule.effect, 1, -1)
    items = [
        -math.log(rule.level) / divergence(drop, gain, rule.effect, int(side))
        for side, drop, gain in zip(sides, world.drops, world.gains, strict=True)
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


def least_of_table(differences: Differences, rule: Rule) -> float:
    """Evaluations that are needed by somebody who knows of each cell how many items of the table it loses and wins.

    The bet on the next item is the best there is (Kelly's) for what is left, against what the hypothesis says of it;
    a cell is not called before its e-value is 1/level. No bets grow faster in the mean.
    """
    total = differences.shape[1]
    within = within_effect(rule.effect, total)
    needed: list[int] = []
    for cell, call in zip(differences, told_by_table(differences, rule), strict=True):
        signed, bar = (cell, within) if call > 0 else (-cell, -within - 1)
        left = total - np.arange(total)
        up, down = (np.cumsum(one[::-1])[::-1] / left for one in (signed > 0, signed < 0))
        price = 1 + np.clip((bar - np.cumsum(signed) + signed) / left, -1, 1)
        with np.errstate(divide="ignore"):
            pay = np.where(price > 0, 1 / np.where(price > 0, price, 1), 1)
            share = _kelly(up, 1 - up - down, down, pay)
            reached = np.cumsum(np.log(1 - share + share * pay * (1 + signed))) >= -math.log(rule.level)
        needed.append(int(reached.argmax()) + 1 if reached.any() else total)
    return float((sum(needed) + max(needed)) / total)


def _kelly(
    up: Float[np.ndarray, " items"],
    same: Float[np.ndarray, " items"],
    down: Float[np.ndarray, " items"],
    pay: Float[np.ndarray, " items"],
) -> Float[np.ndarray, " items"]:
    """The share g in 0…1 with the largest mean of log(1 − g + g · (2 pay, pay or 0)), by chances of the three."""
    a, b = 2 * pay - 1, pay - 1
    # Where the derivative is 0: square · g² + linear · g + constant = 0.
    square = -(up + same + down) * a * b
    linear = up * a * (b - 1) + same * b * (a - 1) - down * (a + b)
    constant = up * a + same * b - down
    root = np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0)) - linear
    share: Float[np.ndarray, " items"] = np.where(
        constant > 0, np.clip(2 * constant / np.where(root > 0, root, 1), 0, 1), 0.0
    )
    return share


def told_by_table(differences: Differences, rule: Rule) -> Int[np.ndarray, " cells"]:
    """[cells] 1 where the full table's drop exceeds the effect, −1 where it does not."""
    return np.where(differences.sum(axis=1) > within_effect(rule.effect, differences.shape[1]), 1, -1)
