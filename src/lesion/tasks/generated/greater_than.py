"""Greater-than: a span of years ends later than it begins (Hanna et al. 2023)."""

from __future__ import annotations

import math
import random
from functools import cache, partial

from lesion.tasks.counterparts import MOST
from lesion.tasks.generated.family import Generated, Settings, TaskFamily, distinct, halves, tables
from lesion.tasks.judges import judge
from lesion.tasks.query import Option
from lesion.tasks.source import identify
from lesion.tasks.task import Answer, Item, Verdict

ITEMS = 500
CENTURIES = range(11, 18)
FIRST, LAST = 10, 89  # of a century: as many years before the first as behind the last
NOUNS = tables()["greater_than"]["nouns"]
VERBS = ("lasted", "went on", "continued", "extended")


def problem(rng: random.Random) -> tuple[str, int]:
    """A prompt, and the year that it names."""
    year = 100 * rng.choice(CENTURIES) + rng.randint(FIRST, LAST)
    return f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} from the year {year} to the year", year


def item(prompt: str, year: int, candidates: int, index: int) -> Item:
    """The item of a prompt; its choices are later and earlier years of the century, the later ones first."""
    century = year - year % 100
    later, earlier = list(range(year + 1, century + 100)), list(range(century, year))
    if candidates < 100:
        rng = random.Random(f"greater than {prompt}")
        count = min(max(1, candidates // 2), len(later), len(earlier))
        later, earlier = sorted(rng.sample(later, count)), sorted(rng.sample(earlier, count))
    first, *others = map(str, later)
    return Item(
        identify(prompt, index),
        prompt,
        first,
        aliases=tuple(others),
        choices=(first, *others, *map(str, earlier)),
        solution=first,
        group=f"from {year % 100 // 10}0",
    )


@cache
def _with_verb(verb: str, candidates: int) -> tuple[Item, ...]:
    every = [
        (f"The {noun} {verb} from the year {century * 100 + year} to the year", century * 100 + year)
        for noun in NOUNS
        for century in CENTURIES
        for year in range(FIRST, LAST + 1)
    ]
    drawn = random.Random(f"aligned greater than {verb}").sample(every, MOST)
    return tuple(item(prompt, year, candidates, index) for index, (prompt, year) in enumerate(drawn))


def aligned(candidates: int, item: Item) -> tuple[Item, ...]:
    """Other nouns and years with the verb of an item."""
    return _with_verb(next(verb for verb in VERBS if f" {verb} " in item.question), candidates)


@cache
def _items(candidates: int, pool: bool) -> tuple[Item, ...]:
    made = list(distinct(2 * ITEMS, problem, "greater than"))
    return tuple(
        item(prompt, year, candidates, index) for index, (prompt, year) in enumerate(halves(made, ITEMS)[pool])
    )


def margin(item: Item, answer: Answer) -> float:
    """Probability of the later years minus that of the earlier ones, as a share of that of all choices, −1 … 1."""
    later = {item.gold, *item.aliases}
    most = max(answer.scores)  # probabilities as multiples of the largest one, which no float is too small for
    weights = [math.exp(score - most) for score in answer.scores]
    right = sum(weight for choice, weight in zip(item.choices, weights, strict=True) if choice in later)
    return 2 * right / sum(weights) - 1


def verdict(item: Item, answer: Answer) -> Verdict:
    """Whether the later years are more probable together than the earlier ones; read is the most probable year."""
    if answer.finish == "nonfinite" or not answer.scores:
        return judge.UNREAD
    return Verdict(margin(item, answer) > 0, answer.text)


def _make(name: str, member: str, settings: Settings) -> Generated:
    items = partial(_items, int(settings["candidates"]))
    align = partial(aligned, int(settings["candidates"]))
    return Generated(name, 1, items, verdict, kind="choose", style="raw", align=align)


FAMILY = TaskFamily(
    "greater_than",
    {"candidates": Option(20, range(2, 101), "years to choose among, half of them later; 100: all of the century")},
    _make,
)
"""`The war lasted from the year 1732 to the year` goes on with a year above 1732.

The measure of Hanna et al. (2023) is the probability of later endings of the century minus that of earlier ones, which
has to be positive. They ask for two digits, which are a token of GPT-2; here whole years are scored, so that it
does not matter how a tokenizer splits them. Chance is 50 %.
"""
