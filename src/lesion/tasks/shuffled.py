"""Shuffled gold answers: a task in which there is nothing to learn, the null against choosing noise."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from lesion.errors import UsageError
from lesion.tasks.task import Item, Kind, Task
from lesion.tasks.wrapped import WrappedTask

SEED = "shuffled gold answers"
LabelT = TypeVar("LabelT", bound=Hashable)


class Shuffled(WrappedTask):
    """A task with its gold answers dealt out anew among its items, always in the same way.

    Questions, choices, ids and prompts stay; so does how often every answer is right. Generated answers move with
    their aliases and solutions. Of choices, the place of the right one moves, among items with as many choices. Of
    contrasts, the right text moves and the tempting one stays, unless the new right text is that very one: then the
    item's own right text is tempting. No item keeps its own answer where that can be avoided.
    """

    def __init__(self, of: Task) -> None:
        if of.kind == "score":
            inner = of.name.removeprefix("gold:")
            way_out = f"; write gold:shuffled:{inner}" if inner != of.name else ""
            raise UsageError(f"{of.name} has no gold answers that could be shuffled{way_out}.")
        super().__init__(of, "shuffled")

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, each with the gold answer of another of them."""
        return tuple(shuffle(items, self.kind))


def shuffle(items: Sequence[Item], kind: Kind) -> list[Item]:
    """The items of a task with their gold answers dealt out anew; their order does not matter to who gets what."""
    groups: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        groups[len(item.choices) if kind == "choose" else 0].append(item)
    dealt: dict[str, Item] = {}
    for group in groups.values():
        group.sort(key=lambda item: item.id)
        dealing = _choices if kind == "choose" else _contrasts if kind == "contrast" else _texts
        dealt.update((item.id, item) for item in dealing(group))
    return [dealt[item.id] for item in items]


def deal(
    items: Sequence[Item], labels: Sequence[LabelT], own: Callable[[Item, LabelT], bool], seed: str = SEED
) -> list[LabelT]:
    """As many labels in a seeded random order in which no item has its `own` label where that can be avoided.

    An item that drew its own label exchanges it with another item for which neither label is its own. Where every item
    owns one label, this leaves no more items with their own than there must be: if an item with its own label L finds
    nobody to exchange with, every item owns L or has drawn it. Then more than half of the items own L.
    """
    rng = random.Random(seed)
    dealt = list(labels)
    rng.shuffle(dealt)
    nobody_takes: set[LabelT] = set()
    for place, item in enumerate(items):
        label = dealt[place]
        if not own(item, label) or label in nobody_takes:
            continue
        start = rng.randrange(place, len(items))  # those before it have labels that are not their own
        for other in chain(range(start, len(items)), range(start)):
            if not own(item, dealt[other]) and not own(items[other], label):
                dealt[place], dealt[other] = dealt[other], label
                break
        else:
            nobody_takes.add(label)
    return dealt


def _texts(items: Sequence[Item]) -> list[Item]:
    labels = [(item.gold, item.aliases, item.solution) for item in items]
    dealt = deal(items, labels, lambda item, label: bool(_rights(item) & {_plain(t) for t in (label[0], *label[1])}))
    return [
        replace(item, gold=gold, aliases=aliases, solution=solution)
        for item, (gold, aliases, solution) in zip(items, dealt, strict=True)
    ]


def _choices(items: Sequence[Item]) -> list[Item]:
    labels = [
        (item.choices.index(item.gold), tuple(item.choices.index(alias) for alias in item.aliases)) for item in items
    ]
    dealt = deal(items, labels, lambda item, label: _plain(item.choices[label[0]]) in _rights(item))
    shuffled = []
    for item, (place, others) in zip(items, dealt, strict=True):
        gold = item.choices[place]
        solution = gold if item.solution == item.gold else item.solution
        aliases = tuple(item.choices[other] for other in others)
        shuffled.append(replace(item, gold=gold, aliases=aliases, solution=solution))
    return shuffled


def _contrasts(items: Sequence[Item]) -> list[Item]:
    dealt = deal(items, [item.gold for item in items], lambda item, gold: _plain(gold) == _plain(item.gold))
    shuffled = []
    for item, gold in zip(items, dealt, strict=True):
        first, *more = [item.gold if _plain(gold) == _plain(text) else text for text in item.choices[1:]]
        shuffled.append(replace(item, gold=gold, choices=(gold, first, *more), solution=gold))
    return shuffled


def _rights(item: Item) -> set[str]:
    return {_plain(text) for text in (item.gold, *item.aliases)}


def _plain(text: str) -> str:
    return text.strip().casefold()
