"""Aligned items: other questions in the very form of an item, word for word of the same role, after the same shots.

What a place adds at a position can stand in for what it adds there in another prompt only where both positions hold the
same kind of word. So a task says itself which questions are aligned with an item; whether their words are as many
tokens is looked at with a tokenizer (`lesion.activations.alignment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from lesion.arguments import validated
from lesion.errors import UsageError
from lesion.tasks.task import Item, Task

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
    found = task.aligned(item) if isinstance(task, Aligning) else None
    if found is None:
        raise UsageError(
            f"{task.name} has no texts that are aligned with its items token by token: they differ in length and form,"
            " so that 'the same position' would be another token. position and resample need such texts (arithmetic,"
            " copying, induction, greater_than and ioi have them); of this task take mean or optimal (--replace"
            " mean,optimal), or switch the place off (--factor 0)."
        )
    return found
