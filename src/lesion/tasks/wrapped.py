"""Wrapped tasks: what a task made from another has in common with it; gold answers; choices within a relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from lesion.errors import UsageError
from lesion.reprs import described
from lesion.tasks import running
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
        self.unchatted = getattr(of, "unchatted", "plain")
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


def gold_name(task: str) -> str:
    """`gold:TASK`: what stored answers call the gold answers of a task."""
    return f"gold:{task}"


class Gold(WrappedTask):
    """A task whose answer is the summed log-probability of its gold continuation after its prompt (kind `score`).

    `lesion.tasks.continuations.encode_gold` says what the continuation is. Items keep the ids of the task, so that a
    screen by this score and the task itself are about the same items.
    """

    def __init__(self, of: Task) -> None:
        if of.kind == "score":
            raise UsageError(
                f"{of.name} is scored by its log-probability already and has no gold answers; leave 'gold:' out."
            )
        super().__init__(of, "gold")
        self.kind, self.max_new_tokens, self.stop = "score", 1, ()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the log-probability is finite; nothing else is right or wrong about a score."""
        return running.verdict(item, answer)


class Relation(WrappedTask):
    """Facts whose answer is the likeliest right text of all items of the same group, each as a whole (kind `choose`).

    Items keep their ids; those of a relation with one object are left out.
    """

    def __init__(self, of: Task) -> None:
        super().__init__(of, "relation")
        self.kind, self.max_new_tokens, self.stop = "choose", 1, ()

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items with the objects of their relation as choices, in the order of the alphabet."""
        of_group: dict[str, set[str]] = {}
        for item in items:
            of_group.setdefault(item.group, set()).add(item.gold)
        return [
            replace(item, choices=tuple(sorted(of_group[item.group])))
            for item in items
            if len(of_group[item.group]) > 1
        ]

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right text was chosen."""
        return Verdict(answer.finish != "nonfinite" and answer.text == item.gold, answer.text)


def has_relations(task: Task) -> bool:
    """Whether the groups of a task are relations, whose right texts are of one kind."""
    return task.kind == "contrast" and getattr(task, "shared", "") == "relation"
