"""Induction: random words repeated in the same order (Elhage et al. 2021; Olsson et al. 2022)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial

from lesion.tasks import contrast
from lesion.tasks.corruption import corrupted, shuffled
from lesion.tasks.generated.family import Family, Settings, distinct, halves
from lesion.tasks.generated.task import Generated
from lesion.tasks.generated.words import words
from lesion.tasks.query import Option
from lesion.tasks.source import identify
from lesion.tasks.task import Item

ITEMS = 1000


def item(length: int, rng: random.Random) -> tuple[str, str, str, str]:
    """Prompt, right word, tempting word and group of one sequence."""
    sequence = rng.sample(words(), length)
    place = rng.randrange(1, length)  # of the right word: at least one word of the second round stands before it
    right = sequence[place]
    tempting = rng.choice([word for word in sequence if word[0] != right[0]] or [contrast.TEMPTING])
    third = ("early", "middle", "late")[3 * (place - 1) // (length - 1)]
    return " ".join((*sequence, *sequence[:place])), right, tempting, third


def corruptions(item: Item) -> Iterator[Item]:
    """The sequence with another word in the place of the right one."""
    sequence = item.question.split(" ")
    place = sequence.index(item.gold)
    for word in shuffled(words(), item):
        if word not in sequence:
            prompt = " ".join((*sequence[:place], word, *sequence[place + 1 :]))
            yield corrupted(item, f"{item.id} {word}", prompt, word)


@cache
def _items(length: int, pool: bool) -> tuple[Item, ...]:
    made = list(distinct(2 * ITEMS, partial(item, length), f"induction {length}"))
    return tuple(
        contrast.item(identify(prompt, index), prompt, right, tempting, group)
        for index, (prompt, right, tempting, group) in enumerate(halves(made, ITEMS)[pool])
    )


def _make(name: str, member: str, settings: Settings) -> Generated:
    items = partial(_items, int(settings["length"]))
    return Generated(name, 1, items, contrast.verdict, kind="contrast", style="raw", corrupt=corruptions)


FAMILY = Family("induction", {"length": Option(20, range(4, 101), "words before they are repeated")}, _make)
"""Random words, and the same again up to one whose next is asked for: right is the word that followed it before.

Another word of the sequence tempts. Right is an answer whose most probable token is the first of the right word.
"""
