"""The golden studies: what is run, and what of their folders is recorded."""

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from commandline import undrawn
from lesion.cli.main import code
from lesion.cli.terminal import Bar
from lesion.core import baseline
from lesion.core.store import Store
from lesion.errors import LesionError

HERE = Path(__file__).parent
STUDIES = HERE / "studies"
INTERRUPTED = 130
CHAINS: dict[str, dict[str, list[str]]] = {
    "layers": {
        "layers": ["run", "{studies}/layers.toml"],
        "truncation": ["run", "{studies}/truncation.toml"],
        "overlay": ["overlay", "{out}/layers", "{out}/truncation"],
        "child": [
            *("ablate", "bundled:llama-rlvr", "--task", "primer:arithmetic", "--task", "primer:atlas", "--items", "6"),
            *("--seed", "3", "--layers", "1,2", "--batch-size", "16"),
        ],
        "comparison": ["compare", "{out}/layers", "{out}/child"],
        "effects": ["run", "{studies}/effects.toml"],
    },
    "kinds": {"kinds": ["run", "{studies}/kinds.toml"]},
    "heads": {"heads": ["run", "{studies}/heads.toml"], "effects": ["run", "{studies}/head-effects.toml"]},
    "rivals": {"forced": ["run", "{studies}/forced.toml"], "rivals": ["run", "{studies}/rivals.toml"]},
    "family": {
        "noise": ["perturb", "bundled:llama-base", "--like", "bundled:llama-instruct"],
        "family": ["run", "{studies}/family.toml"],
    },
    "interaction": {"interaction": ["run", "{studies}/interaction.toml"]},
    "patching": {"patching": ["run", "{studies}/patching.toml"]},
    "planted": {"planted": ["lab", "planted", "--kind", "compiled"], "layers": ["run", "{studies}/planted.toml"]},
    "search": {"search": ["run", "{studies}/search.toml"]},
    "units": {"units": ["run", "{studies}/units.toml"]},
    "stopped": {"stopped": ["run", "{studies}/stopped.toml"]},
    "isolation": {
        "isolation": ["run", "{studies}/isolation.toml"],
        "evaluate": [
            *("evaluate", "bundled:llama-base", "--task", "primer:arithmetic", "--items", "6", "--batch-size", "16"),
            *("--edit", "{out}/isolation/mathneuro-0.1.edit", "--factor", "0,1.1", "--random-controls", "1"),
        ],
    },
    "drift": {"drift": ["run", "{studies}/drift.toml"]},
    "tuning": {"tuning": ["run", "{studies}/tuning.toml"]},
    "recall": {"recall": ["run", "{studies}/recall.toml"]},
    "memory": {"memory": ["lab", "memory", "--classes", "4", "--inputs", "4", "--width", "8", "--steps", "10"]},
}
"""Commands by the folder that each fills, in the order in which they need each other."""


def record_file(name: str) -> Path:
    """The record of a chain."""
    return HERE / "records" / f"{name}.json"


def command(name: str, folder: str, out: Path) -> list[str]:
    """The arguments of the command that fills a folder."""
    return [word.format(studies=STUDIES, out=out) for word in [*CHAINS[name][folder], "--out", f"{{out}}/{folder}"]]


def run_chain(name: str, out: Path) -> dict[str, Any]:
    """Run every command of a chain until it is interrupted after its first answers, again to the end, and read it."""
    record = {}
    with undrawn(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(out)  # what a study names by a relative path has the same name wherever it lies
        patch.setattr("altair.utils.schemapi.DEBUG_MODE", False)
        patch.setattr(baseline, "stop", lambda *_: None)  # their few items would show nothing
        for folder in CHAINS[name]:
            arguments = command(name, folder, out)
            with pytest.MonkeyPatch.context() as once:
                interrupt(once)
                left = code(arguments)
            assert left in {0, INTERRUPTED}, f"lesion {' '.join(arguments)} ended with {left}"
            if left:
                assert code(arguments) == 0
            record[folder] = contents(out / folder, out)
    return record


def interrupt(patch: pytest.MonkeyPatch, after: int = 3) -> None:
    """Press Ctrl-C when answers have come this many times."""
    news = 0

    def answered(self: Bar, count: int) -> None:
        nonlocal news
        news += 1
        if news == after:
            raise KeyboardInterrupt

    patch.setattr(Bar, "answered", answered)


def contents(folder: Path, out: Path) -> dict[str, Any]:
    """Identity, answer keys, summary and tables of a folder; absolute paths are written relative to `out`."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    tables = {name: table(folder / name, out) for name in names if name.endswith(".csv")}
    record = {**answers(folder), "cells": cells(names), "tables": tables}
    if (folder / "summary.json").is_file():
        record["summary"] = without_prose(json.loads(read(folder / "summary.json", out)))
    cards = [name for name in names if name.endswith("planted.json")]
    return {**record, **{name: without_prose(json.loads(read(folder / name, out))) for name in cards}}


def read(file: Path, out: Path) -> str:
    """The text of a file, with paths relative to `out`."""
    return file.read_text(encoding="utf-8").replace(f"{out}/", "")


PROSE = {"text", "reasons", "notes", "machine", "version", "approximate", "made", "statement"}
"""Keys of sentences, which may be reworded, and of seconds, dates and versions."""


def without_prose(value: Any) -> Any:
    """A part of a summary without the values of `PROSE`."""
    if isinstance(value, dict):
        return {key: without_prose(entry) for key, entry in value.items() if key not in PROSE}
    return [without_prose(entry) for entry in value] if isinstance(value, list) else value


def answers(folder: Path) -> dict[str, Any]:
    """The study's identity and a digest of the keys of all answers, where the folder has a store."""
    try:
        with Store.read(folder) as store:
            keys = sorted(store.keys())
            digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()
            return {"identity": store.study[0], "answers": len(keys), "keys": digest}
    except LesionError:
        return {}


def cells(names: list[str]) -> list[str]:
    """What is kept under `cells/`, whose names hold the identity of a part of a study."""
    return sorted({"/".join(name.split("/")[:2]) for name in names if name.startswith("cells/")})


def table(file: Path, out: Path) -> dict[str, list[str | float]]:
    """The columns of a CSV file by their headings, numbers as numbers: in which order they stand is no matter."""
    with io.StringIO(read(file, out), newline="") as lines:
        headings, *rows = csv.reader(lines)
    return {heading: [number(row[place]) for row in rows] for place, heading in enumerate(headings)}


def number(value: str) -> str | float:
    """A number where it is one."""
    try:
        return float(value)
    except ValueError:
        return value
