"""A family of generated tasks: names with options, how the items of each are drawn, and the task that they make."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from lesion.errors import UsageError, nearest
from lesion.plain import short
from lesion.reprs import short_repr
from lesion.tasks import query
from lesion.tasks.gold_classes import GoldClasses
from lesion.tasks.query import Option
from lesion.tasks.source import Fields, packaged
from lesion.tasks.task import Answer, Item, Kind, Verdict


@dataclass(frozen=True)
class Generated:
    """A task made of a function that generates its items, and of a judge.

    Args:
        max_new_tokens: see `Task`, as `kind`, `stop` and `style`.
        items: what is asked, or with True what a model is observed on.
        guessing: the accuracy of guessing where nothing is chosen, in 0…1.
        corrupt: the corrupted items of an item (`lesion.tasks.counterparts`).
        align: the items that are aligned with an item (`lesion.tasks.counterparts`).
        gold_classes: of the tokens of right answers, where the task names any.
    """

    name: str
    max_new_tokens: int
    items: Callable[[bool], tuple[Item, ...]] = field(repr=False)
    verdict: Callable[[Item, Answer], Verdict] = field(repr=False)
    kind: Kind = "generate"
    stop: tuple[str, ...] = ()
    style: str = "auto"
    guessing: float = 0.0
    corrupt: Callable[[Item], Iterable[Item]] | None = field(default=None, repr=False)
    align: Callable[[Item], Iterable[Item]] | None = field(default=None, repr=False)
    gold_classes: GoldClasses | None = field(default=None, repr=False)

    __repr__ = short_repr

    def load(self) -> Sequence[Item]:
        """What is asked, the same on every machine."""
        return self.items(False)

    def calibration(self) -> Sequence[Item]:
        """What a model is observed on: other items than those that are asked, where there are enough."""
        return self.items(True)

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right."""
        return self.verdict(item, answer)

    def corruptions(self, item: Item) -> Iterable[Item]:
        """Items whose right answer is another one; none where the task has no rule for them."""
        return () if self.corrupt is None else self.corrupt(item)

    def aligned(self, item: Item) -> Iterable[Item] | None:
        """Items in the form of an item; None where the task has no rule for them."""
        return None if self.align is None else self.align(item)


Settings = Mapping[str, int | str]
DrawnT = TypeVar("DrawnT", bound=Hashable)

LISTED = 20_000
"""Of up to so many problems, all are listed; of more, different ones are drawn."""


@dataclass(frozen=True)
class TaskFamily:
    """Tasks of one kind: `arithmetic:add?digits=2&shots=4` is member add of family arithmetic with two options.

    Attributes:
        title: what its names begin with.
        options: what may stand behind the `?`, in the order of canonical names.
        make: the task of a typed name, a member and the values of all options.
        members: what may follow the colon; none: the title is the whole name.
    """

    title: str
    options: Mapping[str, Option]
    make: Callable[[str, str, Settings], Generated] = field(repr=False)
    members: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tasks without options."""
        return tuple(f"{self.title}:{member}" for member in self.members) or (self.title,)

    def find(self, name: str) -> Generated:
        """The task of a name."""
        return self.make(name, *self._read(name))

    def canonical(self, name: str) -> str:
        """One name for all ways to type it, options that have their default left out; as it is where it is wrong."""
        try:
            member, settings = self._read(name)
        except UsageError:
            return name
        changed = "&".join(f"{key}={value}" for key, value in settings.items() if value != self.options[key].default)
        return ":".join(filter(None, (self.title, member))) + (f"?{changed}" if changed else "")

    def _read(self, name: str) -> tuple[str, Settings]:
        body, mark, settings = name.partition("?")
        if body not in self.names:
            raise UsageError(
                f"There is no task '{short(body)}'{nearest(body, self.names)}; there are {', '.join(self.names)}, with"
                f" {', '.join(f'{key}=' for key in self.options)} behind a '?'."
            )
        if mark and not settings:
            raise UsageError(f"Nothing stands behind the '?' of '{short(name)}'; leave it out, or write an option.")
        return body.removeprefix(self.title).removeprefix(":"), query.read(name, settings, self.options)


@cache
def tables() -> Fields:
    """The tables of `words.toml`."""
    return packaged("generated/words.toml")


def words() -> list[str]:
    """Common words, all different."""
    return list(tables()["words"])


def different(
    count: int,
    total: int,
    everything: Callable[[], Sequence[DrawnT]],
    one: Callable[[random.Random], DrawnT],
    seed: str,
) -> tuple[DrawnT, ...]:
    """Up to `count` different values in a seeded order.

    `everything` lists all, `total` in number, and is called where there are no more than `LISTED`; else `one` draws
    one.
    """
    rng = random.Random(seed)
    if total <= LISTED:
        values = list(everything())
        rng.shuffle(values)
        return tuple(values[:count])
    drawn: dict[DrawnT, None] = {}
    while len(drawn) < min(count, total):
        drawn.setdefault(one(rng))
    return tuple(drawn)


def halves(values: Sequence[DrawnT], fewest: int) -> tuple[Sequence[DrawnT], Sequence[DrawnT]]:
    """What is asked and what is observed: the halves of the values, or all of them twice where a half is too few."""
    if len(values) < 2 * fewest:
        return values, values
    middle = len(values) // 2
    return values[:middle], values[middle:]


def distinct(count: int, made: Callable[[random.Random], DrawnT], seed: str) -> Iterator[DrawnT]:
    """`count` different values that a function makes, each of a seed of its own."""
    seen: set[DrawnT] = set()
    number = 0
    while len(seen) < count:
        value = made(random.Random(f"{seed} {number}"))
        number += 1
        if value not in seen:
            seen.add(value)
            yield value
