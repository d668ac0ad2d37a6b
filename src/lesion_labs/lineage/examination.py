"""Examination: a member of the lineage answers the test split of every primer task; what it gained over another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np

from lesion.engines.engine import Decoding
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.statistics.paired import paired_drop, wilson
from lesion.tasks.catalogue import find
from lesion.tasks.primer import NAMES
from lesion.tasks.task import Item
from lesion.training.resume import digest
from lesion_labs.lineage.lessons import answer, kept
from lesion_labs.lineage.shipping import Gain, Result

Right = Mapping[str, Mapping[str, bool]]
"""Whether each answer is right, by task and by the id of its item."""


class _Row(TypedDict):
    task: str
    right: Mapping[str, bool]


def answers(model: Model, *, watcher: Watcher | None = None) -> Right:
    """Which items of the test splits a model gets right, decoding greedily, asked as `auto` has it."""
    watcher = watcher or Silent()
    items_of = {name: _items(name) for name in _tasks()}
    watcher.begin(model.name, sum(map(len, items_of.values())), 0)
    right: dict[str, dict[str, bool]] = {}
    for name, items in items_of.items():
        task = find(name)
        decoding = Decoding(task.max_new_tokens, task.stop)
        answered = answer(model, [(task, item, decoding) for item in items.values()], watcher)
        right[name] = {key: correct for key, (_, correct) in zip(items, answered, strict=True)}
    return right


def remembered(model: Model, folder: Path, *, watcher: Watcher | None = None) -> Right:
    """As `answers`, kept in a folder under the model's fingerprint: a parent is examined once for all its children."""
    ids = {name: list(_items(name)) for name in _tasks()}
    head = {"model": model.fingerprint, "items": digest(ids)}

    def rows_of_answers() -> list[_Row]:
        return [{"task": name, "right": right} for name, right in answers(model, watcher=watcher).items()]

    rows = kept(folder / f"{model.fingerprint}.jsonl", head, len(ids), rows_of_answers)
    return {row["task"]: row["right"] for row in rows}


def results(right: Right) -> list[Result]:
    """Accuracies with 95 % Wilson intervals, of every task overall (group "") and by group of its items."""
    entries: list[Result] = []
    for name, verdicts in right.items():
        items = _items(name)
        for group in ("", *sorted({item.group for item in items.values()})):
            of_group = [verdicts[key] for key, item in items.items() if group in ("", item.group)]
            count, n = sum(of_group), len(of_group)
            low, high = (round(limit, 5) for limit in wilson(count, n))
            accuracy = round(count / n, 5)
            entries.append({"task": name, "group": group, "items": n, "accuracy": accuracy, "low": low, "high": high})
    return entries


def gains(child: Right, parent: Right) -> list[Gain]:
    """How much more of the same items a child gets right than its parent, per task, with Tango's 95 % interval."""
    entries: list[Gain] = []
    for name, verdicts in child.items():
        mine = np.array(list(verdicts.values()))
        before = np.array([parent[name][key] for key in verdicts])
        drop = paired_drop(before, mine)
        entries.append(
            {
                "task": name,
                "items": len(mine),
                "gain": round(0.0 - drop.value, 5),
                "low": round(0.0 - drop.high, 5),
                "high": round(0.0 - drop.low, 5),
                "gained": int((mine & ~before).sum()),
                "lost": int((before & ~mine).sum()),
            }
        )
    return entries


def sentence(entry: Gain) -> str:
    """A gain in words: `+5.2 points (3.1 to 7.4) on the same 1,200 items`."""
    return (
        f"{100 * entry['gain']:+.1f} points ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f}) on the same"
        f" {entry['items']:,} items"
    )


def _tasks() -> list[str]:
    return [f"primer:{name}" for name in NAMES]


def _items(name: str) -> dict[str, Item]:
    return {item.id: item for item in find(name).load()}
