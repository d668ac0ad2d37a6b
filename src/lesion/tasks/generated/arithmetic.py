"""Sums, differences, products and comparisons of whole numbers by digits, and controls that need no calculation."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice

from lesion.errors import UsageError
from lesion.tasks.counterparts import MOST
from lesion.tasks.generated.family import Generated, Settings, TaskFamily, different, halves
from lesion.tasks.gold_classes import COPIED, NUMERAL, RESULT, whole
from lesion.tasks.judges import judge
from lesion.tasks.judges.notation import WORDS
from lesion.tasks.query import Option
from lesion.tasks.task import TRUNCATED, Answer, Item, Verdict

PROBLEMS = 4000
"""At most so many problems of one number of digits: half are asked, half are for calibration."""
FEWEST = 250
"""At least so many are asked where a half is for calibration; of fewer problems all are asked and all calibrate."""
MARGIN = 4  # tokens besides the digits: a space, a line break, a sign
SENTENCE = 16  # tokens more where no solved problem shows the form of an answer
_ONES, _TENS = (WORDS["numerals"][kind] for kind in ("ones", "tens"))
# Digits of any script would pass \d; a number of more digits than any answer is none.
_INTEGER = r"[-−]?\s?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,30})(?![0-9]|[.,][0-9])"
_NUMBER = re.compile(rf"(?<![0-9.,]){_INTEGER}")
# The question said again before the answer: "12 + 34 =", "12 plus 34 is".
_AGAIN = re.compile(r"[0-9]+\s*(?:[-−+*×x]|plus|minus|times)\s*[0-9]+\s*(?:=|is|equals)\s*")


@dataclass(frozen=True)
class Problem:
    """Two numbers, or one for `words`; `second` says of `copy` whether the second is asked for."""

    numbers: tuple[int, ...]
    second: bool = False

    @property
    def key(self) -> tuple[int, ...]:
        """The same for problems of the same numbers in any order: none of them shows the answer to another."""
        return tuple(sorted(self.numbers))


@dataclass(frozen=True)
class Member:
    """One kind of problem.

    Attributes:
        equation: what an equation states before its `=`, with `{0}`, `{1}` and `{which}`.
        question: what a question asks, with the same.
        possible: whether two numbers (or one) make a problem.
        group: by what its accuracy is broken down.
        longest: digits of the longest answer to problems of so many digits.
        sign: between the numbers in ids.
        single: whether there is one number only.
        answer: the class of the tokens of its answers.
    """

    equation: str
    question: str
    right: Callable[[Problem], int]
    longest: Callable[[int], int]
    sign: str
    group: Callable[[Problem], str] = lambda problem: ""
    possible: Callable[[Problem], bool] = lambda problem: True
    single: bool = False
    answer: str = RESULT

    def write(self, problem: Problem, form: str) -> str:
        """A problem without its answer."""
        numbers = [spelled(number) if self.single else str(number) for number in problem.numbers]
        which = "second" if problem.second else "first"
        if form == "equation":
            return f"{self.equation.format(*numbers, which=which)} ="
        return f"Question: {self.question.format(*numbers, which=which)}\nAnswer:"

    def identify(self, problem: Problem) -> str:
        """An id: `12+34`."""
        return self.sign.join(map(str, problem.numbers)) + (
            f":{2 if problem.second else 1}" if self.sign == "," else ""
        )


def carries(first: int, second: int) -> int:
    """How many columns carry when two numbers are added by hand."""
    count = carry = 0
    while first or second:
        carry = int(first % 10 + second % 10 + carry >= 10)
        count += carry
        first, second = first // 10, second // 10
    return count


def _borrowed(problem: Problem) -> str:
    first, second = problem.numbers
    return "borrow" if carries(first - second, second) else "no borrow"


MEMBERS: Mapping[str, Member] = {
    "add": Member(
        "{0} + {1}",
        "What is {0} plus {1}?",
        lambda problem: sum(problem.numbers),
        lambda digits: digits + 1,
        "+",
        group=lambda problem: "carry" if carries(*problem.numbers) else "no carry",
    ),
    "subtract": Member(
        "{0} - {1}",
        "What is {0} minus {1}?",
        lambda problem: problem.numbers[0] - problem.numbers[1],
        lambda digits: digits,
        "-",
        group=_borrowed,
        possible=lambda problem: problem.numbers[0] >= problem.numbers[1],
    ),
    "multiply": Member(
        "{0} * {1}",
        "What is {0} times {1}?",
        lambda problem: problem.numbers[0] * problem.numbers[1],
        lambda digits: 2 * digits,
        "*",
    ),
    "compare": Member(
        "larger of {0} and {1}",
        "Which number is larger, {0} or {1}?",
        lambda problem: max(problem.numbers),
        lambda digits: digits,
        "|",
        group=lambda problem: f"{'first' if problem.numbers[0] > problem.numbers[1] else 'second'} is larger",
        possible=lambda problem: problem.numbers[0] != problem.numbers[1],
        answer=COPIED,
    ),
    "copy": Member(
        "{which} of {0} and {1}",
        "Which number is the {which}, {0} or {1}?",
        lambda problem: problem.numbers[problem.second],
        lambda digits: digits,
        ",",
        group=lambda problem: "second" if problem.second else "first",
        possible=lambda problem: problem.numbers[0] != problem.numbers[1],
        answer=COPIED,
    ),
    "words": Member(
        "{0}",
        "What is {0} in digits?",
        lambda problem: problem.numbers[0],
        lambda digits: digits,
        "",
        single=True,
        answer=NUMERAL,
    ),
}
"""`copy` has the format and the answers of `compare`, `words` reads a number; neither needs a calculation."""


@cache
def problems(member: str, digits: int) -> tuple[Problem, ...]:
    """Different problems of numbers with so many digits, in a seeded order: all there are, or `PROBLEMS`."""
    kind = MEMBERS[member]
    low, high = (0, 9) if digits == 1 else (10 ** (digits - 1), 10**digits - 1)
    numbers = range(low, high + 1)
    seconds = (False, True) if member == "copy" else (False,)

    def everything() -> Sequence[Problem]:
        pairs = ((first,) for first in numbers) if kind.single else ((a, b) for a in numbers for b in numbers)
        every = (Problem(pair, second) for pair in pairs for second in seconds)
        return [problem for problem in every if kind.possible(problem)]

    def one(rng: random.Random) -> Problem:
        while True:
            drawn = tuple(rng.randint(low, high) for _ in range(1 if kind.single else 2))
            problem = Problem(drawn, rng.choice(seconds))
            if kind.possible(problem):
                return problem

    total = len(numbers) if kind.single else len(numbers) ** 2 * len(seconds)
    return different(PROBLEMS, total, everything, one, f"arithmetic:{member} {digits}")


def shots(member: str, digits: int, problem: Problem, count: int) -> list[Problem]:
    """Problems to stand solved before a problem: a function of the problem, fewer being the first of more.

    No two have the same numbers, and none those of the problem, in any order, or its answer. Those of `copy` ask for
    the same place, which they so show.
    """
    kind = MEMBERS[member]
    others = problems(member, digits)
    rng = random.Random(f"shots before arithmetic:{member} {kind.identify(problem)}")
    taken: list[Problem] = []
    keys, right = {problem.key}, kind.right(problem)
    for place in rng.sample(range(len(others)), min(len(others), 200)):  # more than any shots need
        if len(taken) == count:
            break
        other = others[place]
        if other.key not in keys and other.second == problem.second and kind.right(other) != right:
            keys.add(other.key)
            taken.append(other)
    if len(taken) < count:
        raise UsageError(
            f"There are only {len(taken)} other problems to solve before one of arithmetic:{member} with digits="
            f"{digits}, not {count}; write shots={len(taken)} or fewer, or more digits."
        )
    return taken


@cache
def _shot_set(member: str, digits: int, second: bool, number: int, count: int) -> tuple[Problem, ...]:
    """The solved problems of a set: a problem drawn by the number of the set, and shots that go with it."""
    pool = [problem for problem in problems(member, digits) if problem.second == second]
    first = random.Random(f"set {number} of arithmetic:{member}").choice(pool)
    return (first, *shots(member, digits, first, count - 1))


def shared_shots(member: str, digits: int, problem: Problem, count: int, sets: int) -> Sequence[Problem]:
    """The solved problems of one of so many sets, which questions share (0: its own); fewer are the first of more.

    A problem has the next set where one shows its numbers or its answer, and its own `shots` where all do.
    """
    if not (sets and count):
        return shots(member, digits, problem, count)
    kind = MEMBERS[member]
    start = random.Random(f"set of arithmetic:{member} {kind.identify(problem)}").randrange(sets)
    for number in range(sets):
        solved = _shot_set(member, digits, problem.second, (start + number) % sets, count)
        if all(shot.key != problem.key and kind.right(shot) != kind.right(problem) for shot in solved):
            return solved
    return shots(member, digits, problem, count)


def item(member: str, digits: int, count: int, form: str, problem: Problem, sets: int = 0) -> Item:
    """The item of a problem, its solved problems before it: its own, or those of one of so many sets."""
    return _written(member, form, problem, shared_shots(member, digits, problem, count, sets))


def _written(member: str, form: str, problem: Problem, taken: Sequence[Problem]) -> Item:
    kind = MEMBERS[member]
    solved = [f"{kind.write(shot, form)} {kind.right(shot)}" for shot in taken]
    between = "\n" if form == "equation" else "\n\n"
    question = between.join((*solved, kind.write(problem, form)))
    right = str(kind.right(problem))
    return Item(kind.identify(problem), question, right, solution=right, group=kind.group(problem))


def aligned(member: str, digits: int, count: int, form: str, sets: int, item: Item) -> Sequence[Item]:
    """Problems behind the solved problems of an item, none of which shows their numbers or their answer."""
    problem = _by_id(member, digits)[item.id]
    taken = tuple(shared_shots(member, digits, problem, count, sets))
    return _behind(member, digits, form, taken, problem.second)


@cache
def _by_id(member: str, digits: int) -> dict[str, Problem]:
    return {MEMBERS[member].identify(problem): problem for problem in problems(member, digits)}


@cache
def _behind(member: str, digits: int, form: str, taken: tuple[Problem, ...], second: bool) -> tuple[Item, ...]:
    kind = MEMBERS[member]
    shown = {shot.key for shot in taken}, {kind.right(shot) for shot in taken}
    asked, observed = halves(problems(member, digits), FEWEST)
    every = observed if observed is asked else (*observed, *asked)
    others = (
        problem
        for problem in every
        if problem.second == second and problem.key not in shown[0] and kind.right(problem) not in shown[1]
    )
    return tuple(_written(member, form, problem, taken) for problem in islice(others, MOST))


def spelled(number: int) -> str:
    """A number from 0 to 999,999 in American English: `three hundred forty-six`."""
    if number >= 1000:
        rest = f" {spelled(number % 1000)}" if number % 1000 else ""
        return f"{spelled(number // 1000)} thousand{rest}"
    if number >= 100:
        rest = f" {spelled(number % 100)}" if number % 100 else ""
        return f"{_ONES[number // 100]} hundred{rest}"
    if number >= 20:
        return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    return _ONES[number]


def integer(text: str, *, complete: bool = True) -> int | None:
    """The whole number that an answer gives: the one its first line begins with, else the last one there.

    Commas between thousands are read; "4.6" is no whole number. A question that is said again is passed over.

    Of an answer that did not end itself (`complete`), a number at its very end may be cut off and is not read.
    """
    body = text.lstrip()
    line = body.split("\n", 1)[0]
    if again := _AGAIN.match(line):
        line = line[again.end() :]
    numbers = list(_NUMBER.finditer(line))
    if not numbers:
        return None
    chosen = numbers[0] if not line[: numbers[0].start()].strip() else numbers[-1]
    if not complete and "\n" not in body and chosen.end() == len(line):
        return None
    return int(re.sub(r"[,\s]", "", chosen[0]).replace("−", "-"))


def verdict(item: Item, answer: Answer) -> Verdict:
    """Whether the whole number that the answer gives is the right one."""
    if answer.finish == "nonfinite":
        return judge.UNREAD
    number = integer(answer.text, complete=answer.finish not in TRUNCATED)
    return judge.UNREAD if number is None else Verdict(number == int(item.gold), str(number))


@cache
def _items(member: str, digits: int, count: int, form: str, sets: int, pool: bool) -> tuple[Item, ...]:
    return tuple(
        item(member, digits, count, form, problem, sets) for problem in halves(problems(member, digits), FEWEST)[pool]
    )


def _make(name: str, member: str, settings: Settings) -> Generated:
    digits, count, form = int(settings["digits"]), int(settings["shots"]), str(settings["form"])
    sets = int(settings["sets"])
    shots(member, digits, problems(member, digits)[0], count)  # refused before any work
    kind = MEMBERS[member]
    length = kind.longest(digits) + MARGIN + (0 if count else SENTENCE)
    items = partial(_items, member, digits, count, form, sets)
    align = partial(aligned, member, digits, count, form, sets)
    return Generated(
        name, length, items, verdict, stop=("\n",), style="raw", align=align, gold_classes=whole(kind.answer)
    )


FAMILY = TaskFamily(
    "arithmetic",
    {
        "digits": Option(2, range(1, 7), "digits of each number"),
        "shots": Option(4, range(17), "solved problems before each question"),
        "sets": Option(
            0, range(65), "how many sets of solved problems the questions share, computed once; 0: others for each"
        ),
        "form": Option("equation", ("equation", "question"), "`12 + 34 =`, or `Question: What is 12 plus 34?`"),
    },
    _make,
    tuple(MEMBERS),
)
