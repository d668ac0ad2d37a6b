"""What is critical: false calls of the rule, candidates for its test, and the losses that it finds.

    nice python benchmarks/critical.py --out FILE        # some minutes on one core
    python benchmarks/critical.py --tables 0             # without the simulated tables

Three things are measured, at α = 0.05 and for the share 0.5 of the baseline's accuracy:

    level    candidates for the test of one cell, by enumeration: the largest chance of rejecting a true loss of exactly
             half, over all q, given that m items are right with or without the edit. Divided by the level asked for:
             above 1 the test is not valid. `exact` is the library's; `score` takes its score as normal; `fitted` takes
             the chance at the fitted q, not at the worst; `mean` is the t-test of the mean of b/2 − e.
    tables   simulated tables of 8 and 28 blocks on one task, whose blocks lose exactly half of the baseline's accuracy:
             the share of tables with a false call and its Wilson interval. `before` is the rule that was replaced: the
             lower end of the 95 % interval of the drop is at least half of the baseline's accuracy, and the exact
             McNemar p, corrected by Holm, is at most α.
    power    the chance that a block which loses more than half is called, the only one of its table that is: computed,
             for a baseline with exactly the expected number of right answers.

`won`: the share of the edited model's right answers that the unedited model does not have. With `independent` that is
the share of wrong answers of the unedited model: the edit does not care which items it had right.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom, multinomial, norm, t

from lesion.statistics.critical import SHARE, Pairs, fewest_right, p_critical, score, smallest_loss
from lesion.statistics.paired import ALPHA, holm, wilson

Counts = Int[np.ndarray, " cells"]
KEPT = 1 - SHARE
CLEAR = 4  # a cell is not called whose normal p is so many times too large; those near the level are within that


@dataclass(frozen=True)
class Level:
    """How far the chance of a false call exceeds the level, at worst: `worst` is their ratio."""

    test: str
    items: int
    level: float
    worst: float


def levels() -> Iterable[Level]:
    """The candidates by enumeration of all outcomes of m items, over a grid of q."""
    for m in (10, 20, 40, 80):
        outcomes = np.array([(m - r - w, r, w) for r in range(m + 1) for w in range(m + 1 - r)])
        q = KEPT / (1 + KEPT) * np.sin(np.linspace(0, np.pi / 2, 120)) ** 2
        mass = np.array([multinomial.pmf(outcomes, m, [1 - KEPT + KEPT * at, KEPT - (1 + KEPT) * at, at]) for at in q])
        for test, p in _candidates(outcomes, m, mass, q).items():
            for level in (ALPHA, ALPHA / 8, ALPHA / 28):
                yield Level(test, m, level, float(mass[:, p <= level].sum(axis=1).max()) / level)


def _candidates(
    outcomes: Int[np.ndarray, "outcomes 3"],
    m: int,
    mass: Float[np.ndarray, "grid outcomes"],
    q: Float[np.ndarray, " grid"],
) -> dict[str, Float[np.ndarray, " outcomes"]]:
    """p of every outcome by every test."""
    values = score(outcomes[:, 0], outcomes[:, 1], outcomes[:, 2], KEPT)
    order = np.argsort(-values, kind="stable")
    tails = np.empty_like(mass)
    tails[:, order] = np.cumsum(mass[:, order], axis=1)
    # Of tied scores the last has them all.
    last = np.searchsorted(-values[order], -values + 1e-9, side="right") - 1
    fitted_q = _fitted(outcomes, m)
    nearest = np.abs(q[:, None] - fitted_q).argmin(axis=0)
    differences = np.array([KEPT, KEPT - 1, -1])
    means = outcomes @ differences / m
    spread = np.sqrt(np.maximum(outcomes @ differences**2 / m - means**2, 1e-12) * m / (m - 1))
    return {
        "exact": np.array([p_critical(Pairs(*one)) for one in outcomes.tolist()]),
        "score": norm.sf(values),
        "fitted": np.where(values > 0, tails[nearest, order[last]], 1.0),
        "mean": t.sf(means / (spread / np.sqrt(m)), m - 1),
    }


def _fitted(outcomes: Int[np.ndarray, "outcomes 3"], m: int) -> Float[np.ndarray, " outcomes"]:
    """The maximum-likelihood fit of q at the edge of the hypothesis."""
    lost, retained, won = outcomes.T
    linear = won * (2 * KEPT**2 - 1) + KEPT**2 * lost - (1 - KEPT**2) * retained
    square = KEPT * (1 + KEPT) * m
    result: Float[np.ndarray, " outcomes"] = (linear + np.sqrt(linear**2 + 4 * square * won * KEPT * (1 - KEPT))) / (
        2 * square
    )
    return result


@dataclass(frozen=True)
class Tables:
    """How many simulated tables had a false call.

    Attributes:
        blocks: of a table; `lost` of them lose everything, the others exactly half.
        items, accuracy, won: of the study, see the head of this file.
        rule: `exact`, `score` or `before`.
        tables: how many were drawn.
        wrong: share of tables with a false call; low, high: its Wilson interval.
        cell: share of the cells at half that were called.
    """

    blocks: int
    lost: int
    items: int
    accuracy: float
    won: float
    rule: str
    tables: int
    wrong: float
    low: float
    high: float
    cell: float


def tables(count: int, seed: int) -> Iterable[Tables]:
    """False calls where blocks lose exactly half."""
    settings = [
        (blocks, lost, items, accuracy, won)
        for blocks, lost in ((8, 0), (28, 0), (28, 20))
        for items in (100, 200, 1000)
        for accuracy in (0.2, 0.5, 0.86, 0.98)
        for won in (0.0, 0.1, 1 - accuracy)
        # No more can be won than the baseline has wrong.
        if won * accuracy / 2 <= 1 - accuracy and (not lost or (items == 200 and won != 0.1))
    ]
    for blocks, lost, items, accuracy, won in settings:
        generator = np.random.default_rng(seed)
        wrong = dict.fromkeys(("exact", "score", "before"), 0)
        cells = dict.fromkeys(wrong, 0)
        for _ in range(count):
            found = _drawn(blocks, lost, items, accuracy, won, generator)
            for rule, called in _called(found, items).items():
                false = int(called[lost:].sum())
                wrong[rule] += false > 0
                cells[rule] += false
        for rule, number in wrong.items():
            share = cells[rule] / (count * (blocks - lost))
            yield Tables(
                *(blocks, lost, items, accuracy, round(won, 2), rule, count, number / count),
                *wilson(number, count),
                share,
            )


def _drawn(
    blocks: int, lost: int, items: int, accuracy: float, won: float, generator: np.random.Generator
) -> tuple[Counts, Counts, Counts]:
    """Counts of lost, retained and won items; all blocks of a table share its baseline."""
    right = int(generator.binomial(items, accuracy))
    half = accuracy / 2
    retained = generator.binomial(right, (1 - won) / 2, size=blocks)
    gained = generator.binomial(items - right, min(1.0, won * half / (1 - accuracy)), size=blocks)
    retained[:lost] = gained[:lost] = 0
    return right - retained, retained, gained


def _called(found: tuple[Counts, Counts, Counts], items: int) -> dict[str, Bool[np.ndarray, " blocks"]]:
    lost, retained, won = found
    normal = np.where(lost + retained + won > 0, norm.sf(score(lost, retained, np.maximum(won, 0), KEPT)), 1.0)
    # Only p of at most α can be rejected at any step of Holm's, and here at most α / (cells that are not sure).
    unsure = int((normal > 1e-6).sum())
    exact = np.array(
        [
            p_critical(Pairs(*one)) if p <= CLEAR * ALPHA / max(1, unsure) else 1.0
            for *one, p in zip(lost.tolist(), retained.tolist(), won.tolist(), normal.tolist(), strict=True)
        ]
    )
    return {
        "exact": np.array(holm(exact)) <= ALPHA,
        "score": np.array(holm(normal)) <= ALPHA,
        "before": _before(lost, retained, won, items, len(lost)),
    }


def _before(lost: Counts, retained: Counts, won: Counts, items: int, blocks: int) -> Bool[np.ndarray, " cells"]:
    """The rule that was replaced; of one block's counts the correction is that of Holm's first step."""
    same = 2 * np.minimum(binom.cdf(np.minimum(lost, won), lost + won, 0.5), 0.5)
    corrected = np.array(holm(same)) if len(lost) == blocks else same * blocks
    difference = (lost + retained) / items / 2
    linear = -lost - won + (2 * items - lost + won) * difference
    root = np.sqrt(linear**2 + 8 * items * won * difference * (1 - difference))
    q = (root - linear) / (4 * items)
    spread = np.sqrt(items * (2 * q + difference * (1 - difference)))
    with np.errstate(divide="ignore", invalid="ignore"):
        tango = (lost - won - items * difference) / spread
    result: Bool[np.ndarray, " cells"] = (corrected <= ALPHA) & (tango >= norm.isf(0.025))
    return result


@dataclass(frozen=True)
class Power:
    """The chance that a block which loses `loss` of the baseline's accuracy is called.

    Attributes:
        blocks, items, accuracy: of the table.
        won: the chance that the edit has right what the unedited model has wrong.
        loss: net, as a share of the baseline's accuracy.
        now, before: chances under the rule and under the one before.
    """

    blocks: int
    items: int
    accuracy: float
    won: float
    loss: float
    now: float
    before: float


def powers() -> Iterable[Power]:
    """Power, by summing over what is retained and won."""
    for blocks in (8, 28):
        for items in (100, 200, 1000):
            for accuracy in (0.2, 0.5, 0.86):
                for won in (0.0, 0.05) if items == 200 else (0.0,):
                    for loss in (0.6, 0.7, 0.8, 0.9, 1.0):
                        right = round(items * accuracy)
                        kept = (1 - loss) - won * (items - right) / right
                        if kept < 0:
                            continue
                        now = before = 0.0
                        for gained in range(items - right + 1 if won else 1):
                            chance = float(binom.pmf(gained, items - right, won))
                            if chance < 1e-6:
                                continue
                            retained = np.arange(right + 1)
                            mass = chance * binom.pmf(retained, right, kept)
                            now += float(mass[: _most(right, gained, blocks) + 1].sum())
                            called = _before(right - retained, retained, np.full(right + 1, gained), items, blocks)
                            before += float(mass[called].sum())
                        yield Power(blocks, items, accuracy, won, loss, now, before)


@cache
def _most(right: int, won: int, blocks: int) -> int:
    """The most retained items with which a block is called at Holm's first step; −1: none."""
    low, high = -1, right
    while low < high:
        middle = (low + high + 1) // 2
        if p_critical(Pairs(right - middle, middle, won)) * blocks <= ALPHA:
            low = middle
        else:
            high = middle - 1
    return low


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000, help="simulated tables of each kind, or 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    began = time.process_time()
    found: dict[str, Any] = {
        "machine": f"{platform.machine()} CPU",
        "seed": options.seed,
        "alpha": ALPHA,
        "share": SHARE,
    }
    print("Level: the worst chance of a false call, divided by the level asked for")
    found["levels"] = []
    for level in levels():
        found["levels"].append(asdict(level))
        print(f"  {level.test:<7} m={level.items:<4} level {level.level:.5f}  {level.worst:6.3f}", flush=True)
    print("\nPower: the chance that the only block of its table which loses so much is called, now and before")
    found["power"] = []
    for power in powers():
        found["power"].append(asdict(power))
        print(
            f"  {power.blocks} blocks, n={power.items:<5} accuracy {power.accuracy:<5g} won {power.won:<5g}"
            f" loss {power.loss:g}: {power.now:.3f}  before {power.before:.3f}",
            flush=True,
        )
    print("\nThe smallest loss with 80 % power, and the fewest right answers with which anything can be critical")
    found["smallest"] = []
    for tests in (8, 28):
        for right in (10, 20, 50, 86, 100, 172, 200, 430, 860, 1000):
            row = {"tests": tests, "right": right, "loss": smallest_loss(right, tests), "fewest": fewest_right(tests)}
            found["smallest"].append(row)
            loss = "none" if row["loss"] is None else f"{row['loss']:.3f}"
            print(f"  {tests} blocks, {right} right: {loss} (from {row['fewest']} right)", flush=True)
    if options.tables:
        print(f"\nTables: share of {options.tables} with a false call; blocks lose exactly half")
        found["tables"] = []
    for table in tables(options.tables, options.seed) if options.tables else ():
        found["tables"].append(asdict(table))
        print(
            f"  {table.blocks} blocks ({table.lost} lose all), n={table.items:<5} accuracy {table.accuracy:<5g}"
            f" won {table.won:<5g} {table.rule:<7} {table.wrong:.4f} [{table.low:.4f}, {table.high:.4f}],"
            f" {table.cell:.4f} a block",
            flush=True,
        )
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    print(f"{found['cpu_seconds']} CPU seconds")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
