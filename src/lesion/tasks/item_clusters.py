"""What items share: the template, relation or subject by which they are alike, from what a store keeps; and values.

Groups by which an accuracy is broken down are not always such clusters: a number of steps or a level of difficulty is a
property of the item, not a sample of templates. So a task says what the items of one group share (`shared` of a
benchmark), and ioi, whose groups are the orders of names, finds the template in the sentence.

By its value an item counts as one with another when sets of items are kept apart, whatever their ids, seeds and prompts
are. An arithmetic problem counts by its numbers, in any order where that changes no answer: 12 + 34 and 34 + 12 are
one, in every form and behind any solved problems. Any other question counts by its text without regard to case and
white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.tasks.benchmarks import BENCHMARKS
from lesion.tasks.catalogue import source, unwrapped
from lesion.tasks.given import HEAD as GIVEN
from lesion.tasks.question_files import is_question_file
from lesion.tasks.task import Item

if TYPE_CHECKING:
    import pandas as pd


OWN = "group"
"""What items of one group share in a file of somebody's own questions, as far as its name says."""

COPIED = "question"
"""What items share that ask the same."""


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

    `items` have `question`, `gold` and `group`.
    """
    if not {"question", "gold", "group"} <= set(items) or items.empty:
        return None
    what, cluster = _rule(unwrapped(task))
    if not what:
        return None
    texts = [items[column].fillna("").astype(str).to_list() for column in ("question", "gold", "group")]
    clusters = tuple(cluster(*each) for each in zip(*texts, strict=True))
    known = list(filter(None, texts[0]))  # a log may lack the questions
    if what == OWN and not any(clusters) and len(set(known)) < len(known):
        return Shared(COPIED, tuple(texts[0]))
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
        return OWN, _group
    return "", _group


def _group(question: str, gold: str, group: str) -> str:
    return group


_COMMUTE = ("arithmetic:add", "arithmetic:multiply")


def value(task: str, item: Item) -> str:
    """What an item of a task, by the task's name, asks."""
    return list(_stated(source(task), item.question))[-1]


def shown(task: str, item: Item) -> frozenset[str]:
    """What stands in the prompt of an item: the values of itself and of the problems solved before it."""
    kind = source(task)
    texts = (item.question, *(question for question, _ in item.shots))
    return frozenset(stated for text in texts for stated in _stated(kind, text))


def sharing(task: str, items: Iterable[Item], values: Collection[str]) -> set[str]:
    """The ids of the items whose value is one of these."""
    return {item.id for item in items if value(task, item) in values} if values else set()


def _stated(kind: str, text: str) -> Iterator[str]:
    if not kind.startswith("arithmetic:"):
        yield " ".join(text.casefold().split())
        return
    for line in text.splitlines():
        stated = line.partition("=")[0].strip()
        if stated and not stated.startswith("Answer:"):
            numbers = [int(number) for number in re.findall("[0-9]+", stated)]
            numbers = sorted(numbers) if kind in _COMMUTE else numbers
            yield f"{kind} {' '.join(map(str, numbers)) if len(numbers) > 1 else stated.removeprefix('Question: ')}"
