"""Arithmetic stories of one to four steps, solved by a written chain of thought that ends in `#### 42`.

A problem is its numbers: the start and the operations. The split is a hash of these, so a problem of the test split
never occurs in training, in whatever words.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from lesion.tasks.primer.lexicon import FIRST_NAMES, THINGS, WORDINGS, pronoun

STEPS = (1, 2, 3, 4)
LARGEST = 299
LARGEST_FACTOR = 5
# One problem in TEST_EVERY belongs to the test split.
TEST_EVERY = 10
_WORDINGS = WORDINGS["arithmetic"]


@dataclass(frozen=True)
class Problem:
    """A start and operations such as `("+", 7)`; every value on the way lies in 1 … `LARGEST`."""

    start: int
    operations: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return str(self.start) + "".join(f"{sign}{number}" for sign, number in self.operations)

    @property
    def steps(self) -> list[tuple[int, str, int, int]]:
        """One (before, sign, number, after) per operation."""
        chain, value = [], self.start
        for sign, number in self.operations:
            after = {"+": value + number, "-": value - number, "*": value * number, "/": value // number}[sign]
            chain.append((value, sign, number, after))
            value = after
        return chain

    @property
    def result(self) -> int:
        """The number the story asks for."""
        return self.steps[-1][3]

    @property
    def is_test(self) -> bool:
        """Whether the problem belongs to the test split."""
        return hashlib.sha256(str(self).encode()).digest()[0] * TEST_EVERY < 256


def problem(rng: random.Random, steps: int) -> Problem:
    """A problem with the given number of steps, of either split."""
    value = start = rng.randint(2, 99)
    operations: list[tuple[str, int]] = []
    for _ in range(steps):
        sign = rng.choice("++--*/")
        numbers: Sequence[int] = range(2, min(99, LARGEST - value) + 1)
        if sign == "*":
            numbers = [k for k in range(2, LARGEST_FACTOR + 1) if value * k <= LARGEST]
        elif sign == "/":
            numbers = [k for k in range(2, LARGEST_FACTOR + 1) if value % k == 0 and value > k]
        elif sign == "-":
            numbers = range(1, min(99, value - 1) + 1)
        if not numbers:
            sign, numbers = ("+", range(2, 10)) if value < LARGEST // 2 else ("-", range(2, 100))
        number = rng.choice(numbers)
        operations.append((sign, number))
        value = Problem(value, ((sign, number),)).result
    return Problem(start, tuple(operations))


def story(rng: random.Random, task: Problem) -> str:
    """The problem told as a story that ends in a question."""
    name, friend = rng.sample(FIRST_NAMES, 2)
    things, others = rng.sample(THINGS, 2)
    she = pronoun(name)
    words = {
        "Name": name,
        "friend": friend,
        "things": things,
        "others": others,
        "she": she,
        "She": she.capitalize(),
        "her": "her" if she == "she" else "him",
    }

    def say(kind: str, number: int) -> str:
        then = rng.choice(("Then", "Later", "Next"))
        return str(rng.choice(_WORDINGS[kind])).format(n=number, Then=then, **words)

    sentences = [say("start", task.start)]
    sentences += [say(sign, number) for sign, number in task.operations]
    if rng.random() < 0.25:
        sentences.insert(rng.randint(1, len(sentences)), say("distraction", rng.randint(2, 99)))
    return " ".join([*sentences, say("ask", 0)])


def solution(task: Problem) -> str:
    """The chain of thought: `14+7=21. 21-5=16. #### 16`."""
    steps = " ".join(f"{before}{sign}{number}={after}." for before, sign, number, after in task.steps)
    return f"{steps} #### {task.result}"


def example(rng: random.Random, *, test: bool) -> tuple[Problem, str, str]:
    """A problem of the split asked for, its story and its solution."""
    steps = rng.choice(STEPS)
    while True:
        drawn = problem(rng, steps)
        if drawn.is_test == test:
            return drawn, story(rng, drawn), solution(drawn)
