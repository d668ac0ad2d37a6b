"""Arithmetic stories of one to four steps, solved by a written chain of thought that ends in `#### 42`.

A problem is its numbers: the start and the operations. The split is a hash of these, so a problem of the test split
never occurs in training, in whatever words.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from lesion.tasks.primer.lexicon import FIRST_NAMES, THINGS, pronoun

STEPS = (1, 2, 3, 4)
LARGEST = 299
LARGEST_FACTOR = 5
# One problem in TEST_EVERY belongs to the test split.
TEST_EVERY = 10

ADD = (
    "{She} buys {n} more.",
    "{She} finds {n} more {things}.",
    "{She} gets {n} {things} from {friend}.",
    "{Then} {she} picks up {n} more.",
    "{friend} gives {her} {n} {things}.",
    "{She} wins {n} {things} at the market.",
    "{Then} {she} makes {n} more {things}.",
    "Another {n} {things} come from {friend}.",
    "{friend} sends {n} more {things}.",
    "{Then} {she} receives {n} {things}.",
    "{She} collects {n} {things} near the harbour.",
    "After that {she} earns {n} more.",
)
SUBTRACT = (
    "{She} gives {n} {things} to {friend}.",
    "{She} loses {n} of them.",
    "{Then} {she} sells {n} {things}.",
    "{friend} takes {n} of them away.",
    "{Then} {n} {things} break.",
    "{She} throws {n} {things} away.",
    "{She} drops {n} of them into the river.",
    "{She} hands {n} {things} over to {friend}.",
    "{Then} {she} leaves {n} {things} in the school.",
    "{n} of the {things} are stolen.",
    "{friend} borrows {n} {things}.",
    "After that {she} uses up {n} of them.",
)
MULTIPLY = (
    "{Then} {she} makes it {n} times as many.",
    "{friend} brings enough to have {n} times as many.",
    "{Then} the number of {things} grows to {n} times as many.",
    "By magic there are now {n} times as many {things}.",
    "{She} trades them for {n} times as many {things}.",
    "{Then} {she} lays {n} piles of that size together.",
)
DIVIDE = (
    "{She} shares them equally among {n} boxes and keeps one box.",
    "{She} puts them into {n} equal bags and keeps only one bag.",
    "{Then} {she} splits them into {n} equal parts and takes one part.",
    "{She} deals them out evenly to {n} people, and {she} is one of them.",
)
START = (
    "{Name} has {n} {things}.",
    "{Name} owns {n} {things}.",
    "There are {n} {things} on the table of {Name}.",
    "{Name} starts the day with {n} {things}.",
    "In the morning {Name} had {n} {things}.",
    "{Name} brought {n} {things} from home.",
)
ASK = (
    "How many {things} does {Name} have now?",
    "How many {things} are there in the end?",
    "How many {things} does {she} have in the end?",
    "What number of {things} is left with {Name}?",
    "How many {things} is that now?",
    "In the end, how many {things} does {Name} own?",
)
DISTRACTION = (
    "{friend} has {n} {others}.",
    "There are also {n} {others} in the shop.",
    "{friend} saw {n} {others} yesterday.",
    "A box of {others} costs {n} coins.",
)
WORDINGS = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE}


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
        if sign == "*":
            choices = [k for k in range(2, LARGEST_FACTOR + 1) if value * k <= LARGEST]
        elif sign == "/":
            choices = [k for k in range(2, LARGEST_FACTOR + 1) if value % k == 0 and value > k]
        elif sign == "+":
            choices = range(2, min(99, LARGEST - value) + 1)  # type: ignore[assignment]
        else:
            choices = range(1, min(99, value - 1) + 1)  # type: ignore[assignment]
        if not choices:
            sign, choices = ("+", range(2, 10)) if value < LARGEST // 2 else ("-", range(2, 100))  # type: ignore[assignment]
        number = rng.choice(choices)
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

    def say(wordings: tuple[str, ...], number: int) -> str:
        then = rng.choice(("Then", "Later", "Next"))
        return rng.choice(wordings).format(n=number, Then=then, **words)

    sentences = [say(START, task.start)]
    sentences += [say(WORDINGS[sign], number) for sign, number in task.operations]
    if rng.random() < 0.25:
        sentences.insert(rng.randint(1, len(sentences)), say(DISTRACTION, rng.randint(2, 99)))
    return " ".join([*sentences, say(ASK, 0)])


def solution(task: Problem) -> str:
    """The chain of thought: `14+7=21. 21-5=16. #### 16`."""
    steps = " ".join(f"{before}{sign}{number}={after}." for before, sign, number, after in task.steps)
    return f"{steps} #### {task.result}"


def example(rng: random.Random, *, test: bool) -> tuple[Problem, str, str]:
    """A problem of the split asked for, its story and its solution."""
    steps = rng.choice(STEPS)
    while True:
        found = problem(rng, steps)
        if found.is_test == test:
            return found, story(rng, found), solution(found)
