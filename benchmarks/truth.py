"""Does a method find the place of a skill where the place is known? Every method on every kind of planted truth.

    python benchmarks/truth.py --work truth/ --out benchmarks/results/truth_cpu_2026-11

Makes the models (`lesion lab planted`) where they are missing, scores every method of `truth_methods.py` on the same
models and items, and writes two files: OUT.csv, a row for each method, kind of truth and measure with its mean over
seeds and Student's interval, and OUT.md, the tables.

Rank and average precision are of the true places among all places of a unit; precision and recall are of the places
that a method names at a level of 5 %. False alarms of ablation are not counted here: the blocks of compiled models that
carry nothing change nothing, and where a skill is at chance nothing can be critical, so that none could be named.
`benchmarks/critical.py` simulates them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import lesion
from lesion.statistics.contrasts import mean
from lesion_labs.kinds import PLANTED as TRUTHS
from lesion_labs.planted.run import MODEL, plant
from lesion_labs.planted.truth import average_precision, overlap, rank
from sweep import machine
from truth_case import UNITS, Case
from truth_methods import METHODS, SELECTIONS, selection

LASER_KEEP = (0.95, 0.75, 0.5, 0.25)
Row = dict[str, Any]


def ranked(case: Case) -> Iterable[Row]:
    """Rank, average precision, precision and recall of every method, for the units whose true places are known."""
    for unit in UNITS:
        truth = case.true(unit)
        if not truth:
            continue
        for name, method in METHODS[unit].items():
            report = method(case)
            yield row(case, unit, name, "rank", rank(report.scores, truth), places=len(report.scores))
            yield row(case, unit, name, "average precision", average_precision(report.scores, truth))
            if report.named is not None:
                named = overlap(report.named, truth)
                yield row(case, unit, name, "recall", named.recall)
                yield row(case, unit, name, "precision", named.precision)


def weighed(case: Case) -> Iterable[Row]:
    """Precision and recall of selections of as many weights as carry the skill, and of as many at random."""
    if not case.masks:
        return
    matrices = case.model.anatomy.scored
    total = sum(matrix.shape[0] * matrix.shape[1] for matrix in matrices.values())
    share = case.truth.weights / total
    yield row(case, "weight", "random", "precision", share)
    for name in SELECTIONS:
        if name == "lape":
            neurons = sum(int(mask.any(0).sum()) for address, mask in case.masks.items() if address.endswith("down"))
            width = sum(m.shape[1] for address, m in matrices.items() if address.endswith("down"))
            keep = neurons / width
        else:
            keep = share
        chosen = selection(name, case, keep)
        selected = hits = 0
        for address, matrix in matrices.items():
            mask = chosen.mask(address, matrix.read())
            selected += int(mask.sum())
            if address in case.masks:
                hits += int((mask & case.masks[address]).sum())
        yield row(case, "weight", name, "precision", hits / selected if selected else None)
        yield row(case, "weight", name, "recall", hits / case.truth.weights)


def cut(case: Case) -> Iterable[Row]:
    """What the tasks lose when exactly the true places are cut: whether the truth is one."""
    skill = case.truth.skill
    baseline = {task: case.right(task).mean() for task in case.tasks}
    for task, share in baseline.items():
        yield row(case, "truth", "unedited", "skill" if task == skill else task, float(share))
    if case.truth.blocks:
        places = case.truth.branches or tuple(map(str, case.truth.blocks))
        edit = lesion.Compose(tuple(part for place in places for part in case.edits("zero", place, skill)))
        for task in baseline:
            name = "skill" if task == skill else task
            yield row(case, "truth", "true places zeroed", name, float(case.right(task, edit).mean()))
    elif case.masks:
        matrices = {address: case.model.anatomy.matrix(address) for address in case.masks}
        kept = {address: matrix.read().clone() for address, matrix in matrices.items()}
        for address, matrix in matrices.items():
            matrix.write(kept[address] * ~case.masks[address])
        try:
            with torch.inference_mode():
                for task, tokens in case.tokens.items():
                    chosen = case.model.network(tokens).logits[:, -1, case.choices].argmax(-1).numpy()
                    share = float((chosen == case.gold[task]).mean())
                    yield row(case, "truth", "true places zeroed", "skill" if task == skill else task, share)
        finally:
            for address, matrix in matrices.items():
                matrix.write(kept[address])


def searched(case: Case) -> Iterable[Row]:
    """Whether the truncation search names the matrix with the noise; on models without noise, whether it claims any."""
    search = lesion.truncate(
        str(case.folder / MODEL),
        [task.name for task in case.tasks.values()],
        items="all",
        matrices="mlp",
        keep=LASER_KEEP,
        side="both",
        dtype="float32",
        device="cpu",
        progress=False,
    )
    summary = search.summary
    best: dict[str, float] = {}
    for cell in summary.cells:
        if cell.score is not None:
            best[cell.address] = max(best.get(cell.address, -math.inf), cell.score)
    gains = [(test.gain.value or 0.0, 1.0 if test.gain.p is None else test.gain.p) for test in summary.best_tests]
    claimed = summary.best is not None and any(gain > 0 and p <= 0.05 / len(gains) for gain, p in gains)
    yield row(case, "matrix", "LASER search", "claims", float(claimed))
    if case.truth.kind == "noise":
        (truth,) = case.truth.matrices
        addresses = [address for address in case.model.anatomy.matrices if ".mlp." in address]
        scores = {address: best.get(address, -math.inf) for address in addresses}
        yield row(case, "matrix", "LASER search", "rank", rank(scores, [truth]), places=len(scores))
        yield row(case, "matrix", "LASER search", "named", float((summary.best or "").startswith(truth)))
        for test in summary.best_tests:
            skill = Path(test.task).stem
            yield row(case, "matrix", "LASER search", f"gain, {skill}", test.gain.value)


def row(case: Case, unit: str, method: str, measure: str, value: float | None, places: int | None = None) -> Row:
    """One number of one model."""
    return {
        "truth": case.truth.kind,
        "seed": case.truth.seed,
        "unit": unit,
        "method": method,
        "measure": measure,
        "value": value,
        "places": places,
    }


def gathered(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each truth, unit, method and measure: mean over seeds and Student's interval."""
    gathered = []
    for key, group in rows.groupby(["unit", "method", "truth", "measure"], sort=False):
        values = group["value"].dropna().astype(float)
        of_seeds = " ".join("–" if pd.isna(value) else f"{value:.3g}" for value in group["value"])
        contrast = mean(values.to_numpy()) if len(values) else None
        ends = [math.nan] * 3 if contrast is None else [contrast.value, contrast.low, contrast.high]
        known = (round(end, 4) if math.isfinite(end) else math.nan for end in ends)  # of one seed there is no interval
        numbers = dict(zip(("mean", "low", "high"), known, strict=True))
        places = group["places"].iloc[0]
        gathered.append(
            {**dict(zip(("unit", "method", "truth", "measure"), key, strict=True)), **numbers, "seeds": of_seeds,
             "places": None if pd.isna(places) else int(places)}
        )  # fmt: skip
    return pd.DataFrame(gathered)


def table(summary: pd.DataFrame, unit: str, measure: str, digits: int = 2) -> str:
    """Methods × kinds of truth, as Markdown; every cell is the mean over seeds with its interval."""
    part = summary[(summary["unit"] == unit) & (summary["measure"] == measure)]
    truths = [truth for truth in TRUTHS if truth in set(part["truth"])]
    lines = [f"| {measure} | {' | '.join(truths)} |", f"|---|{'---:|' * len(truths)}"]
    for method in dict.fromkeys(part["method"]):
        cells = []
        for truth in truths:
            found = part[(part["method"] == method) & (part["truth"] == truth)]
            cells.append("" if found.empty else _cell(found.iloc[0], digits))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(found: pd.Series, digits: int) -> str:
    if pd.isna(found["mean"]):
        return "none named"
    if pd.isna(found["low"]) or found["low"] == found["high"]:
        return f"{found['mean']:.{digits}f}"
    return f"{found['mean']:.{digits}f} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"


def page(summary: pd.DataFrame, seeds: int, seconds: float) -> str:
    """All tables, as Markdown."""
    parts = [
        f"# Methods on planted truth\n\n{seeds} seeds; mean over seeds and Student's 95 % interval, which may"
        " leave the range of a rank or share."
        f" `benchmarks/truth.py`, {json.dumps(machine('cpu'))}, {seconds:.0f} s of processor time."
        " The kinds of truth are those of `lesion lab planted`.\n"
    ]
    for unit in UNITS:
        parts.append(f"## Places: {unit}\n")
        for measure in ("rank", "average precision", "precision", "recall"):
            parts.append(table(summary, unit, measure))
    parts.append("## Weights, as many selected as carry the skill\n")
    parts += [table(summary, "weight", measure, 3) for measure in ("precision", "recall")]
    parts.append("## Truncation search\n")
    parts += [table(summary, "matrix", name) for name in ("named", "rank", "claims", "gain, recall")]
    parts.append("## Is the truth one? Accuracy with and without the true places\n")
    parts += [table(summary, "truth", name) for name in ("skill", "sums", "copying")]
    return "\n".join(parts)


def main() -> None:
    """Make the models, score the methods, write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the models; what it has is not made again")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(TRUTHS), choices=list(TRUTHS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write OUT.csv and OUT.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    begun = time.process_time()
    rows: list[Row] = []
    for kind in options.kinds:
        for seed in range(options.seeds):
            (folder,) = plant(options.work, kind, seed)
            rows += scored(Case(folder))
            print(kind, seed, f"{time.process_time() - begun:.0f} s", flush=True)
    summary = gathered(pd.DataFrame(rows))
    text = page(summary, options.seeds, time.process_time() - begun)
    if options.out is None:
        print(text)
    else:
        options.out.with_suffix(".csv").write_text(summary.to_csv(index=False), encoding="utf-8")
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")


def scored(case: Case) -> Sequence[Row]:
    """Every number of one model."""
    rows = [*cut(case), *ranked(case), *weighed(case)]
    if case.truth.kind in ("noise", "joint", "shuffled"):
        rows += searched(case)
    return rows


if __name__ == "__main__":
    main()
