"""Asking until it is decided, against the full table: false alarms, false discovery rates, and answers saved.

    python benchmarks/stopping.py --savings 0           # simulated studies: errors alone, some minutes on one core
    python benchmarks/stopping.py --studies 0           # and what is saved alone, likewise
    python benchmarks/stopping.py --rules 300           # false discovery rate and family-wise error on the same studies
    python benchmarks/stopping.py --study FOLDER        # what stopping would have asked of a stored full table

A simulated study has 28 cells, as a model of 28 blocks has on one task. It is stopped as `lesion ablate --stop-when
decided` does it, with the library's evidence, decisions and rounds. Four things are measured:

    errors   studies without any edit, whose answers are drawn anew each time by how hard the item is; studies whose
             drops are exactly the effect, or in the table next to it, the hardest that must not be called; and such
             cells among others that must be. `any`: the share of studies with a wrong call and its Wilson interval.
             `rate`: the false discovery rate, that is the mean share of wrong ones among the calls. It is the rate that
             the level limits. Only where every call would be wrong are the two the same: where some cells exceed the
             effect by far, or lose nothing, right calls dilute the rate, and the share of studies with any wrong call
             is several times the level.
    savings  effects like the paper's: one block loses everything, two lose 0.6 to 0.8, the others 0 to 0.05. Answers
             until all is decided, in evaluations of the base model (answers / items), of 29 for the full table; what
             was called wrongly and what stayed open; the same of the full table under a score test on both sides of
             the effect, Benjamini–Hochberg over the cells. `bound` is what the best bets need beyond the table, those
             of somebody who knows each cell's shares of lost and won items: log(bar) / KL items of every cell.
    levers   the same under other effects, levels and rounds.

`table` asks what the full table would say, `beyond` what holds for items like these. `won` is the share of items that
an edit wins while it loses others: the more there are of both, the more answers a small drop takes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from lesion.statistics.paired import wilson
from stopping_replayed import replay, told
from stopping_simulated import (
    MODES,
    Differences,
    Generator,
    Rule,
    World,
    decided,
    fixed,
    least,
    least_of_table,
    like_the_paper,
    redrawn,
    stopped,
    tables,
    told_by_table,
)

AIM = 3.0


@dataclass(frozen=True)
class Errors:
    """How often a kind of study went wrong.

    Attributes:
        what: which studies, and which call is wrong.
        mode: `table` or `beyond`.
        measure: `any` or `rate`, see the head of this file.
        studies: how many.
        wrong: the share of studies with a wrong call, or the false discovery rate.
        low, high: Wilson's interval; of a rate plus or minus 1.96 standard errors.
    """

    what: str
    mode: str
    measure: str
    studies: int
    wrong: float
    low: float
    high: float


def errors(studies: int, seed: int) -> Iterable[Errors]:
    """The worst cases, each in both modes where it is one."""
    for accuracy in (0.5, 0.8, 0.95):
        for mode, table in MODES.items():
            rule = Rule(table=table)
            yield _any(
                f"no edit, N=200, accuracy {accuracy:g}: exceeds",
                mode,
                studies,
                seed,
                lambda g, accuracy=accuracy: redrawn(200, accuracy, g),  # type: ignore[misc]
                lambda d, rule=rule: bool((decided(d, rule) > 0).any()),  # type: ignore[misc]
            )
    for won in (0.0, 0.05):
        world = World(200, 0.8, np.full(28, 0.1), np.full(28, won))
        for mode, table in MODES.items():
            rule = Rule(table=table)
            yield _any(
                f"all drops are the effect, won {won:g}: exceeds", mode, studies, seed, world.draw,
                lambda d, rule=rule: bool((decided(d, rule) > 0).any()),  # type: ignore[misc]
            )  # fmt: skip
        yield _any(
            f"all drops are the effect, won {won:g}: not", "beyond", studies, seed, world.draw,
            lambda d: bool((decided(d, Rule(table=False)) < 0).any()),
        )  # fmt: skip
        for total, call, name in ((20, 1, "all tables lose the effect"), (21, -1, "all tables lose an item more")):
            yield _any(
                f"{name}, won {won:g}: {'exceeds' if call > 0 else 'not'}", "table", studies, seed,
                lambda g, total=total, won=won: tables(200, [total] * 28, round(200 * won), g),  # type: ignore[misc]
                lambda d, call=call: bool((decided(d, Rule()) == call).any()),  # type: ignore[misc]
            )  # fmt: skip
    for won in (0, 2):
        yield _share(
            f"20 tables lose nothing, 8 an item more than the effect, won {won / 200:g}: wrong of the not", "table",
            studies, seed, lambda g, won=won: tables(200, [0] * 20 + [21] * 8, won, g), Rule(), -1,  # type: ignore[misc]
            lambda d: told_by_table(d, Rule()) > 0,
        )  # fmt: skip
        yield _any(
            f"20 tables lose nothing, 8 an item more than the effect, won {won / 200:g}: any wrong not", "table",
            studies, seed, lambda g, won=won: tables(200, [0] * 20 + [21] * 8, won, g),  # type: ignore[misc]
            lambda d: bool(((decided(d, Rule()) < 0) & (told_by_table(d, Rule()) > 0)).any()),
        )  # fmt: skip
    clear = World(200, 0.8, np.concatenate([np.full(8, 0.1), np.zeros(20)]), np.full(28, 0.01))
    for mode, table in MODES.items():
        rule = Rule(table=table)
        yield _share(
            "20 lose nothing, 8 at the effect: wrong of the not", mode, studies, seed, clear.draw, rule, -1,
            # "Exceeds" is wrong at the effect in both modes, "not" in a table that denies it.
            lambda d, rule=rule: told_by_table(d, rule) > 0 if rule.table else np.isclose(clear.drops, 0.1),  # type: ignore[misc]
        )  # fmt: skip

    for border, strong in ((20, 8), (4, 4), (5, 5)):
        among = World(
            200, 0.8, np.concatenate([np.full(strong, 0.5), np.full(border, 0.1)]), np.full(border + strong, 0.02)
        )
        for mode, table in MODES.items():
            rule = Rule(table=table)
            name = f"{strong} lose 0.5, {border} at the effect"
            yield _any(
                f"{name}: any called exceeding", mode, studies, seed, among.draw,
                lambda d, rule=rule, strong=strong: bool((decided(d, rule)[strong:] > 0).any()),  # type: ignore[misc]
            )  # fmt: skip
            yield _share(
                f"{name}: wrong of those called exceeding", mode, studies, seed, among.draw, rule, 1,
                lambda d, among=among: np.isclose(among.drops, 0.1),  # type: ignore[misc]
            )  # fmt: skip


def _any(
    what: str,
    mode: str,
    studies: int,
    seed: int,
    draw: Callable[[Generator], Differences],
    wrong: Callable[[Differences], bool],
) -> Errors:
    generator = np.random.default_rng(seed)
    count = sum(wrong(draw(generator)) for _ in range(studies))
    return Errors(what, mode, "any", studies, count / studies, *wilson(count, studies))


def _share(
    what: str,
    mode: str,
    studies: int,
    seed: int,
    draw: Callable[[Generator], Differences],
    rule: Rule,
    call: int,
    wrong: Callable[[Differences], Bool[np.ndarray, " cells"]],
) -> Errors:
    """The false discovery rate: the mean share of wrong ones among the called; 0 of a study that calls none."""
    generator = np.random.default_rng(seed)
    shares = []
    for _ in range(studies):
        differences = draw(generator)
        called = decided(differences, rule) == call
        shares.append((called & wrong(differences)).sum() / max(1, called.sum()))
    mean, error = float(np.mean(shares)), 1.96 * float(np.std(shares)) / len(shares) ** 0.5
    return Errors(what, mode, "rate", studies, mean, max(0.0, mean - error), mean + error)


@dataclass(frozen=True)
class Compared:
    """One rule in studies of one kind: the share with any wrong call in either direction, and what it costs.

    Attributes:
        what, items, by, studies: of the row.
        any_wrong, low, high: the share of studies with any wrong call about the table, with Wilson's interval.
        evaluations, error: mean number of the base model's, of 29 for the full table; 1.96 standard errors.
        open: the share of cells that stay open.
    """

    what: str
    items: int
    by: str
    studies: int
    any_wrong: float
    low: float
    high: float
    evaluations: float
    error: float
    open: float


def compared(studies: int, seed: int) -> Iterable[Compared]:
    """Closed e-BH and e-Holm on the same studies: effects like the paper's, and the hardest mixtures of `errors`."""

    def paper(items: int) -> Callable[[Generator], Differences]:
        return lambda g: like_the_paper(items, 0.8, 0.01, g).draw(g)

    among = World(200, 0.8, np.concatenate([np.full(8, 0.5), np.full(20, 0.1)]), np.full(28, 0.02))
    kinds: list[tuple[str, int, Callable[[Generator], Differences]]] = [
        ("effects like the paper's", 200, paper(200)),
        ("8 lose 0.5, 20 at the effect", 200, among.draw),
        ("20 tables lose nothing, 8 an item more", 200, lambda g: tables(200, [0] * 20 + [21] * 8, 0, g)),
        ("effects like the paper's", 1000, paper(1000)),
    ]
    for what, items, draw in kinds:
        for by in ("closed e-BH", "e-Holm"):
            rule, generator, wrong = Rule(by=by), np.random.default_rng(seed), 0
            needed, left = [], []
            for _ in range(studies):
                differences = draw(generator)
                run, truth = stopped(differences, rule), told_by_table(differences, rule)
                wrong += bool(((run.called != 0) & (run.called != truth)).any())
                needed.append(run.answers / items)
                left.append(float(np.mean(run.called == 0)))
            error = 1.96 * float(np.std(needed)) / studies**0.5
            mean, open_ = float(np.mean(needed)), float(np.mean(left))
            yield Compared(what, items, by, studies, wrong / studies, *wilson(wrong, studies), mean, error, open_)


@dataclass(frozen=True)
class Savings:
    """What stopping saves in studies of one kind. All shares are of cells, all evaluations of the base model.

    Attributes:
        items, accuracy, won: of the study.
        mode, effect, level, budget: of the rule.
        studies: how many were drawn.
        evaluations: mean number until all is decided or asked; of these
        baseline: those of the baseline,
        exceeding: of the cells that exceed the effect,
        clear: of the others,
        beyond: and among all, what was asked beyond the items that decisions rest on.
        rounds: mean number.
        error: 1.96 standard errors of `evaluations`.
        largest: the 90th percentile of it.
        within_aim: share of studies that need at most `AIM`.
        bound: what the best bets need.
        wrong, open: shares of cells called wrongly, and not called.
        set_found: share of studies whose cells called exceeding are exactly those that do.
        fixed_wrong, fixed_open: likewise of the full table.
    """

    items: int
    accuracy: float
    won: float
    mode: str
    effect: float
    level: float
    budget: int | None
    studies: int
    evaluations: float
    baseline: float
    exceeding: float
    clear: float
    beyond: float
    rounds: float
    error: float
    largest: float
    within_aim: float
    bound: float
    wrong: float
    open: float
    set_found: float
    fixed_wrong: float
    fixed_open: float


def savings(items: int, accuracy: float, won: float, mode: str, rule: Rule, studies: int, seed: int) -> Savings:
    """Stop studies with effects like the paper's, each with its own drops."""
    generator = np.random.default_rng(seed)
    needed, split, bounds, found = [], [], [], []
    counts = np.zeros(4)
    for _ in range(studies):
        world = like_the_paper(items, accuracy, won, generator)
        differences = world.draw(generator)
        truth = np.where(world.drops > rule.effect, 1, -1)
        run, full = stopped(differences, rule), fixed(differences, rule)
        asked = told_by_table(differences, rule) if rule.table else truth
        counts += [
            np.mean((run.called != 0) & (run.called != asked)),
            np.mean(run.called == 0),
            np.mean((full != 0) & (full != truth)),
            np.mean(full == 0),
        ]
        needed.append(run.answers / items)
        parts = (run.baseline, run.items[truth > 0].sum(), run.items[truth < 0].sum())
        split.append([*parts, run.answers - run.looked.sum() - run.looked.max(), run.rounds * items])
        bounds.append(least_of_table(differences, rule) if rule.table else least(world, rule))
        found.append(np.array_equal(run.called == 1, truth == 1))
    shares = (counts / studies).tolist()
    parts = (np.mean(split, axis=0) / items).tolist()
    return Savings(
        items, accuracy, won, mode, rule.effect, rule.level, rule.budget, studies, float(np.mean(needed)),
        baseline=parts[0], exceeding=parts[1], clear=parts[2], beyond=parts[3], rounds=parts[4],
        error=1.96 * float(np.std(needed)) / studies**0.5,
        largest=float(np.quantile(needed, 0.9)), within_aim=float(np.mean(np.array(needed) <= AIM)),
        bound=float(np.mean(bounds)), wrong=shares[0], open=shares[1], set_found=float(np.mean(found)),
        fixed_wrong=shares[2], fixed_open=shares[3],
    )  # fmt: skip


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000, help="simulated studies of each kind of error, or 0")
    parser.add_argument("--savings", type=int, default=40, help="simulated studies of each row of savings, or 0")
    parser.add_argument("--rules", type=int, default=0, help="studies of each kind under both rules, and nothing else")
    parser.add_argument("--study", type=Path, nargs="+", default=[], help="folders of stored layer studies, instead")
    parser.add_argument("--orders", type=int, default=100, help="random orders of the items of a stored study")
    parser.add_argument("--effect", type=float, default=0.1, help="of --study")
    parser.add_argument("--level", type=float, default=0.05, help="of --study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    began = time.process_time()
    found: dict[str, Any] = {"machine": f"{platform.machine()} CPU", "seed": options.seed}
    if options.study:
        rule = Rule(options.effect, options.level)
        rows = [row for folder in options.study for row in replay(folder, rule, options.orders, options.seed)]
        found["replayed"] = rows
        for row in rows:
            told(row)
    elif options.rules:
        found["rules"] = []
        for one in compared(options.rules, options.seed):
            found["rules"].append(asdict(one))
            print(
                f"  {one.what:<40} N={one.items:<5} {one.by:<12} any wrong {one.any_wrong:.3f} [{one.low:.3f},"
                f" {one.high:.3f}]  {one.evaluations:6.2f} ± {one.error:.2f} evaluations, open {one.open:.3f}",
                flush=True,
            )
    else:
        found |= _simulated(options.studies, options.savings, options.seed)
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    print(f"{found['cpu_seconds']} CPU seconds")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _simulated(studies: int, of_savings: int, seed: int) -> dict[str, Any]:
    wrong = []
    if studies:
        print(
            f"Errors at level 0.05, effect 0.1: share of {studies} studies with any wrong call, or false discovery rate"
        )
    for row in errors(studies, seed) if studies else ():
        wrong.append(asdict(row))
        print(
            f"  {row.what:<76} {row.mode:<7} {row.measure:<5} {row.wrong:.4f}  [{row.low:.4f}, {row.high:.4f}]",
            flush=True,
        )
    if not of_savings:
        return {"errors": wrong}
    print(f"\nSavings, {of_savings} studies a row, evaluations of the base model (full table: 29; aim: {AIM:g})")
    saved = []

    def tell(one: Savings) -> None:
        saved.append(asdict(one))
        print(
            f"  N={one.items:<5} accuracy {one.accuracy:<4g} won {one.won:<5g} effect {one.effect:<5g}"
            f" level {one.level:<5g} budget {one.budget or 'own':<4} {one.mode:<7}"
            f" {one.evaluations:6.2f} ± {one.error:.2f} (90 %: {one.largest:5.2f}, bound {one.bound:5.2f};"
            f" baseline {one.baseline:.2f}, exceeding {one.exceeding:.2f}, not {one.clear:.2f},"
            f" beyond {one.beyond:.2f}; {one.rounds:.1f} rounds)"
            f"  wrong {one.wrong:.4f} open {one.open:.3f} set right {one.set_found:.2f};"
            f" full table: wrong {one.fixed_wrong:.4f} open {one.fixed_open:.3f}",
            flush=True,
        )

    for items in (200, 1000):
        for accuracy in (0.5, 0.8):
            for won in (0.0, 0.01, 0.03):
                tell(savings(items, accuracy, won, "table", Rule(), of_savings, seed))
        for won in (0.0, 0.01, 0.03):
            tell(savings(items, 0.8, won, "beyond", Rule(table=False), of_savings, seed))
    print("\nLevers, at 1,000 items, accuracy 0.8, won 0.01")
    for rule in (
        Rule(budget=1),
        Rule(budget=128),
        Rule(budget=512),
        Rule(level=0.1),
        Rule(effect=0.15),
        Rule(effect=0.2),
    ):
        tell(savings(1000, 0.8, 0.01, "table", rule, of_savings, seed))
    return {"errors": wrong, "savings": saved}


if __name__ == "__main__":
    main()
