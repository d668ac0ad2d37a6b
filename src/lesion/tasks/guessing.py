"""How often guessing is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scipy.stats import binom

from lesion.statistics.paired import ALPHA
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import WrappedTask


def guessing(task: Task, items: Sequence[Item]) -> float:
    """The accuracy of guessing, in 0…1: of items with choices the mean share that is right, 0 where nothing is chosen.

    An item with one choice alone (a continuation of lm-evaluation-harness) is none to guess. One answer to all items is
    a guess too: where one is right more often than the share by an exact binomial test (Bonferroni over the answers),
    its accuracy counts, kept below 1 by half an item.
    """
    if task.kind == "choose":
        every = [
            {text for text in item.choices if text in (item.gold, *item.aliases)} if len(item.choices) > 1 else set()
            for item in items
        ]
        share = sum(len(right) / len(item.choices) for right, item in zip(every, items, strict=True) if right)
    else:
        every = [{item.gold, *item.aliases} for item in items]
        while isinstance(task, WrappedTask):
            task = task.of
        share = float(getattr(task, "guessing", 0.0)) * len(items)
    if not share:
        return 0.0
    answers = Counter(text for right in every for text in right)
    (_, most), share = answers.most_common(1)[0], share / len(items)
    unbalanced = len(answers) * binom.sf(most - 1, len(items), share) <= ALPHA
    return min(most, len(items) - 0.5) / len(items) if unbalanced else share
