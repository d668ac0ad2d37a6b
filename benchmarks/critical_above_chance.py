"""What is critical where answers are chosen, and "for A, not for B": false calls of the rules, and their power.

    nice python benchmarks/critical_above_chance.py --tables 2000 --measures single --out FILE     # minutes on one core
    nice python benchmarks/critical_above_chance.py --tables 200 --measures apart --out FILE       # an hour

Simulated are tables of 8 blocks on a task whose answers are chosen among 2, 4 or 7, or on one with as many items of
each ("mixed", whose chance is their mean). An item with a chance of c is right without an edit with the chance c + (1 −
c) · s, s being how much of it the model knows.

    critical   every block leaves exactly half of the skill: half of the answers of the unedited model become guesses.
               Called critical is a false call. `spared`: every block takes exactly a quarter.
    power      every block takes three quarters of the skill, or for spared nothing but 2 % that change at random.
    apart      two tasks whose blocks all take the share `loss` of the first and `gap` less of the second. Where both
               lose alike (gap 0) a false call is "critical for A, not for B", because B is spared or by the difference
               of the relative losses; else power by block.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import norm

from lesion.statistics.critical import Pairs, p_critical, pairs
from lesion.statistics.down_to_chance import Edge
from lesion.statistics.paired import ALPHA, holm, wilson
from lesion.statistics.relative_losses import difference, p_loses_more
from lesion.statistics.spared import p_spared

BLOCKS = 8
CLEAR = 5  # a p is not worked out whose normal approximation is so many times too large for Holm's first step
CHOICES: dict[str, tuple[int, ...]] = {"2": (2,), "4": (4,), "7": (7,), "mixed": (2, 4, 7), "open": ()}
BASELINES = (0.5, 0.6, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Rate:
    """How often something was said of simulated tables (`of` is a table) or of a block (`of` is a block)."""

    what: str
    choices: str
    items: int
    baseline: float
    loss: float
    of: str
    share: float
    low: float
    high: float


def chances(choices: str, items: int) -> Float[np.ndarray, " items"]:
    """The chance of every item to be guessed."""
    of = CHOICES[choices]
    return np.zeros(items) if not of else np.resize(1 / np.array(of, dtype=float), items)


def drawn(
    chance: Float[np.ndarray, " items"], baseline: float, loss: float, generator: np.random.Generator
) -> tuple[Bool[np.ndarray, " items"], Bool[np.ndarray, "blocks items"]]:
    """The unedited model, and every block: a share `loss` of the answers become guesses."""
    known = max(0.0, (baseline - chance.mean()) / (1 - chance.mean()))
    right = generator.random(len(chance)) < chance + (1 - chance) * known
    guesses = generator.random((BLOCKS, len(chance))) < chance
    return right, np.where(generator.random((BLOCKS, len(chance))) < loss, guesses, right)


def counted(right: Bool[np.ndarray, " items"], edited: Bool[np.ndarray, "blocks items"]) -> list[Pairs]:
    """The pairs of every block."""
    return [pairs(right, of_block) for of_block in edited]


def unlikely(counts: Pairs, kept: float, chance: float, sign: int) -> bool:
    """Whether a block is too far from Holm's first step for its exact p to be worked out."""
    items = counts.lost + counts.retained + counts.won + counts.neither
    right, edited = counts.lost + counts.retained, counts.retained + counts.won
    if sign * (kept * right - edited + items * (1 - kept) * chance) <= 0:
        return True
    root = Edge(items, kept, chance, sign).root(counts.lost, counts.retained, counts.won, counts.neither)
    return float(norm.sf(root)) > CLEAR * ALPHA / BLOCKS


def p_of(what: str, counts: Pairs, chance: float) -> float:
    """p of what is said of a block; 1 where it is not near any level."""
    kept, sign = (0.5, 1) if what == "critical" else (0.75, -1)
    if unlikely(counts, kept, chance, sign):
        return 1.0
    return (p_critical if what == "critical" else p_spared)(counts, chance=chance)


def single(tables: int, items: int, seed: int) -> Iterable[Rate]:
    """Critical and spared of one task: false calls by table, power by block."""
    settings = (
        ("critical", 0.5, "table"),
        ("critical", 0.75, "block"),
        ("spared", 0.25, "table"),
        ("spared", 0.02, "block"),
    )
    for choices in ("2", "4", "7", "mixed"):
        chance = chances(choices, items)
        for baseline in BASELINES:
            if baseline < chance.mean():
                continue
            for what, loss, of in settings:
                generator = np.random.default_rng([seed, items, int(100 * baseline), int(100 * loss)])
                number = tables if of == "table" else max(1, tables // 5)
                called = 0
                for _ in range(number):
                    counts = counted(*drawn(chance, baseline, loss, generator))
                    hits = np.array(holm([p_of(what, each, float(chance.mean())) for each in counts])) <= ALPHA
                    called += int(hits.any()) if of == "table" else int(hits.sum())
                trials = number if of == "table" else number * BLOCKS
                yield Rate(what, choices, items, baseline, loss, of, called / trials, *wilson(called, trials))


def apart(tables: int, items: int, seed: int) -> Iterable[Rate]:
    """Critical for A and not for B, by either of the two ways."""
    for first, second, baselines in (
        ("open", "open", (0.9, 0.4)),
        ("open", "7", (0.9, 0.8)),
        ("4", "4", (0.9, 0.6)),
        ("2", "open", (1.0, 0.7)),
    ):
        for loss, gap in ((0.9, 0.0), (0.6, 0.0), (0.9, 0.3), (0.9, 0.5)):
            generator = np.random.default_rng([seed, items, int(100 * loss), int(100 * gap)])
            sides = [chances(choices, items) for choices in (first, second)]
            means = [float(side.mean()) for side in sides]
            number = tables if gap == 0 else max(1, tables // 5)
            called = 0
            for _ in range(number):
                a = counted(*drawn(sides[0], baselines[0], loss, generator))
                b = counted(*drawn(sides[1], baselines[1], loss - gap, generator))
                critical = np.array(holm([p_of("critical", each, means[0]) for each in a])) <= ALPHA
                spared = np.array(holm([p_of("spared", each, means[1]) for each in b])) <= ALPHA
                near = [
                    yes and difference(x, y, means[0], means[1], level=0.9).low > 0
                    for x, y, yes in zip(a, b, critical, strict=True)
                ]
                p = [p_loses_more(x, y, *means) if yes else 1.0 for x, y, yes in zip(a, b, near, strict=True)]
                said = critical & (spared | (np.array(holm(p)) <= ALPHA))
                called += int(said.any()) if gap == 0 else int(said.sum())
            of, trials = ("table", number) if gap == 0 else ("block", number * BLOCKS)
            share = called / trials
            yield Rate(
                f"apart, gap {gap:g}",
                f"{first} and {second}",
                items,
                baselines[0],
                loss,
                of,
                share,
                *wilson(called, trials),
            )


MEASURES = {"single": single, "apart": apart}


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=400)
    parser.add_argument("--items", type=int, nargs="+", default=[40, 100])
    parser.add_argument("--measures", nargs="+", choices=[*MEASURES], default=[*MEASURES])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    rates = []
    for items in options.items:
        for name in options.measures:
            for rate in MEASURES[name](options.tables, items, options.seed):
                rates.append(rate)
                kind = "false calls by table" if rate.of == "table" else "power by block"
                print(
                    f"{rate.what:<14} {rate.choices:<12} n={rate.items:<4} baseline {rate.baseline:<4g}"
                    f" loss {rate.loss:<4g} {kind:<21} {rate.share:.3f} [{rate.low:.3f}, {rate.high:.3f}]",
                    flush=True,
                )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps([asdict(rate) for rate in rates], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
