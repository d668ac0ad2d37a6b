"""Among a relation: a fact asked as a choice of its object among those of the same relation, not among all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lesion.tasks.task import Answer, Item, Task, Verdict
from lesion.tasks.wrapped import WrappedTask


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
