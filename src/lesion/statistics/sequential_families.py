"""Decide the cells of a family together, item by item.

A family are the layers of one model, task, unit and factor. The evidence of all its cells is looked at after every
item. A cell that is called, exceeding the effect or not, *rests*: it is evaluated no more, bets no more and keeps its
e-value. A call that leaned on other cells may have to be taken back when these turn out otherwise; then the cell wakes,
is evaluated on the items it missed, without bets, and bets again on what comes next.

Whether a cell bets on an item is settled by the items before it, so its capital stays an e-value (`bets`), and looking
after every item costs no error. What is called depends on the answers in the order of their items alone, not on how
many are evaluated at a time. What is critical is another question, which a full table answers (`critical`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from lesion.statistics.bets import log_capital, log_capital_of_population

EXCEEDS, NOT, OPEN = 1, -1, 0
Decision = Literal["exceeds", "not", "open"]
Rule = Literal["closed e-BH", "e-Holm"]
FDR: Rule = "closed e-BH"
# Logarithm from which on e-values are as good as infinite; sums of them stay finite.
_LARGEST = 500.0
# Sums of rounded e-values may miss a bar that they reach exactly.
_ROUNDING = 1e-12


def log_e_values(
    differences: Int[np.ndarray, "*cells items"],
    effect: float,
    population: int | None = None,
    bets: Bool[np.ndarray, "*cells items"] | None = None,
) -> tuple[Float[np.ndarray, "*cells items"], Float[np.ndarray, "*cells items"]]:
    """Log e-values against "drop ≤ effect" and against "drop ≥ effect" after every item, of baseline − edited.

    With a population (the items of the full table, of which these are the first, in a seeded random order in which no
    answer had a part) the question is what that table would say. The former is then the smaller of two, one about these
    items, one about whatever they were drawn from: a cell that is called exceeds the effect in the full table, and not
    by luck; −∞ where it is certain that it does not. The latter is against "drop > effect" over these very items, ∞
    where that is refuted for certain, −∞ where it is certain. Without a population everything is about what the items
    were drawn from; that takes more answers.

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


def closed_e_bh(log_e: Float[np.ndarray, " cells"], level: float) -> Bool[np.ndarray, " cells"]:
    """Which hypotheses closed e-BH rejects, of those whose e-value is at least 1/level.

    The mean e-value of a set S of hypotheses is an e-value against "all of S are true". The k largest are rejected, for
    the largest k with mean of S ≥ |S ∩ rejected| / (k · level) for every S. Then the expected share of true hypotheses
    among the rejected is at most `level`, whatever the dependence (Xu, Solari, Fischer, de Heide, Ramdas and Goeman
    2025, "Bringing closure to FDR control"). It rejects whatever e-BH does (Wang and Ramdas 2022). By means alone a
    hypothesis could be rejected on the strength of others; so each has to have 1/level by itself.
    """
    order = np.argsort(log_e)
    ascending = np.exp(np.minimum(log_e[order], _LARGEST))
    cells = len(log_e)
    rejected = np.zeros(cells, dtype=bool)
    below = np.concatenate([[0.0], np.cumsum(ascending)])
    for k in range(int(np.count_nonzero(log_e >= -math.log(level) - _ROUNDING)), 0, -1):
        # Of all S with s rejected members, that falls short the most which has the smallest of them, and of the others
        # those that do not pay for themselves.
        s = np.arange(1, k + 1)
        t = np.searchsorted(ascending[: cells - k], s / (k * level))
        if np.all(np.cumsum(ascending[cells - k :]) + below[t] >= s * (s + t) / (k * level) * (1 - _ROUNDING)):
            rejected[order[cells - k :]] = True
            break
    return rejected


def e_holm(log_e: Float[np.ndarray, " cells"], level: float) -> Bool[np.ndarray, " cells"]:
    """Which hypotheses Holm's (1979) method rejects at p = 1 / e: the k-th largest of m e-values has to reach
    (m − k + 1) / level, as all larger ones do.

    The chance of any wrong rejection is at most `level`, whatever the dependence and whenever one looks: the e-value of
    each of m₀ true hypotheses ever reaches m₀ / level with a chance of at most level / m₀ (Ville's inequality), and the
    first wrong rejection needs that much, since only false hypotheses were rejected before it.
    """
    order = np.argsort(-log_e, kind="stable")
    bars = np.log(np.arange(len(log_e), 0, -1)) - math.log(level) - _ROUNDING
    reached = np.logical_and.accumulate(log_e[order] >= bars)
    rejected = np.zeros(len(log_e), dtype=bool)
    rejected[order[reached]] = True
    return rejected


def called(
    log_above: Float[np.ndarray, " cells"], log_below: Float[np.ndarray, " cells"], level: float, rule: Rule = FDR
) -> Int[np.ndarray, " cells"]:
    """What a family is called on its e-values (`log_e_values`): EXCEEDS, NOT or OPEN.

    `level` is, in each direction, that of the false discovery rate, the expected share of wrong calls, by closed e-BH;
    by e-Holm it is that of the family-wise error, the chance of any wrong call.
    """
    reject = closed_e_bh if rule == FDR else e_holm
    exceeds, clear = reject(log_above, level), reject(log_below, level)
    # Both at once would contradict each other; items in a random order do not do that.
    return exceeds.astype(np.int64) - clear.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a family stands after `items` items of the order.

    Attributes:
        effect: the drop that counts; population: the items of the full table (`log_e_values`).
        level: see `called`.
        called: EXCEEDS, NOT or OPEN.
        looked: how many items the evidence of a cell is from; fewer than `items` where it rests, or has just been
            woken.
        log_above, log_below: its log e-values.
        bets: which items it bet on.
        rule: by which cells are called, see `called`.
    """

    effect: float
    level: float
    population: int | None
    items: int
    called: Int[np.ndarray, " cells"]
    looked: Int[np.ndarray, " cells"]
    log_above: Float[np.ndarray, " cells"]
    log_below: Float[np.ndarray, " cells"]
    bets: Bool[np.ndarray, "cells items"]
    rule: Rule = FDR

    @classmethod
    def first(
        cls, cells: int, effect: float, level: float, population: int | None = None, rule: Rule = FDR
    ) -> Standing:
        """A family without any answer."""
        whole, real = np.zeros(cells, dtype=np.int64), np.zeros(cells)
        return cls(effect, level, population, 0, whole, whole, real, real, np.zeros((cells, 0), dtype=bool), rule)

    def follow(self, differences: Int[np.ndarray, "cells asked"], known: Int[np.ndarray, " cells"]) -> Standing:
        """Go on item by item, as far as every cell that does not rest has answers.

        By closed e-BH the false discovery rate is at most `level`: among the cells called exceeding, the expected share
        of those whose drop over the population does not exceed the effect, and of those whose drop beyond the
        population does not; among those called not, the expected share of those whose drop over the population does
        exceed it. This holds whenever one stops, and whatever the dependence between cells. The chance that a given
        cell is ever called wrongly is at most `level`, and so is, if no drop exceeds the effect, the chance that any
        cell ever is called exceeding. With cells that do exceed it among the others, the chance of any wrong call in a
        study is larger than `level`. By e-Holm the chance that any cell is ever wrongly called exceeding is at most
        `level` in every case, and so is the chance that any is wrongly called not.

        Of `differences` of each cell so many are `known`, from the first on; anything stands where not. A cell that was
        woken may first need answers to what it missed.
        """
        cells, drawn = differences.shape
        items, calls, looked = self.items, self.called, self.looked.copy()
        log_above, log_below = self.log_above.copy(), self.log_below.copy()
        bets = np.concatenate([self.bets, np.ones((cells, drawn - items), dtype=bool)], axis=1)
        above, below = log_e_values(differences, self.effect, self.population, bets)
        while (awake := calls == OPEN).any():
            behind = awake & (looked < items)
            if behind.any():
                if (known[behind] < items).any():
                    break
                moved = behind
            else:
                reach = int(known[awake].min())
                if items >= reach:
                    break
                ahead = slice(items, reach)
                items += _until_worth_a_look(above[:, ahead], below[:, ahead], self.level) if awake.all() else 1
                moved = awake
            log_above[moved], log_below[moved], looked[moved] = above[moved, items - 1], below[moved, items - 1], items
            now = called(log_above, log_below, self.level, self.rule)
            for cell in np.flatnonzero((calls != OPEN) & (now == OPEN)):
                bets[cell, looked[cell] : items] = False
                above[cell], below[cell] = log_e_values(differences[cell], self.effect, self.population, bets[cell])
            calls = now
        return replace(
            self, items=items, called=calls, looked=looked, log_above=log_above, log_below=log_below,
            bets=bets[:, :items],
        )  # fmt: skip

    def until_decided(
        self, differences: Int[np.ndarray, "cells items"], known: Int[np.ndarray, " cells"]
    ) -> Int[np.ndarray, " cells"]:
        """How many items each open cell needs, if what is left goes the way it has gone so far; 0 for cells that rest.

        A cell that has lost at most the effect so far is taken to lose no item more, any other to lose all. This guess
        only says how much to evaluate at a time, and looks no further than about twice as far as is known.
        `differences` has a place for every item there is.
        """
        horizon = min(differences.shape[1], 2 * int(known.max()) + 32)
        guess = differences[:, :horizon].copy()
        for cell, there in enumerate(known.tolist()):
            guess[cell, there:] = int(there > 0 and differences[cell, :there].mean() > self.effect)
        then = self.follow(guess, np.full_like(known, horizon))
        return np.where(self.called == OPEN, then.looked, 0)


def _until_worth_a_look(
    above: Float[np.ndarray, "cells items"], below: Float[np.ndarray, "cells items"], level: float
) -> int:
    """How many items until the first cell has an e-value of 1/level, without which none is called; else all."""
    worth = (np.maximum(above, below) >= -math.log(level)).any(axis=0)
    return int(worth.argmax()) + 1 if worth.any() else worth.size
