"""Corrupted prompts: beside an item, others that differ in the words that decide the answer (activation patching).

A task supplies them by a method `corruptions(item)`. For indirect object identification the repeated name is exchanged
for the other one, for a fact the subject for another of the same relation: the symmetric token replacement that Zhang
and Nanda (2024, section 2) recommend over noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

from lesion.errors import UsageError
from lesion.tasks.task import Item, Task

T = TypeVar("T")


@runtime_checkable
class Corrupting(Protocol):
    """A task that can corrupt the prompts of its items."""

    def corruptions(self, item: Item) -> Iterable[Item]:
        """Items whose right answer is another one, the best first; none where the item cannot be corrupted.

        Whether a prompt has as many tokens as that of the item is known only with a tokenizer; who asks takes the first
        that has.
        """
        ...


def corruptions_of(task: Task, item: Item) -> Iterable[Item]:
    """The corrupted items of an item."""
    if task.kind != "contrast":
        raise UsageError(
            f"{task.name} has no tempting tokens, so there is no logit difference to restore; give a task such as ioi,"
            " facts, induction, agreement, or a file whose items have 'tempting'."
        )
    if not isinstance(task, Corrupting):
        raise UsageError(
            f"{task.name} has no rule by which to corrupt a prompt; give ioi, facts, induction, agreement or a file of"
            " items with 'tempting', without anything before the name."
        )
    return task.corruptions(item)


def shuffled(choices: Iterable[T], item: Item) -> list[T]:
    """The choices in an order that the id of an item seeds."""
    order = list(choices)
    random.Random(f"corruption {item.id}").shuffle(order)
    return order


def others_of_group(items: Sequence[Item], item: Item) -> list[Item]:
    """The items of the same group with another right answer, in a seeded order."""
    return shuffled((other for other in items if other.group == item.group and other.gold != item.gold), item)


def corrupted(item: Item, identity: str, prompt: str, right: str) -> Item:
    """An item with another prompt and right answer, which the item's own right answer tempts."""
    return replace(item, id=identity, question=prompt, gold=right, solution=right, choices=(right, item.gold))
