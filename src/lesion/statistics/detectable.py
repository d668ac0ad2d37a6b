"""What a number of items can show: the smallest drop of accuracy, and baselines at either end of the scale.

A change of accuracy is tested by McNemar's exact test and passes Holm's first step, at α / tests. An edit that repairs
no item passes it from `fewest_changed` lost items on, one that harms no item from as many repaired ones.
"""

from __future__ import annotations

from functools import lru_cache

from lesion.statistics.critical import POWER, out_of_reach, tested
from lesion.statistics.distributions import beta_ppf, normal_isf
from lesion.statistics.down_to_chance import above_chance
from lesion.statistics.paired import ALPHA, mcnemar_exact


@lru_cache(maxsize=4096)
def fewest_changed(tests: int) -> int:
    """The fewest items that have to change, all in one direction, for a change to be significant among `tests`."""
    changed = 1
    while mcnemar_exact(changed, 0) * tests > ALPHA:
        changed += 1
    return changed


@lru_cache(maxsize=4096)
def smallest_drop(items: int, tests: int) -> float | None:
    """The smallest drop of accuracy, in 0…1, that is significant among `tests` with a chance of `POWER`.

    Exact for an edit that repairs no item and takes each item with the same chance; one that repairs some needs more.
    None where a drop of all items would not be significant.
    """
    needed = fewest_changed(tests)
    if items < needed:
        return None
    # The number lost is binomial: P(lost ≥ needed) = power at this chance of being lost.
    return float(beta_ppf(POWER, needed, items - needed + 1))


def found_with_power(reach: float, level: float, tests: int) -> float:
    """The smallest difference that is significant among `tests` with a chance of `POWER`, for an estimate near 0.

    `reach` is half the width of its interval at `level`; the estimate is taken to be normal.
    """
    return reach * float(normal_isf(ALPHA / (2 * tests)) + normal_isf(1 - POWER)) / float(normal_isf((1 - level) / 2))


def shows_from(items: int, tests: int, most: float = 1.0) -> str:
    """`150 items show a drop from 10.2 points on (80 % power, no item repaired, 30 places are tested).`

    No drop can be larger than `most`, the accuracy of the unedited model in 0…1.
    """
    drop = smallest_drop(items, tests)
    shown = "no drop" if drop is None or drop > most else f"a drop from {100 * drop:.1f} points on"
    count = "1 item shows" if items == 1 else f"{items:,} items show"
    return f"{count} {shown} ({100 * POWER:g} % power, no item repaired, {tested(tests)})."


def too_low(model: str, task: str, right: int, items: int, tests: int, guessing: float = 0.0) -> str | None:
    """A warning where the accuracy of the unedited model is too low for a loss to show; None where it is not.

    At the floor no place can be critical; near guessing a loss of the skill cannot be told from chance.

    `tests` are the cells of the largest family of the task; `guessing` is 0 where it is not known.
    """
    shown = shows_from(items, tests, right / items if items else 0.0)
    if near_guessing(right, items, guessing):
        return (
            f"{model}, {task}: near guessing. The unedited model has {right} of {items} items right, and guessing gives"
            f" {100 * guessing:.0f} %: what an edit takes of the skill cannot be told. {shown}"
        )
    if floor := out_of_reach(model, task, right, items, tests, guessing):
        return f"{floor} {shown}"
    return None


def near_guessing(right: int, items: int, guessing: float) -> bool:
    """Whether a baseline is not shown to be above guessing."""
    return not above_chance(right, items, guessing)
