"""Copying: random words to say again in the same order."""

from __future__ import annotations

import random
from functools import cache, partial

from lesion.tasks.counterparts import MOST
from lesion.tasks.generated.family import Generated, Settings, TaskFamily, distinct, halves, words
from lesion.tasks.judges import judge
from lesion.tasks.query import Option
from lesion.tasks.source import identify
from lesion.tasks.task import Answer, Item, Verdict

ITEMS = 1000
TOKENS = 4  # of a word under most tokenizers, at most


def problem(length: int, shots: int, rng: random.Random) -> tuple[str, str]:
    """A prompt, solved problems of other words before it, and the words that are to be said again."""
    drawn = rng.sample(words(), length)
    others = [word for word in words() if word not in drawn]
    lists = [" ".join(rng.sample(others, length)) for _ in range(shots)]
    right = " ".join(drawn)
    return "\n".join((*(f"{text} = {text}" for text in lists), f"{right} =")), right


def aligned(length: int, item: Item) -> list[Item]:
    """Other words to copy behind the lists of an item."""
    before = item.question.rpartition("\n")[0]
    solved = set(before.split())
    others = [word for word in words() if word not in solved]
    rng = random.Random(f"aligned {before}")
    lists = dict.fromkeys(" ".join(rng.sample(others, length)) for _ in range(MOST))
    return [
        Item(f"aligned {right}", "\n".join((*filter(None, (before,)), f"{right} =")), right, solution=right)
        for right in lists
    ]


@cache
def _items(length: int, shots: int, pool: bool) -> tuple[Item, ...]:
    made = list(distinct(2 * ITEMS, partial(problem, length, shots), f"copying {length} {shots}"))
    return tuple(
        Item(identify(prompt, index), prompt, right, solution=right)
        for index, (prompt, right) in enumerate(halves(made, ITEMS)[pool])
    )


def verdict(item: Item, answer: Answer) -> Verdict:
    """Whether the first line of the answer is the words, in any case, without what punctuation ends them."""
    said = " ".join(judge.first_line(answer.text).rstrip(".").casefold().split())
    if answer.finish == "nonfinite" or not said:
        return judge.UNREAD
    return Verdict(said == item.gold, said)


def _make(name: str, member: str, settings: Settings) -> Generated:
    length, shots = int(settings["length"]), int(settings["shots"])
    items, align = partial(_items, length, shots), partial(aligned, length)
    return Generated(name, TOKENS * length + TOKENS, items, verdict, stop=("\n",), style="raw", align=align)


FAMILY = TaskFamily(
    "copying",
    {
        "length": Option(6, range(1, 51), "words to copy"),
        "shots": Option(2, range(17), "solved problems before each question, others for each"),
    },
    _make,
)
"""`river coat lamp = river coat lamp` on every solved line, then new words: the format of `arithmetic`."""
