"""Values: by what two items count as one when sets of items are kept apart, whatever their ids, seeds and prompts are.

An arithmetic problem counts by its numbers, in any order where that changes no answer: 12 + 34 and 34 + 12 are one, in
every form and behind any solved problems. Any other question counts by its text without regard to case and white space.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from lesion.tasks.catalogue import source
from lesion.tasks.task import Item

_COMMUTE = ("arithmetic:add", "arithmetic:multiply")


def value(task: str, item: Item) -> str:
    """What an item of a task, by the task's name, asks."""
    return list(_stated(source(task), item.question))[-1]


def shown(task: str, item: Item) -> frozenset[str]:
    """What stands in the prompt of an item: the values of itself and of the problems solved before it."""
    kind = source(task)
    texts = (item.question, *(question for question, _ in item.shots))
    return frozenset(stated for text in texts for stated in _stated(kind, text))


def sharing(task: str, items: Iterable[Item], values: Collection[str]) -> set[str]:
    """The ids of the items whose value is one of these."""
    return {item.id for item in items if value(task, item) in values} if values else set()


def _stated(kind: str, text: str) -> Iterator[str]:
    """The values of the problems that a text states, in order."""
    if not kind.startswith("arithmetic:"):
        yield " ".join(text.casefold().split())
        return
    for line in text.splitlines():
        stated = line.partition("=")[0].strip()
        if stated and not stated.startswith("Answer:"):
            numbers = [int(number) for number in re.findall("[0-9]+", stated)]
            numbers = sorted(numbers) if kind in _COMMUTE else numbers
            yield f"{kind} {' '.join(map(str, numbers)) if len(numbers) > 1 else stated.removeprefix('Question: ')}"
