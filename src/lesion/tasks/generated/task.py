"""A task whose items are generated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lesion.reprs import short_repr
from lesion.tasks.gold_classes import GoldClasses
from lesion.tasks.task import Answer, Item, Kind, Verdict


@dataclass(frozen=True)
class Generated:
    """A task made of a function that generates its items, and of a judge.

    Args:
        name: as typed.
        max_new_tokens: see `Task`, as `kind`, `stop` and `style`.
        items: what is asked, or with True what a model is observed on.
        verdict: the judge.
        guessing: the accuracy of guessing where nothing is chosen, in 0…1.
        corrupt: the corrupted items of an item (`lesion.tasks.corruption`).
        align: the items that are aligned with an item (`lesion.tasks.aligned`).
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
