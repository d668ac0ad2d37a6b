"""What items share: the template, relation or subject by which items of a task are alike, from what a store keeps.

Groups by which an accuracy is broken down are not always such clusters: a number of steps or a level of difficulty is a
property of the item, not a sample of templates. So a task says what the items of one group share (`shared` of a
benchmark), and ioi, whose groups are the orders of names, finds the template in the sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from lesion.tasks.benchmarks import BENCHMARKS
from lesion.tasks.catalogue import BEFORE
from lesion.tasks.given import HEAD as GIVEN
from lesion.tasks.question_files import is_question_file


@dataclass(frozen=True)
class Shared:
    """What items of a task share.

    Attributes:
        what: the word for it: `template`, `relation`, `subject`.
        clusters: its name for each item, in their order; "" of an item that shares it with none.
    """

    what: str
    clusters: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return len(set(self.clusters) - {""}) + self.clusters.count("")

    @property
    def single(self) -> bool:
        """Whether no two items share anything."""
        return self.count == len(self.clusters)


def shared(task: str, items: pd.DataFrame) -> Shared | None:
    """What the items of a task share; None where its groups are no clusters, or there are none.

    Args:
        task: the name of the task.
        items: `question`, `gold` and `group` of each.
    """
    if not {"question", "gold", "group"} <= set(items) or items.empty:
        return None
    name = task
    while (head := name.partition(":")[0]) in BEFORE:
        name = name.split(":", 2 if head == "fewshot" else 1)[-1]
    what, cluster = _rule(name)
    if not what:
        return None
    texts = (items[column].fillna("").astype(str) for column in ("question", "gold", "group"))
    clusters = tuple(cluster(*each) for each in zip(*texts, strict=True))
    return Shared(what, clusters) if any(clusters) else None


def _rule(name: str) -> tuple[str, Callable[[str, str, str], str]]:
    """The word for what items share, and how a cluster follows from question, gold answer and group."""
    bare = name.partition("?")[0]
    head = bare.partition(":")[0]
    if head in BENCHMARKS:
        return BENCHMARKS[head].shared, BENCHMARKS[head].cluster
    if bare == "primer:atlas":
        return "relation", _group
    if head in ("jsonl", GIVEN) or is_question_file(bare):
        return "group", _group
    return "", _group


def _group(question: str, gold: str, group: str) -> str:
    return group
