"""Frames: items of a task with the texts that are aligned with them token by token, for `position` and `resample`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.tasks.counterparts import every_aligned
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

    Two questions of one form (`lesion.tasks.counterparts`) are aligned where their prompts have as many tokens, and
    each of their words has as many as the word at the same place. An item itself may be among its texts.
    """
    style = resolve(model, task, style)
    shape = _Shape(model, task, style)
    groups: dict[tuple[object, ...], tuple[list[Item], list[Item]]] = {}
    short: list[tuple[Item, int]] = []
    for item in items:
        found = list(islice((other for other in every_aligned(task, item) if shape.equal(item, other)), texts))
        if len(found) < fewest:
            short.append((item, len(found)))
            continue
        groups.setdefault(tuple((other.shots, other.question) for other in found), ([], found))[0].append(item)
    if short:
        item, count = min(short, key=lambda each: each[1])
        raise UsageError(
            f"{len(short)} of {len(items)} items of {task.name} have fewer than {fewest} texts that are aligned with"
            f" them token by token under the tokenizer of {model.name} (item {item.id}: {count}), so that position and"
            " resample cannot be had for them; take mean or optimal, or fewer draws."
        )
    return [Frame(tuple(own), tuple(found)) for own, found in groups.values()]


class _Shape:
    """What has to be equal of two prompts of one form: how many tokens they have, and each of their words."""

    def __init__(self, model: Model, task: Task, style: str) -> None:
        self.model, self.task, self.style = model, task, style
        self._words: dict[str, int] = {}
        self._prompts: dict[Item, int] = {}

    def equal(self, first: Item, second: Item) -> bool:
        # Words are looked at first: they are known from other questions.
        return self._of_words(first) == self._of_words(second) and self._length(first) == self._length(second)

    def _of_words(self, item: Item) -> list[int]:
        words = item.question.split()
        for word in words:
            if word not in self._words:
                self._words[word] = len(spell(self.model.tokenizer, f" {word}"))
        return [self._words[word] for word in words]

    def _length(self, item: Item) -> int:
        if item not in self._prompts:
            self._prompts[item] = len(encode(self.model, self.task, item, self.style, max_new_tokens=1))
        return self._prompts[item]
