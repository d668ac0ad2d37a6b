"""Training questions of the children: the primer's training splits, drawn anew; a function of a seed and an index.

None is of a test split: no arithmetic problem of the test, no passage with its question, no wording of an atlas
question that the test asks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from lesion.errors import UsageError
from lesion.tasks.catalogue import find
from lesion.tasks.primer import arithmetic, atlas, reading
from lesion.tasks.task import Item, Task


def question(skill: str, seed: int, index: int) -> Item:
    """Training question `index` of a skill, from another stream than the documents of the base.

    Its solution is what should be said: the gold chain of thought, or the one word.
    """
    rng = random.Random(f"primer child {skill} {seed} {index}")
    name = f"{skill}-{seed}-{index}"
    if skill == "arithmetic":
        problem, story, solution = arithmetic.example(rng, test=False)
        return Item(name, story, str(problem.result), solution=solution, group=f"{len(problem.operations)}")
    if skill == "atlas":
        fact, text = atlas.question(rng, test=False)
        return Item(name, text, fact.value, solution=fact.value, group=fact.relation)
    text, answer, sentences = reading.example(rng, test=False)
    return Item(name, text, answer, solution=answer, group=f"{sentences}")


def questions(skill: str, seed: int, count: int) -> list[Item]:
    """The first `count` training questions of a skill."""
    return [question(skill, seed, index) for index in range(count)]


def mixture(shares: Mapping[str, float], seed: int, count: int) -> list[tuple[Task, Item]]:
    """`count` questions, each with its task, their skills drawn by `shares` and the seed."""
    if not shares or min(shares.values()) < 0 or not sum(shares.values()):
        raise UsageError(f"A mixture needs shares of skills that are not negative, not {dict(shares)}.")
    rng = random.Random(f"primer mixture {seed}")
    tasks = {skill: find(f"primer:{skill}") for skill in shares}
    drawn = rng.choices(tuple(shares), tuple(shares.values()), k=count)
    return [(tasks[skill], question(skill, seed, index)) for index, skill in enumerate(drawn)]
