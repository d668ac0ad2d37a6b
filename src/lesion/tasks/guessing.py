"""How often guessing is right."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.tasks.around import Around
from lesion.tasks.task import Item, Task


def guessing(task: Task, items: Sequence[Item]) -> float:
    """The accuracy of guessing, in 0…1: of items with choices the mean share that is right, 0 where nothing is chosen.

    An item with one choice alone (a continuation of lm-evaluation-harness) is none to guess.
    """
    if task.kind == "choose":
        shares = [
            sum(text in (item.gold, *item.aliases) for text in item.choices) / len(item.choices)
            for item in items
            if len(item.choices) > 1
        ]
        return sum(shares) / len(items) if shares else 0.0
    while isinstance(task, Around):
        task = task.of
    return float(getattr(task, "guessing", 0.0))
