"""What is critical: an exact paired test of how much of the baseline's accuracy an edit takes, and its power.

The hypothesis of a cell, an edit on a task, is p_edit ≥ kept · p_baseline with kept = 1 − share: the edit takes at most
`share` of the baseline's accuracy. An item's score is kept · b − e, with b and e whether the unedited and the edited
model are right.

Only the m items that at least one of the two has right say anything. They fall into lost (only the baseline right),
retained (both) and won (only the edit right). At the edge of the hypothesis their chances depend on one unknown q, the
chance of *won*, between 0 and kept / (1 + kept): retained has kept − (1 + kept) q and lost has 1 − kept + kept q. The
statistic is the score of the ratio of two paired proportions with its variance fitted under the hypothesis (Nam &
Blackwelder 2002; Tang, Tang & Chan 2003). p is the largest chance, over all q, of a statistic at least as large as the
one observed. So the test holds its level for every number of items, baseline and correlation, also at the small levels
of Holm's correction, where the normal approximation of the score does not (`benchmarks/critical.py`).

Where answers are chosen, guessing is right with a chance of c, and what an edit can take lies between the baseline and
c: the hypothesis is p_edit − c ≥ kept · (p_baseline − c), tested by `down_to_chance`. With c = 0 it is that above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import bdtr, bdtrc, gammaln

from lesion.errors import LesionError
from lesion.statistics.distributions import beta_ppf, binomial_cdf
from lesion.statistics.down_to_chance import p_down_to_chance
from lesion.statistics.paired import ALPHA, holm, last

SHARE = 0.5
"""The share of the baseline's accuracy above chance that a critical place takes."""
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares for which the critical set is told beside that for `SHARE`."""
POWER = 0.8
POWER_LOSS = 0.75
"""The share of the baseline's accuracy that is lost where items are counted that would show it: midway between the half
that a critical place has to take and all of it."""
MORE = "Ask more items (--items, or a longer file)."
TIED = 1e-9  # statistics that differ by no more than rounding are equal


@dataclass(frozen=True)
class Pairs:
    """How many items the baseline alone, both (`retained`), the edited model alone (`won`) or neither has right."""

    lost: int
    retained: int
    won: int
    neither: int = 0

    def retaining(self, count: int) -> Pairs:
        """The same where so many of the lost items count as retained."""
        return replace(self, lost=self.lost - count, retained=self.retained + count)


def pairs(baseline: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, " same_items"]) -> Pairs:
    """Count the pairs of one edit on one task; both rows are [items], whether each is right, in the same order."""
    if baseline.shape != edited.shape:
        raise LesionError(f"Pairs are of the same items; the baseline has {baseline.size} and the edit {edited.size}.")
    counts = (baseline & ~edited, baseline & edited, ~baseline & edited, ~baseline & ~edited)
    return Pairs(*(int(np.count_nonzero(each)) for each in counts))


def p_critical(counts: Pairs, share: float = SHARE, chance: float = 0.0) -> float:
    """p of the hypothesis that an edit takes at most `share` of the baseline's accuracy above chance.

    p is the largest chance under the hypothesis of a score at least as large as observed (with a `chance` of guessing
    of 0: given the number of items that either model has right); 1 where the observed loss is no larger than the share,
    and where the baseline is not shown to be above chance.
    """
    if chance > 0:
        return p_down_to_chance(
            counts.lost, counts.retained, counts.won, counts.neither, 1.0 - share, chance, "critical"
        )
    return exact_p(counts.lost, counts.retained, counts.won, 1.0 - share, 1)


@lru_cache(maxsize=65536)
def exact_p(lost: int, retained: int, won: int, kept: float, sign: Literal[1, -1]) -> float:
    """p of a loss of at most 1 − kept where `sign` is 1, of at least that where it is −1, without guessing."""
    if sign * (kept * (lost + retained) - retained - won) <= TIED:
        return 1.0
    m = lost + retained + won
    statistic = float(score(np.array([lost]), np.array([retained]), np.array([won]), kept)[0])
    wins = np.arange((int(m * kept / (1 + kept)) if sign > 0 else m) + 1)

    def reached(held: Int[np.ndarray, " won"]) -> Bool[np.ndarray, " won"]:
        return np.asarray(score(m - wins - held, held, wins, kept) - statistic >= -sign * TIED)

    most = _most_retained(m, wins, reached)
    if sign > 0:
        most = most[most >= 0]
    return _largest(lambda angles: _chances(m, most, angles, kept, sign), m)


def _largest(chances: Callable[[Float[np.ndarray, " grid"]], Float[np.ndarray, " grid"]], items: int) -> float:
    """The largest of chances over the unknown q, given as angles: q in 0 … kept / (1 + kept) as its sin² times that.

    A grid that is finer the more items there are, refined about its three best places.
    """
    # Equal steps in the arcsine of √q are equal steps in units of the spread of *won*.
    angles = np.linspace(0.0, math.pi / 2, 4 * math.isqrt(items) + 16)
    tails = chances(angles)
    most = float(tails.max())
    step = angles[1]
    for at in angles[np.argsort(tails)[-3:]]:
        width = step
        for _ in range(2):
            near = np.clip(np.linspace(at - width, at + width, 11), 0.0, math.pi / 2)
            tails = chances(near)
            at, width = near[int(tails.argmax())], width / 5
            most = max(most, float(tails.max()))
    return min(1.0, most)


def score(
    lost: Int[np.ndarray, " cells"], retained: Int[np.ndarray, " cells"], won: Int[np.ndarray, " cells"], kept: float
) -> Float[np.ndarray, " cells"]:
    """The score of the hypothesis p_edit ≥ kept · p_baseline, large where the edit takes more than 1 − kept.

    The sum of kept · b − e over its standard deviation at the maximum-likelihood fit of q under p_edit = kept ·
    p_baseline, a root of a quadratic equation (Nam & Blackwelder 2002). About standard normal at the edge.
    """
    lost, retained, won = (np.asarray(counts, dtype=np.float64) for counts in (lost, retained, won))
    m = lost + retained + won
    square = kept * (1 + kept) * m
    linear = won * (2 * kept**2 - 1) + kept**2 * lost - (1 - kept**2) * retained
    constant = won * kept * (1 - kept)
    root = np.sqrt(linear**2 + 4 * square * constant)
    # Of the two equal forms of the root, the one that does not subtract nearly equal numbers.
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(linear >= 0, (root + linear) / (2 * square), 2 * constant / (root - linear))
    variance = kept * m * (1 - kept + (1 + kept) * q)
    return np.asarray((kept * (lost + retained) - retained - won) / np.sqrt(variance))


def _most_retained(
    m: int, won: Int[np.ndarray, " won"], reached: Callable[[Int[np.ndarray, " won"]], Bool[np.ndarray, " won"]]
) -> Int[np.ndarray, " won"]:
    """The most retained of m items, for each number won, with which a score is reached; −1 where none is.

    `reached` says so of numbers retained; it is true up to some number and false beyond it, since the score falls as
    retained or won items replace lost ones.
    """
    low, high = np.full(len(won), -1), m - won
    while (low < high).any():
        middle = (low + high + 1) // 2
        enough = reached(middle)
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
        low = np.minimum(low, high)
    return low


def _chances(
    m: int, most: Int[np.ndarray, " won"], angles: Float[np.ndarray, " grid"], kept: float, sign: int
) -> Float[np.ndarray, " grid"]:
    """Chance of up to `most` retained items (`sign` −1: of more), at q = kept / (1 + kept) · sin² of every angle."""
    won = np.arange(len(most))
    weights, retained = _edge(m, won, angles, kept)
    # SciPy's bdtr takes whole trials as integers.
    counts = np.maximum(most, 0).astype(np.float64), (m - won).astype(np.int64), retained
    tails = bdtr(*counts) if sign > 0 else np.where(most < 0, 1.0, bdtrc(*counts))
    return np.asarray((weights * tails).sum(axis=1))


def _edge(
    m: int, won: Int[np.ndarray, " won"], angles: Float[np.ndarray, " grid"], kept: float
) -> tuple[Float[np.ndarray, "grid won"], Float[np.ndarray, "grid 1"]]:
    """Chances at the edge of the hypothesis: of so many of m items won, and that one of the others is retained."""
    q = (kept / (1 + kept) * np.sin(angles) ** 2)[:, None]
    ways = gammaln(m + 1) - gammaln(won + 1) - gammaln(m - won + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_won = np.where(won > 0, won * np.log(q), 0.0) + (m - won) * np.log1p(-q)
    return np.exp(ways + log_won), np.clip((kept - (1 + kept) * q) / (1 - q), 0.0, 1.0)


def critical(p_corrected: float, alpha: float = ALPHA) -> bool:
    """Whether a p of `p_critical`, corrected over the layers of a model × task × unit × factor, is critical."""
    return p_corrected <= alpha


def critical_cells(cells: Sequence[Pairs], missing: int = 0, share: float = SHARE, chance: float = 0.0) -> list[bool]:
    """Which cells of one family are critical for a given share; `missing` cells without answers count as tests."""
    corrected = holm([p_critical(cell, share, chance) for cell in cells], len(cells) + missing)
    return [critical(p) for p in corrected]


def left_to_guessing(right: int, items: int, chance: float) -> Pairs:
    """The pairs to be expected of an edit that leaves all answers to guessing."""
    retained, won = round(right * chance), round((items - right) * chance)
    return Pairs(right - retained, retained, won, items - right - won)


@lru_cache(maxsize=4096)
def fewest_right(tests: int, items: int = 0, chance: float = 0.0) -> int:
    """The fewest items the baseline must have right for an edit that takes the whole skill to be critical.

    The correction is that of Holm's first step among `tests`. Where answers are chosen the fewest are of `items`, one
    more than these where even all would not do.
    """
    if chance > 0:

        def too_few(right: int) -> bool:
            return p_critical(left_to_guessing(right, items, chance), chance=chance) * tests > ALPHA

        return last(too_few, math.floor(items * chance), items + 1) + 1
    right = 1
    while p_critical(Pairs(right, 0, 0)) * tests > ALPHA:
        right += 1
    return right


@lru_cache(maxsize=4096)
def smallest_loss(right: int, tests: int, items: int = 0, chance: float = 0.0) -> float | None:
    """The smallest loss, as a share of the baseline's accuracy above chance, that is called critical with `POWER`.

    For an edit that takes each of the `right` answers with the same chance, wins no item but by guessing, and has to
    pass Holm's first step, at α / tests; where other layers are critical too, smaller losses suffice. Exact where
    nothing is guessed; of `items` with a chance it takes the won items for as many as are expected.

    A share in 0…1; None where even an edit that takes the whole skill cannot be critical.
    """
    if right < fewest_right(tests, items=items, chance=chance):
        return None

    def passes(retained: int, won: int) -> bool:
        return (
            p_critical(Pairs(right - retained, retained, won, max(0, items - right - won)), SHARE, chance) * tests
            <= ALPHA
        )

    def most_retained_with(won: int) -> int:
        return last(lambda retained: passes(retained, won), 0, right)

    if chance > 0:
        low, high = SHARE, 1.0
        while high - low > 0.005:
            loss = (low + high) / 2
            most = most_retained_with(round((items - right) * loss * chance))
            called = float(binomial_cdf(most, right, 1 - loss + loss * chance)) >= POWER
            low, high = (low, loss) if called else (loss, high)
        return high if high < 1.0 else None
    most = most_retained_with(0)
    # The number retained is binomial: P(retained ≤ most) = power at this chance of being retained.
    return 1.0 - float(beta_ppf(1.0 - POWER, most + 1, right - most))


def rule(alpha: float = ALPHA, share: float = SHARE, *, chosen: bool = False) -> str:
    """The rule of `critical` as a sentence for reports; `chosen`: some answers are chosen, from guessing on."""
    guessed = " (where answers are chosen, of what it has above chance)" if chosen else ""
    return (
        f"A place is critical when its edit takes more than {100 * share:g} % of the baseline's accuracy{guessed}: an"
        f" exact paired test rejects a loss of {100 * share:g} % or less, with p Holm-corrected over"
        f" the layers of one model, task, unit and factor, at most {alpha:g}."
    )


def tested(tests: int) -> str:
    """`1 place is tested`, `8 places are tested`: blocks, branches or heads."""
    return "1 place is tested" if tests == 1 else f"{tests} places are tested"


def out_of_reach(model: str, task: str, right: int, items: int, tests: int, chance: float = 0.0) -> str | None:
    """A warning where no place of a model on a task can be critical, whatever its edit does; None where one can.

    The baseline has `right` of `items` right, and the largest family of the task has `tests` cells.
    """
    needed = fewest_right(tests, items=items, chance=chance)
    # An edit may leave fewer right than guessing would, and be called where one that leaves guessing is not.
    if right >= needed or p_critical(Pairs(right, 0, 0, items - right), SHARE, chance) * tests <= ALPHA:
        return None
    what = f"{model}, {task}: nothing can be critical here. The unedited model has {right} of {items} items right"
    if chance > 0:
        guessed = f"and guessing gives {100 * chance:.0f} %"
        if needed > items:
            return (
                f"{what}, {guessed}: even an edit that leaves only that could not be called ({tested(tests)}). {MORE}"
            )
        return (
            f"{what}, {guessed}: an edit that leaves only that is critical from {needed} right on ({tested(tests)})."
            f" {MORE}"
        )
    if not right:
        return f"{what}: no edit can show a loss, whatever the number of items."
    total = math.ceil(items * needed / right)
    half = POWER_LOSS
    enough = next((n for n in range(needed, 400) if (smallest_loss(n, tests) or 1.0) <= half), None)
    most = (
        ""
        if enough is None
        else f", and about {math.ceil(items * enough / right):,} for one that takes {100 * half:g} %"
    )
    return (
        f"{what}, and an edit that leaves none right is critical from {needed} on ({tested(tests)}). With this accuracy"
        f" about {total:,} items would be enough for such an edit{most}."
    )
