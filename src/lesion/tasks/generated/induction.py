"""Induction: random words repeated in the same order (Elhage et al. 2021; Olsson et al. 2022)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial

from lesion.tasks import contrast
from lesion.tasks.counterparts import MOST, corrupted, shuffled
from lesion.tasks.generated.family import Generated, Settings, TaskFamily, distinct, halves, words
from lesion.tasks.query import Option
from lesion.tasks.source import identify
from lesion.tasks.task import Item

ITEMS = 1000


def item(length: int, rng: random.Random) -> tuple[str, str, tuple[str, ...], str]:
    """Prompt, right word, its rivals and group of one sequence. The first rival begins with another letter."""
    sequence = rng.sample(words(), length)
    place = rng.randrange(1, length)  # of the right word: at least one word of the second round stands before it
    right = sequence[place]
    first = rng.choice(
        [word for word in sequence if word[0] != right[0]] or [word for word in sequence if word != right]
    )
    third = ("early", "middle", "late")[3 * (place - 1) // (length - 1)]
    rivals = (first, *(word for word in sequence if word not in (first, right)))
    return " ".join((*sequence, *sequence[:place])), right, rivals, third


def corruptions(item: Item) -> Iterator[Item]:
    """The sequence with another word in the place of the right one."""
    sequence = item.question.split(" ")
    place = sequence.index(item.gold)
    for word in shuffled(words(), item):
        if word not in sequence:
            prompt = " ".join((*sequence[:place], word, *sequence[place + 1 :]))
            yield corrupted(item, f"{item.id} {word}", prompt, word)


@cache
def _of_length(length: int, place: int) -> tuple[Item, ...]:
    made = []
    for number in range(MOST):
        sequence = random.Random(f"aligned induction {length} {place} {number}").sample(words(), length)
        prompt, right = " ".join((*sequence, *sequence[:place])), sequence[place]
        made.append(contrast.item(f"{length} {place} {number}", prompt, right, *sequence[:place]))
    return tuple(made)


def aligned(length: int, item: Item) -> tuple[Item, ...]:
    """Sequences of other words, of which as many are said again."""
    return _of_length(length, len(item.question.split(" ")) - length)


@cache
def _items(length: int, pool: bool) -> tuple[Item, ...]:
    made = list(distinct(2 * ITEMS, partial(item, length), f"induction {length}"))
    return tuple(
        contrast.item(identify(prompt, index), prompt, right, *rivals, group=group)
        for index, (prompt, right, rivals, group) in enumerate(halves(made, ITEMS)[pool])
    )


def _make(name: str, member: str, settings: Settings) -> Generated:
    items = partial(_items, int(settings["length"]))
    align = partial(aligned, int(settings["length"]))
    return Generated(name, 1, items, contrast.verdict, kind="contrast", style="raw", corrupt=corruptions, align=align)


FAMILY = TaskFamily("induction", {"length": Option(20, range(4, 101), "words before they are repeated")}, _make)
"""Random words, and the same again up to one whose next is asked for: right is the word that followed it before.

Rivals are the other words of the sequence. Right is an answer whose most probable token is the first of the right word.
"""
