"""Frames: items of a task with the texts that are aligned with them token by token, for `position` and `resample`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.tasks.aligned import aligned
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Item, Task
from lesion.tasks.written import spell


@dataclass(frozen=True)
class Frame:
    """Items of one form, and the texts that stand in for them.

    Attributes:
        items: whose prompts have as many tokens as those of the texts, every word as many as the word at its place.
        texts: other items of the form, behind the same solved problems.
    """

    items: tuple[Item, ...]
    texts: tuple[Item, ...]


def frames(
    model: Model, task: Task, items: Sequence[Item], *, style: str | None = None, texts: int = 50, fewest: int = 10
) -> list[Frame]:
    """Items with the texts that are aligned with them: from the first token on, each with one of the same role.

    Two questions of one form (`lesion.tasks.aligned`) are aligned where their prompts have as many tokens, and each of
    their words has as many as the word at the same place. An item itself may be among its texts.

    Args:
        model: whose tokenizer counts.
        task: of the items.
        items: to be aligned.
        style: the prompt style; None for the task's own.
        texts: of a frame at most.
        fewest: texts that each item needs.

    Raises:
        UsageError: the task has no aligned texts, or an item has fewer than it needs.
    """
    style = resolve(model, task, style)
    shape = _shape(model, task, style)
    groups: dict[tuple[str, ...], tuple[list[Item], list[Item]]] = {}
    short: list[tuple[Item, int]] = []
    for item in items:
        found: list[Item] = []
        own = shape(item)
        for other in aligned(task, item):
            if len(found) < texts and shape(other) == own:
                found.append(other)
        if len(found) < fewest:
            short.append((item, len(found)))
            continue
        groups.setdefault(tuple(other.question for other in found), ([], found))[0].append(item)
    if short:
        item, count = min(short, key=lambda each: each[1])
        raise UsageError(
            f"{len(short)} of {len(items)} items of {task.name} have fewer than {fewest} texts that are aligned with"
            f" them token by token under the tokenizer of {model.name} (item {item.id}: {count}), so that position and"
            " resample cannot be had for them; take mean or optimal, or fewer draws."
        )
    return [Frame(tuple(own), tuple(found)) for own, found in groups.values()]


def _shape(model: Model, task: Task, style: str) -> Callable[[Item], tuple[int, ...]]:
    """What has to be equal of two prompts of one form: their tokens, and those of each word."""

    @cache
    def tokens(word: str) -> int:
        return len(spell(model.tokenizer, f" {word}"))

    @cache
    def of_question(question: str, item: Item) -> tuple[int, ...]:
        prompt = encode(model, task, item, style, max_new_tokens=1)
        return (len(prompt), *(tokens(word) for word in question.split()))

    return lambda item: of_question(item.question, item)
