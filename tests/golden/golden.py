"""The golden studies: what is run, and what of their folders is recorded."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lesion.cli.main import code
from lesion.cli.progress import Bar
from lesion.core.store import Store
from lesion.errors import LesionError
from lesion.report import drawing

HERE = Path(__file__).parent
STUDIES = HERE / "studies"
BEGUN = HERE / "begun"
"""The folder of a study that an earlier version began: three answers of twelve."""
INTERRUPTED = 130
CHAINS: dict[str, dict[str, list[str]]] = {
    "layers": {
        "layers": ["run", "{studies}/layers.toml"],
        "truncation": ["run", "{studies}/truncation.toml"],
        "overlay": ["overlay", "{out}/layers", "{out}/truncation"],
    },
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
    "memory": {
        "memory": ["lab", "memory", "--classes", "4", "--inputs", "4", "--width", "8", "--steps", "10"],
    },
}
"""Commands by the folder that each fills, in the order in which they need each other."""


def record_file(name: str) -> Path:
    """The record of a chain."""
    return HERE / "records" / f"{name}.json"


def run_chain(name: str, out: Path) -> dict[str, Any]:
    """Run every command of a chain until it is interrupted after its first answers, again to the end, and read it."""
    record = {}
    with pytest.MonkeyPatch.context() as patch:
        # Pictures are no part of the record.
        patch.setattr("altair.utils.schemapi.DEBUG_MODE", False)
        patch.setattr(drawing, "specification", lambda chart: {"datasets": {}, "config": {}})
        patch.setattr(drawing, "svg", lambda specified: "<svg/>")
        patch.setattr(drawing, "png_file", lambda drawn: b"")
        for folder, words in CHAINS[name].items():
            arguments = [word.format(studies=STUDIES, out=out) for word in [*words, "--out", f"{{out}}/{folder}"]]
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
    tables = {name: table(folder / name) for name in names if name.endswith(".csv")}
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8").replace(f"{out}/", ""))
    return {**answers(folder), "cells": cells(names), "summary": without_prose(summary), "tables": tables}


PROSE = {"text", "reasons", "notes", "machine", "version", "approximate"}
"""Keys of sentences, which may be reworded, and of seconds and versions."""


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


def table(file: Path) -> list[list[str | float]]:
    """The rows of a CSV file, numbers as numbers."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [[number(value) for value in row] for row in csv.reader(lines)]


def number(value: str) -> str | float:
    """A number where it is one."""
    try:
        return float(value)
    except ValueError:
        return value
