"""One table of the members of a lineage: what each is right in, how long it took, what it gained over its parent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from lesion.atomic import replace
from lesion.errors import LesionError
from lesion.labs.lineage import shipping
from lesion.labs.lineage.card import TASK, Gain, Result
from lesion.labs.lineage.checkpoints import writing

FILE = "lineage.json"


class Member(TypedDict):
    """A row: `results` of every task overall and of arithmetic by steps, `gain` per task (empty for a base)."""

    model: str
    family: str
    stage: str
    minutes: float
    machine: str
    results: list[Result]
    gain: list[Gain]


def members(folders: Iterable[Path]) -> list[Member]:
    """A row for each member, from the `training.json` in its folder.

    Raises:
        LesionError: a folder holds no finished member.
    """
    rows: list[Member] = []
    for folder in folders:
        facts = shipping.facts(folder)
        if facts is None:
            raise LesionError(f"{folder} holds no finished member of a lineage ({shipping.FACTS} is missing).")
        rows.append(
            {
                "model": f"{facts['family']}-{facts['stage']}",
                "family": facts["family"],
                "stage": facts["stage"],
                "minutes": round(facts["seconds"] / 60, 1),
                "machine": facts["machine"],
                "results": [entry for entry in facts["results"] if not entry["group"] or entry["task"] == TASK],
                "gain": facts.get("gain", []),
            }
        )
    return rows


def write(out: Path, rows: list[Member]) -> Path:
    """Write the rows to `out/lineage.json`, and return that file.

    Raises:
        LesionError: it cannot be written.
    """
    path = out / FILE
    with writing(out):
        replace(path, json.dumps({"members": rows}, indent=1) + "\n")
    return path


def text(rows: Iterable[Member]) -> str:
    """The rows as a table in Markdown: accuracies in percent with their intervals, gains in points."""
    rows = list(rows)
    steps = sorted({entry["group"] for row in rows for entry in row["results"] if entry["group"]})
    heads = ["model", "arithmetic", *steps, "atlas", "reading", "gain in arithmetic over its parent", "minutes"]
    columns = [*((TASK, group) for group in ("", *steps)), ("primer:atlas", ""), ("primer:reading", "")]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in rows:
        accuracies = {(entry["task"], entry["group"]): _accuracy(entry) for entry in row["results"]}
        gain = next((_gain(entry) for entry in row["gain"] if entry["task"] == TASK), "")
        cells = [row["model"], *(accuracies.get(column, "") for column in columns), gain, f"{row['minutes']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy(entry: Result) -> str:
    return f"{100 * entry['accuracy']:.1f} ({100 * entry['low']:.1f}–{100 * entry['high']:.1f})"


def _gain(entry: Gain) -> str:
    return f"{100 * entry['gain']:+.1f} ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f})"
