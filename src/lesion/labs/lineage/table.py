"""One table of the members of a lineage: what each is right in, how long it took, what it gained over its parent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lesion import atomic as whole
from lesion.errors import LesionError
from lesion.labs.lineage import shipping
from lesion.labs.lineage.card import TASK

FILE = "lineage.json"
ASKED = (TASK, "primer:atlas", "primer:reading")


def members(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """A row for each member, from the `training.json` in its folder.

    Returns:
        Per member: `model` (its name), `family`, `stage`, `minutes` of training, `results` (as in `training.json`, of
        every task overall and of arithmetic by steps), and `gain` (over its parent, per task; empty for a base).

    Raises:
        LesionError: a folder holds no finished member.
    """
    rows = []
    for folder in folders:
        found = shipping.facts(folder)
        if found is None:
            raise LesionError(f"{folder} holds no finished member of a lineage ({shipping.FACTS} is missing).")
        rows.append(
            {
                "model": f"{found['family']}-{found['stage']}",
                "family": found["family"],
                "stage": found["stage"],
                "minutes": round(found["seconds"] / 60, 1),
                "machine": found["machine"],
                "results": [entry for entry in found["results"] if not entry["group"] or entry["task"] == TASK],
                "gain": found.get("gain", []),
            }
        )
    return rows


def write(out: Path, rows: list[dict[str, Any]]) -> Path:
    """Write the rows to `out/lineage.json`, and return that file.

    Raises:
        LesionError: it cannot be written.
    """
    path = out / FILE
    with shipping.writing(out):
        whole.replace(path, json.dumps({"members": rows}, indent=1) + "\n")
    return path


def text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown: accuracies in percent with their intervals, gains in points."""
    rows = list(rows)
    steps = sorted({entry["group"] for row in rows for entry in row["results"] if entry["group"]})
    heads = ["model", "arithmetic", *steps, "atlas", "reading", "gain in arithmetic over its parent", "minutes"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in rows:
        found = {(entry["task"], entry["group"]): _accuracy(entry) for entry in row["results"]}
        gain = next((_gain(entry) for entry in row["gain"] if entry["task"] == TASK), "")
        keys = [(TASK, ""), *((TASK, group) for group in steps), *((task, "") for task in ASKED[1:])]
        cells = [row["model"], *(found.get(key, "") for key in keys), gain, f"{row['minutes']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy(entry: Mapping[str, Any]) -> str:
    return f"{100 * entry['accuracy']:.1f} ({100 * entry['low']:.1f}–{100 * entry['high']:.1f})"


def _gain(entry: Mapping[str, Any]) -> str:
    return f"{100 * entry['gain']:+.1f} ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f})"
