"""Closed-book facts about an invented world: where its people live, what they do and which animal they keep.

The facts are drawn once, from their own fixed seed: they are the world. The model reads every fact in training, in
statements and in most question wordings; the test split asks each fact in a wording it was never asked in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from lesion.tasks.primer.lexicon import ANIMALS, FAMILY_NAMES, FIRST_NAMES, JOBS, TOWNS, WORDINGS, articles

PEOPLE = 120
WORLD_SEED = "atlas of the primer, first edition"

VALUES = {"town": TOWNS, "job": JOBS, "animal": ANIMALS}
QUESTIONS: dict[str, list[str]] = {relation: words["questions"] for relation, words in WORDINGS["atlas"].items()}
STATEMENTS: dict[str, list[str]] = {relation: words["statements"] for relation, words in WORDINGS["atlas"].items()}


@dataclass(frozen=True)
class Fact:
    """One thing that is so in the world: the relation of a person to a value. `index` counts all facts."""

    index: int
    who: str
    relation: str
    value: str

    def question(self, wording: int) -> str:
        """The question in one of the wordings of its relation."""
        return QUESTIONS[self.relation][wording].format(who=self.who)

    @property
    def test_wording(self) -> int:
        """The wording kept for the test split."""
        return self.index % len(QUESTIONS[self.relation])


@cache
def facts() -> tuple[Fact, ...]:
    """Every fact of the world, three for each of its people."""
    rng = random.Random(WORLD_SEED)
    everyone = [f"{first} {family}" for first in FIRST_NAMES for family in FAMILY_NAMES]
    world: list[Fact] = []
    for who in rng.sample(everyone, PEOPLE):
        for relation, values in VALUES.items():
            world.append(Fact(len(world), who, relation, rng.choice(values)))
    return tuple(world)


def question(rng: random.Random, *, test: bool) -> tuple[Fact, str]:
    """A fact and a question for it in a wording of the split asked for."""
    fact = rng.choice(facts())
    wordings = len(QUESTIONS[fact.relation])
    wording = fact.test_wording if test else rng.choice([w for w in range(wordings) if w != fact.test_wording])
    return fact, fact.question(wording)


def statements(rng: random.Random) -> str:
    """All facts about one person as running text."""
    start = 3 * rng.randrange(PEOPLE)
    chosen = list(facts()[start : start + 3])
    rng.shuffle(chosen)
    return articles(" ".join(rng.choice(STATEMENTS[f.relation]).format(who=f.who, value=f.value) for f in chosen))
