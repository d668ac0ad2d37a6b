"""Examination: a member of the lineage answers the test split of every primer task; what it gained over another."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lesion import atomic as whole
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.statistics.paired import paired_drop, wilson
from lesion.tasks.catalogue import find
from lesion.tasks.primer import NAMES
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item

Right = Mapping[str, Mapping[str, bool]]
"""Whether each answer is right, by task and by the id of its item."""


def answers(model: Model, *, watcher: Watcher | None = None) -> Right:
    """Which items of the test splits a model gets right, decoding greedily, asked as `auto` has it."""
    watcher = watcher or Silent()
    asked = {name: _items(name) for name in _tasks()}
    watcher.begin(model.name, sum(map(len, asked.values())), 0)
    right: dict[str, dict[str, bool]] = {}
    for name, items in asked.items():
        task = find(name)
        decoding = Decoding(task.max_new_tokens, task.stop)
        requests = [Request(key, encode(model, task, item), decoding=decoding) for key, item in items.items()]
        found: dict[str, bool] = {}
        for response in TransformersEngine(model).answer(requests):
            found[response.key] = task.judge(items[response.key], response.answer).correct
            watcher.answered(1)
        right[name] = {key: found[key] for key in items}
    return right


def remembered(model: Model, folder: Path, *, watcher: Watcher | None = None) -> Right:
    """As `answers`, kept in a folder under the model's fingerprint: a parent is examined once for all its children.

    Raises:
        LesionError: the folder cannot be written.
    """
    path = folder / f"{model.fingerprint}.json"
    current = {name: list(_items(name)) for name in _tasks()}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = None
    if isinstance(kept, dict) and {name: list(found) for name, found in kept.items()} == current:
        return kept
    right = answers(model, watcher=watcher)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole.replace(path, json.dumps(right))
    except OSError as error:
        raise LesionError(f"{path} cannot be written: {error.strerror or error}; give another --out.") from error
    return right


def results(right: Right) -> list[dict[str, Any]]:
    """Accuracies with 95 % Wilson intervals, of every task overall (group "") and by group of its items."""
    told = []
    for name, found in right.items():
        for group, members in _groups(name).items():
            asked = [found[key] for key in members]
            low, high = wilson(sum(asked), len(asked))
            accuracy = sum(asked) / len(asked) if asked else math.nan
            told.append(
                {
                    "task": name,
                    "group": group,
                    "items": len(asked),
                    "accuracy": round(accuracy, 5),
                    "low": round(low, 5),
                    "high": round(high, 5),
                }
            )
    return told


def gains(child: Right, parent: Right) -> list[dict[str, Any]]:
    """How much more of the same items a child gets right than its parent, per task, with a 95 % interval.

    The interval is Tango's for paired proportions (`studies.statistics.paired_drop`), turned round; `gained` and
    `lost` count the items that only the child and only the parent gets right.
    """
    told = []
    for name, found in child.items():
        mine = np.array(list(found.values()))
        before = np.array([parent[name][key] for key in found])
        drop = paired_drop(before, mine)
        told.append(
            {
                "task": name,
                "items": len(mine),
                "gain": round(0.0 - drop.drop, 5),
                "low": round(0.0 - drop.high, 5),
                "high": round(0.0 - drop.low, 5),
                "gained": int((mine & ~before).sum()),
                "lost": int((before & ~mine).sum()),
            }
        )
    return told


def sentence(entry: Mapping[str, Any]) -> str:
    """A gain in words: `+5.2 points (3.1 to 7.4) on the same 1,200 items`."""
    return (
        f"{100 * entry['gain']:+.1f} points ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f}) on the same"
        f" {entry['items']:,} items"
    )


def _tasks() -> Sequence[str]:
    return [f"primer:{name}" for name in NAMES]


def _items(name: str) -> dict[str, Item]:
    return {item.id: item for item in find(name).load()}


def _groups(name: str) -> dict[str, list[str]]:
    """The ids of the items of every group, "" for all."""
    items = _items(name)
    groups: dict[str, list[str]] = {"": list(items)}
    for group in sorted({item.group for item in items.values()}):
        groups[group] = [key for key, item in items.items() if item.group == group]
    return groups
