"""The exact tests of *critical* and *spared* where answers are chosen: a loss is measured from the baseline to chance.

With a chance of c to guess an item right, an edit keeps the share `kept` of a skill when p_edit − c = kept ·
(p_baseline − c). Items that both models have wrong now say something, so that the test cannot leave them out as that
for c = 0 does (`critical.py`). With g = (1 − kept) c, an item's score is kept · b − e + g, b and e being whether the
unedited and the edited model are right; its mean is 0 at the edge of the hypothesis. The statistic is the likelihood
ratio of that, 2 max over λ of Σ log(1 + λ · score) (the dual of the constrained multinomial fit; Owen 1988), on the
side that is asked for.

At the edge two chances are unknown: p_baseline, and that of an item which only the edited model has right. p is the
largest chance of a statistic at least as large as the one observed, over all values of the two within an exact
confidence region of 1 − `BEYOND`, plus `BEYOND` (Berger and Boos 1994). An edited model that gets more right makes such
a statistic less likely, so that no point inside the hypothesis has more than one at its edge: the test holds its level
for every number of items, baseline and chance.

Where the chance differs between items, c is its mean over them: sums of unequal chances vary no more than those of
equal ones (Hoeffding 1956). `benchmarks/critical_above_chance.py` measures false calls and power.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from lesion.statistics.distributions import beta_isf, beta_ppf, binomial_sf
from lesion.statistics.paired import ALPHA

TIED = 1e-6  # counts that differ by no more than rounding are equal
BEYOND = 1e-6
"""The chance that the confidence region of the two unknown chances leaves them out; no p is below it."""
TAIL = 5.5  # sums run over so many standard deviations and items to either side: what is left out is less than BEYOND
GRID = 7  # values of each unknown chance where there are many items, refined about the best
CERTAIN = 1e-9  # the largest chance on the grid below which p is BEYOND, whatever lies between
STEPS = 60  # of Newton's method at most, in brackets that are halved now and then
CLOSE = 1e-9
LAST = 33.0  # 1 − e⁻³³ is the last number before 1 that is told from it well

Side = Literal["critical", "spared"]
Cells = Float[np.ndarray, "..."]


@lru_cache(maxsize=4096)
def above_chance(right: int, items: int, chance: float) -> bool:
    """Whether a baseline is shown to be above chance, by an exact binomial test; always where nothing is guessed.

    One test per model and task: while the baseline only guesses, all its edits together are wrongly called with a
    chance of at most `ALPHA`.
    """
    return chance <= 0 or float(binomial_sf(right - 1, items, chance)) <= ALPHA


@lru_cache(maxsize=65536)
def p_down_to_chance(lost: int, retained: int, won: int, neither: int, kept: float, chance: float, side: Side) -> float:
    """p of "at least `kept` of the skill remains" (critical) or of "at most `kept` of it remains" (spared).

    1 where the observed share lies on the side of the hypothesis, and where the baseline is not above chance.
    """
    items, right = lost + retained + won + neither, lost + retained
    edge = Edge(items, kept, chance, 1 if side == "critical" else -1)
    distance = edge.sign * (kept * right - retained - won + items * edge.guessed)
    if distance <= TIED or not above_chance(right, items, chance):
        return 1.0
    low, high = _limits(right, items)
    baseline, winning = (max(low, chance), high), _limits(won, items - right)
    rights = _around(items, items, *baseline, math.floor(items * chance) + 1)
    wins = _around(items - int(rights[-1]), items - int(rights[0]), *winning)
    most = edge.most(rights, wins, edge.root(lost, retained, won, neither))
    size = GRID if items >= 100 else 2 * GRID
    first, second = np.linspace(_angle(baseline[0]), _angle(baseline[1]), size), np.linspace(0.0, 1.0, size)
    largest = 0.0
    for _ in range(3):
        tails = np.array([[edge.tail(one, other, winning, rights, wins, most) for other in second] for one in first])
        best = np.unravel_index(int(tails.argmax()), tails.shape)
        largest = max(largest, float(tails[best]))
        if largest < CERTAIN:
            break
        first, second = (_nearer(first, int(best[0])), _nearer(second, int(best[1])))
    return min(1.0, largest + BEYOND)


def _nearer(values: Float[np.ndarray, " grid"], place: int) -> Float[np.ndarray, " finer"]:
    step = (values[1] - values[0]) / 2 if len(values) > 1 else 0.0
    return np.unique(np.clip(values[place] + step * np.array([-1.0, 0.0, 1.0]), values[0], values[-1]))


def _angle(chance: float) -> float:
    return math.asin(math.sqrt(chance))


def _limits(count: int, of: int) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper and Pearson 1934) at 1 − BEYOND / 2."""
    low = 0.0 if count == 0 else float(beta_ppf(BEYOND / 4, count, of - count + 1))
    high = 1.0 if count == of else float(beta_isf(BEYOND / 4, count + 1, of - count))
    return low, high


@dataclass(frozen=True)
class Edge:
    """The edge of a hypothesis on n items; `sign` is 1 where a large loss speaks against it, −1 where a small one."""

    items: int
    kept: float
    chance: float
    sign: int

    @property
    def guessed(self) -> float:
        """What guessing gives of an item beyond what is kept."""
        return (1 - self.kept) * self.chance

    @property
    def scores(self) -> tuple[float, float, float, float]:
        """The score of an item that is lost, retained, won, or that neither model has right."""
        g = self.guessed
        return self.kept + g, self.kept - 1 + g, g - 1, g

    @property
    def farthest(self) -> float:
        """The λ at which an outcome that was not observed gets the rest of the likelihood."""
        return 1 / (1 - self.guessed) if self.sign > 0 else -1 / (self.kept + self.guessed)

    def root(self, lost: int, retained: int, won: int, neither: int) -> float:
        """The root of the likelihood ratio of one outcome."""
        counts, scores = np.array([lost, retained, won, neither]), np.array(self.scores)
        scores, counts = scores[counts > 0], counts[counts > 0]
        low, high = 0.0, self.farthest * (1 - 1e-12)
        for _ in range(100):
            middle = (low + high) / 2
            rises = self.sign * float((counts * scores / (1 + middle * scores)).sum()) > 0
            low, high = (middle, high) if rises else (low, middle)
        return math.sqrt(max(0.0, 2 * float((counts * np.log1p(low * scores)).sum())))

    def most(
        self, rights: Float[np.ndarray, " rights"], wins: Float[np.ndarray, " wins"], root: float
    ) -> Float[np.ndarray, "rights wins"]:
        """[right, won] the most retained items with which a root is reached; for spared the fewest, less one.

        At the best λ the number retained follows from it, so that one equation in λ is left.
        """
        right, won = rights[:, None], wins[None, :]
        neither = np.maximum(self.items - right - won, 0.0)
        lost_score, retained_score, won_score, neither_score = self.scores

        def at(factor: Cells) -> tuple[Cells, Cells, Cells]:
            """How many are retained, the root of the ratio, and its slope in λ."""
            one, other, third, rest = (1 + factor * score for score in self.scores)
            apart = lost_score / one - retained_score / other
            retained = (right * lost_score / one + won * won_score / third + neither * neither_score / rest) / apart
            logs = np.log(one), np.log(other)
            ratio = (right - retained) * logs[0] + retained * logs[1] + won * np.log(third) + neither * np.log(rest)
            squares = right * (lost_score / one) ** 2 + won * (won_score / third) ** 2
            squares = squares + neither * (neither_score / rest) ** 2
            change = (retained * ((lost_score / one) ** 2 - (retained_score / other) ** 2) - squares) / apart
            value = np.sqrt(np.maximum(2 * ratio, 0.0))
            return retained, value, (logs[1] - logs[0]) * change / np.maximum(value, TIED)

        # λ comes near its end without reaching it: as farthest · (1 − e⁻ᵗ) the root is nearly straight in t.
        low, high = np.zeros_like(neither), np.full_like(neither, LAST)
        t = np.full_like(neither, 0.5)
        for number in range(STEPS):
            rest = np.exp(-t)
            retained, value, slope = at(self.farthest * (1 - rest))
            # Beyond the outcomes there are, the root need not rise.
            short = (value < root) & (retained >= -1.0 if self.sign > 0 else retained <= right + 1.0)
            low, high = np.where(short, t, low), np.where(short, high, t)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = t + (root - value) / (slope * self.farthest * rest)
            newton = ((step - low) * (step - high) < 0) & (number % 4 != 3)
            t = np.where(newton, step, (low + high) / 2)
            if (np.abs(value - root) < CLOSE).all():
                break
        retained, value, _ = at(self.farthest * (1 - np.exp(-t)))
        reached = (np.abs(value - root) < 1e-4) | (high < LAST - 1)
        if self.sign < 0:
            return np.asarray(np.ceil(np.where(reached, retained, right + 1.0) - TIED) - 1)
        # Where nothing is won, λ may stay at its end: there the ratio is linear in the number retained.
        one, other, _, last = (math.log1p(self.farthest * (1 - math.exp(-LAST)) * score) for score in self.scores)
        ended = (root**2 / 2 - right * one - neither * last) / (other - one)
        return np.asarray(np.floor(np.where(reached, retained, np.where(won == 0, ended, -1.0)) + TIED))

    def tail(
        self,
        angle: float,
        share: float,
        limits: tuple[float, float],
        rights: Float[np.ndarray, " rights"],
        wins: Float[np.ndarray, " wins"],
        most: Float[np.ndarray, "rights wins"],
    ) -> float:
        """The chance of the tail `most` at one point of the edge.

        The sin² of `angle` is p_baseline. `share` says where between its `limits` the chance lies that the edited model
        has right what the unedited one has wrong, on the scale of angles; the edge ends where won items alone make up
        the accuracy.
        """
        baseline = math.sin(angle) ** 2
        accuracy = self.kept * baseline + self.guessed
        end = min(limits[1], accuracy / (1 - baseline)) if baseline < 1 else limits[1]
        low, high = _angle(min(limits[0], end)), _angle(end)
        winning = math.sin(low + share * (high - low)) ** 2
        holding = min(1.0, max(0.0, (accuracy - winning * (1 - baseline)) / baseline))
        rows = _within(rights, self.items, self.items, baseline)
        right = rights[rows]
        if not len(right):
            return 0.0
        wrong = self.items - right
        columns = _within(wins, int(wrong[-1]), int(wrong[0]), winning)
        won, bound = wins[columns], most[rows, columns]
        held = _around(int(right[0]), int(right[-1]), holding, holding)
        up_to = np.cumsum(_pmf(held, right[:, None], holding), axis=1)
        place = (bound - held[0]).astype(np.int64)
        below = np.take_along_axis(up_to, np.clip(place, 0, len(held) - 1), axis=1)
        below = np.where(place < 0, 0.0, np.where(bound >= right[:, None], 1.0, below))
        weights = _pmf(right, np.array([float(self.items)]), baseline)[:, None] * _pmf(won, wrong[:, None], winning)
        return float((weights * (below if self.sign > 0 else 1.0 - below)).sum())


def _around(fewest: int, most: int, low: float, high: float, least: int = 0) -> Float[np.ndarray, " counts"]:
    """The counts, from `least` on, to be expected of binomials of so many trials and of chances between the two."""
    before, after = (TAIL * math.sqrt(most * chance * (1 - chance)) + TAIL for chance in (low, high))
    first, last = max(least, math.floor(fewest * low - before)), min(most, math.ceil(most * high + after))
    return np.arange(first, last + 1, dtype=np.float64)


def _within(counts: Cells, fewest: int, most: int, chance: float) -> slice:
    near = _around(fewest, most, chance, chance)
    if not len(near):
        return slice(0, 0)
    return slice(max(0, int(near[0] - counts[0])), max(0, int(near[-1] - counts[0]) + 1))


def _pmf(counts: Cells, trials: Cells, chance: float) -> Cells:
    """Binomial chances; 0 beyond the trials."""
    if chance in (0.0, 1.0):
        return np.asarray((counts == trials * chance) * 1.0)
    factorials = _log_factorials(math.ceil((float(max(np.max(trials), np.max(counts))) + 1) / 1024) * 1024)
    others = np.maximum(trials - counts, 0.0)
    ways = factorials[trials.astype(np.int64)] - factorials[counts.astype(np.int64)]
    logs = ways - factorials[others.astype(np.int64)] + counts * math.log(chance) + others * math.log1p(-chance)
    return np.asarray(np.where(counts <= trials, np.exp(logs), 0.0))


@lru_cache(maxsize=16)
def _log_factorials(most: int) -> Float[np.ndarray, " numbers"]:
    return np.asarray(gammaln(np.arange(most + 1) + 1.0))
