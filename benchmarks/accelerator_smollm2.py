"""The full table of SmolLM2-135M-Instruct on a card: accuracies against the published table, answers for comparison.

python benchmarks/accelerator_smollm2.py CARD.json.gz FOLDER …     # answers of a card against folders of studies
"""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from accelerator_findings import Findings, Left

HERE = Path(__file__).parent
PUBLISHED = HERE.parent / "docs/results/layer-importance-smollm2.csv"
STUDY = HERE.parent / "src/lesion/studies/papers/layer-importance-smollm2.toml"
# Tasks of the published table that were asked from files.
FILES = {"ioi": "ioi:ioi.json", "facts": "facts:known_1000.json"}
Answers = dict[tuple[str, str, str], tuple[str, bool]]
"""Text and whether it is right, by edit, task and item."""


def table(options: Any, note: Findings, left: Left) -> None:
    """Run the study on the device."""
    import tempfile

    import lesion
    from accelerator_works import without_pictures

    without_pictures()
    study = tomllib.loads(STUDY.read_text(encoding="utf-8"))
    began = time.perf_counter()
    model = lesion.load(str(options.smollm2), device=options.device, dtype=study["dtype"])
    note("loading", time.perf_counter() - began)
    cells, answers = published(), Answers()
    tiny = options.shape == "tiny"

    def asked(task: str, published_as: str, items: int) -> None:
        began = time.perf_counter()
        layers: Any = [0, 13, 29] if tiny else "all"
        with tempfile.TemporaryDirectory() as out:
            lesion.ablate(model, task, items=items, layers=layers, seed=study["seed"], out=out, progress=False)
            seconds = time.perf_counter() - began
            fresh = stored(Path(out))
        answers.update({(edit, published_as, item): value for (edit, _, item), value in fresh.items()})
        found = accuracies(fresh)
        apart = {edit: [cells.get((edit, published_as)), value] for edit, value in found.items()}
        apart = {edit: pair for edit, pair in apart.items() if pair[0] != pair[1]}
        note(published_as, {"seconds": seconds, "items": items, "answers": len(fresh), "cells": len(found),
                            "different_cells": apart})  # fmt: skip
        if options.answers:
            write(answers, options.answers)

    for entry in study["tasks"]:
        task = entry if isinstance(entry, dict) else {"name": entry}
        name: str = task["name"]
        if left() < 15:
            note(name, {"skipped": f"{left():.0f} s are left"})
            continue
        items = 8 if tiny else task.get("items", study["items"])
        published_as = FILES.get(name, name)
        source = published_as.replace(":", f":{options.data}/", 1) if name in FILES else name
        note.attempt(name, partial(asked, source, published_as, items))


def stored(folder: Path) -> Answers:
    """The answers of a study's folder."""
    with sqlite3.connect(f"file:{folder / 'answers.sqlite'}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT edit, task, item, text, correct FROM answers").fetchall()
    return {(edit, task, item): (text, bool(correct)) for edit, task, item, text, correct in rows}


def accuracies(answers: Answers) -> dict[str, float]:
    """Share of right answers by edit, rounded as in the published table; of the answers to one task."""
    right: dict[str, list[bool]] = {}
    for (edit, _, _), (_, correct) in answers.items():
        right.setdefault(edit, []).append(correct)
    return {edit: round(sum(values) / len(values), 6) for edit, values in right.items()}


def published() -> dict[tuple[str, str], float]:
    """Accuracies of the published table by edit and task."""
    cells = {}
    with PUBLISHED.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            cells[f"{row['layer']}×0", row["task"]] = round(float(row["accuracy"]), 6)
            cells["baseline", row["task"]] = round(float(row["baseline_accuracy"]), 6)
    return cells


def write(answers: Answers, file: Path) -> None:
    """As compressed JSON."""
    rows = [[*key, *value] for key, value in sorted(answers.items())]
    file.write_bytes(gzip.compress(json.dumps(rows, ensure_ascii=False).encode(), 6))


def read(file: Path) -> Answers:
    """What `write` wrote."""
    rows = json.loads(gzip.decompress(file.read_bytes()))
    return {(edit, task, item): (text, correct) for edit, task, item, text, correct in rows}


def differing(some: Answers, others: Answers) -> Iterator[tuple[tuple[str, str, str], str, str]]:
    """Answers that both have and that are not the same."""
    for key in some.keys() & others.keys():
        if some[key][0] != others[key][0]:
            yield key, some[key][0], others[key][0]


def main() -> None:
    """Compare a card's answers with those of folders."""
    card = read(Path(sys.argv[1]))
    cpu: Answers = {}
    for folder in sys.argv[2:]:
        cpu.update({(e, FILES.get(task, Path(task).name), i): v for (e, task, i), v in stored(Path(folder)).items()})
    apart = list(differing(card, cpu))
    print(f"{len(card.keys() & cpu.keys()):,} answers to compare, {len(apart):,} differ")
    for key, mine, yours in apart[:20]:
        print(f"  {' '.join(key)}: {mine!r} on the card, {yours!r} on the CPU")


if __name__ == "__main__":
    main()
