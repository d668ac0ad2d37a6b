"""Agreement of a subject with its verb, another noun between them (Linzen et al. 2016; Marvin and Linzen 2018)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial
from itertools import product

from lesion.tasks.counterparts import corrupted
from lesion.tasks.generated.family import Generated, Settings, TaskFamily, halves, tables
from lesion.tasks.judges import judge
from lesion.tasks.query import Option
from lesion.tasks.source import identify
from lesion.tasks.task import Answer, Item, Verdict

BOTH = "both"
ATTRACTORS = ("other", "same", BOTH)
ITEMS = 2000
NUMBERS = ("singular", "plural")
LIKES = ("likes", "like")
KNOWS = ("knows", "know")


@cache
def sentences(attractors: str) -> tuple[tuple[str, str, str, str], ...]:
    """Prompt, right verb, tempting verb and group of different beginnings of sentences, in a seeded order.

    Args:
        attractors: whether the noun between has the `other` number than the subject, the `same`, or `both` by halves.
    """
    words = tables()["agreement"]
    rng = random.Random(f"agreement {attractors}")
    every = []
    for structure, templates in words["templates"].items():
        for template in templates:
            subjects, others = ("things", "places") if "{thing}" in template else ("subjects", "others")
            for subject, other, plural, alike in product(words[subjects], words[others], (0, 1), (0, 1)):
                if attractors != BOTH and alike != (attractors == "same"):
                    continue
                between = plural if alike else 1 - plural
                noun, attractor, verb = subject[plural], other[between], rng.choice(words["verbs"])
                prompt = template.format(
                    subject=noun,
                    thing=noun,
                    other=attractor,
                    place=attractor,
                    likes=LIKES[between],
                    knows=KNOWS[between],
                )
                group = f"{structure}, {NUMBERS[plural]}, {'same' if alike else 'other'} number between"
                every.append((prompt, verb[plural], verb[1 - plural], group))
    rng.shuffle(every)
    return tuple(every[:ITEMS])


@cache
def _items(attractors: str, pool: bool) -> tuple[Item, ...]:
    half = halves(sentences(attractors), 1)[pool]
    return tuple(
        Item(identify(prompt, 0)[2:], prompt, right, choices=(right, tempting), solution=right, group=group)
        for prompt, right, tempting, group in half
    )


def corruptions(item: Item) -> Iterator[Item]:
    """The sentence with its subject, the first noun, in the other number."""
    table = tables()["agreement"]
    other = {noun: pair[1 - at] for pair in (*table["subjects"], *table["things"]) for at, noun in enumerate(pair)}
    the, noun, *rest = item.question.split(" ")
    yield corrupted(item, f"{item.id} corrupted", " ".join((the, other[noun], *rest)), item.choices[1])


def verdict(item: Item, answer: Answer) -> Verdict:
    """Whether the right verb is more probable than the tempting one, the measure of Linzen et al. (2016)."""
    if answer.finish == "nonfinite" or len(answer.scores) < 2:
        return judge.UNREAD
    right = answer.scores[0] > answer.scores[1]
    return Verdict(right, item.choices[0 if right else 1])


def _make(name: str, member: str, settings: Settings) -> Generated:
    items = partial(_items, str(settings["attractors"]))
    return Generated(name, 1, items, verdict, kind="contrast", style="raw", guessing=0.5, corrupt=corruptions)


FAMILY = TaskFamily(
    "agreement",
    {
        "attractors": Option(
            "other", ATTRACTORS, "number of the noun between subject and verb: `other` than the subject's"
        )
    },
    _make,
)
"""`The keys near the cabinet` goes on with `are`, not `is`. Chance is 50 %."""
