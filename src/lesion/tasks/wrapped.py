"""Wrapped tasks: what a task made from another has in common with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from lesion.reprs import described
from lesion.tasks.gold_classes import GoldClasses
from lesion.tasks.task import Answer, Item, Kind, Task, Verdict


class WrappedTask:
    """A task made from another, which it is like unless it says otherwise.

    Args:
        of: the other task.
        head: what stands before its name.
    """

    def __init__(self, of: Task, head: str) -> None:
        self.of = of
        self.name = f"{head}:{of.name}"
        self.kind: Kind = of.kind
        self.max_new_tokens = of.max_new_tokens
        self.stop = of.stop
        self.style = of.style
        self.subject: str = getattr(of, "subject", "")
        self.judged_by: str = getattr(of, "judged_by", "")
        self.gold_classes: GoldClasses | None = getattr(of, "gold_classes", None)

    def __repr__(self) -> str:
        return described(self, repr(self.name))

    def load(self) -> Sequence[Item]:
        """The items of the task, changed."""
        return self._items

    def calibration(self) -> Sequence[Item]:
        """The calibration items of the task, changed."""
        return self._pool

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, by the rule of the task."""
        return self.of.judge(item, answer)

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """What is made of items of the task."""
        return items

    @cached_property
    def _items(self) -> Sequence[Item]:
        return self.changed(self.of.load())

    @cached_property
    def _pool(self) -> Sequence[Item]:
        return self.changed(calibration_items(self.of))


def calibration_items(task: Task) -> Sequence[Item]:
    """The items of a task that a model is observed on, which are not those that are asked where there are others.

    From the hub, another split: `train` of gsm8k, triviaqa, nq_open and race, `validation` and `dev` of mmlu,
    `validation` of wikitext. The primer's arithmetic, reading and text are generated anew, of the training split, and
    so is ioi. Of math500 (one split), the atlas and the facts (one world) and local files there is nothing else: these
    are the items that are asked; name another file for calibration to keep them apart.
    """
    items: Sequence[Item] = getattr(task, "calibration", task.load)()
    return items
