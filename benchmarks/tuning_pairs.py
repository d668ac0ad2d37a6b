"""Does a pair of blocks gain more when tuned, the more of it is critical? Every pair that a tuning study has trained.

    lesion run benchmarks/tuning_pairs.toml --out pairs/         # 28 trainings, half an hour on a core
    python benchmarks/tuning_pairs.py pairs/ --critical 0,2,5,6,7

Critical minus random blocks is a comparison of one pair with a few others. Over all pairs more can be told: gains by
the number of critical blocks, and the effect of one critical block more. Pairs share blocks and are no independent
samples, so the blocks are what is permuted: which of them are called critical, all ways, as many as there are. p is
two-sided and can be no smaller than one over the number of ways (56 for five of eight blocks). A folder that is not
finished is told as far as it has got.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np

from lesion.core.layers import parse_layers
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.statistics.paired import paired_drop


def gains(folder: Path, seed: int) -> tuple[dict[tuple[int, ...], np.ndarray], np.ndarray]:
    """Whether each test item is right, by the blocks that were tuned, and without tuning; only of finished cells."""
    with Store.read(folder) as store:
        answers = store.answers()
    answers = answers[answers["edit"] == str(BASELINE)]
    by_model = {name: rows.set_index("item")["correct"] for name, rows in answers.groupby("model")}
    cells = {}
    for file in sorted(folder.glob(f"cells/*-seed{seed}-*/cell.json")):
        text = file.parent.name.removeprefix("blocks").partition("-rate")[0]
        blocks = tuple(parse_layers(text.replace("+", ","), 1000, "the model"))
        rows = by_model.get(json.loads(file.read_text("utf-8"))["fingerprint"])
        if rows is not None:
            cells[blocks] = rows
    most = max(len(rows) for rows in cells.values())
    cells = {blocks: rows for blocks, rows in cells.items() if len(rows) == most}
    items = next(iter(cells.values())).index
    untuned = next(rows for rows in by_model.values() if len(rows) > most and items.isin(rows.index).all())
    return {blocks: rows.loc[items].to_numpy(bool) for blocks, rows in cells.items()}, untuned.loc[items].to_numpy(bool)


def slope(pairs: list[tuple[int, ...]], mean: np.ndarray, critical: set[int]) -> float:
    """Least squares: points of gain for one more critical block."""
    count = np.array([len(critical & set(pair)) for pair in pairs], dtype=float)
    centred = count - count.mean()
    return float(centred @ mean / (centred @ centred)) if centred.any() else 0.0


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--critical", required=True, help="the critical blocks, for example 0,2,5,6,7")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    critical = {int(block) for block in options.critical.split(",")}
    right, untuned = gains(options.folder, options.seed)
    pairs = sorted(right, key=lambda pair: float(right[pair].mean()))
    mean = np.array([100 * float(right[pair].mean() - untuned.mean()) for pair in pairs])
    print(f"untuned: {100 * untuned.mean():.2f} % of {untuned.size} items; {len(pairs)} pairs, seed {options.seed}")
    for pair, gain in zip(pairs, mean, strict=True):
        change = paired_drop(untuned, right[pair])
        marks = "".join("●" if block in critical else "○" for block in pair)
        print(f"blocks {pair}  {marks}  {gain:+5.2f} points [{-100 * change.high:+.1f}, {-100 * change.low:+.1f}]")
    for number in range(3):
        chosen = [gain for pair, gain in zip(pairs, mean, strict=True) if len(critical & set(pair)) == number]
        if chosen:
            print(f"{number} critical blocks: mean gain {np.mean(chosen):+.2f} points, {len(chosen)} pairs")
    found = slope(pairs, mean, critical)
    ways = [slope(pairs, mean, set(one)) for one in itertools.combinations(range(options.blocks), len(critical))]
    p = float(np.mean(np.abs(ways) >= abs(found) - 1e-12))
    print(f"one critical block more: {found:+.2f} points; two-sided p {p:.2f} over {len(ways)} sets of blocks")


if __name__ == "__main__":
    main()
