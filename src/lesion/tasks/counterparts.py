"""Counterparts of an item: prompts that differ in the words that decide the answer, and others in the very same form.

Corrupted prompts are those of activation patching. For indirect object identification the repeated name is exchanged
for the other one, for a fact the subject for another of the same relation: the symmetric token replacement that Zhang
and Nanda (2024, section 2) recommend over noise.

What a place adds at a position can stand in for what it adds there in another prompt only where both positions hold the
same kind of word. So a task says itself which questions are aligned with an item, word for word of the same role, after
the same shots; whether their words are as many tokens is looked at with a tokenizer (`lesion.activations.calibration`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

from lesion.arguments import validated
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


MOST = 400
"""So many aligned items are made at most where there is no end to them."""


@runtime_checkable
class Aligning(Protocol):
    """A task whose items have a form that others can be written in."""

    def aligned(self, item: Item) -> Iterable[Item] | None:
        """Items with the same solved problems before them and the same words but those in which items differ, which
        are as many and stand at the same places; the item itself may be among them.

        In an order that is the same for all items of one form. None where the task has no rule for them.
        """
        ...


@validated
def aligned(task: Task, item: Item) -> Sequence[Item]:
    """The items that are aligned with one of a task, the first `MOST` of them: same solved problems, same form.

    Their words may be other numbers of tokens than those of the item.

    Raises:
        UsageError: the task has no rule for them.
    """
    return tuple(islice(every_aligned(task, item), MOST))


def every_aligned(task: Task, item: Item) -> Iterable[Item]:
    """All items that are aligned with one of a task, made as they are wanted."""
    alignments = task.aligned(item) if isinstance(task, Aligning) else None
    if alignments is None:
        raise UsageError(
            f"{task.name} has no texts that are aligned with its items token by token: they differ in length and form,"
            " so that 'the same position' would be another token. position and resample need such texts (arithmetic,"
            " copying, induction, greater_than and ioi have them); of this task take mean or optimal (--replace"
            " mean,optimal), or switch the place off (--factor 0)."
        )
    return alignments
