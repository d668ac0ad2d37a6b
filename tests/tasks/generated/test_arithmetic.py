"""Generated arithmetic: every prompt, solved problems included, is checked by reading it and calculating anew."""

import operator
import re
from collections import Counter
from itertools import product

import pytest

from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, canonical, draw, find
from lesion.tasks.generated.arithmetic import FEWEST, MEMBERS, Problem, carries, problems
from lesion.tasks.task import Answer

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "plus": operator.add, "minus": operator.sub}
OPERATIONS["times"] = operator.mul
UNITS = dict(zip(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"], range(1, 10), strict=True))
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = dict(
    zip(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], range(20, 100, 10), strict=True)
)
VALUES = {"zero": 0} | UNITS | dict(zip(TEENS, range(10, 20), strict=True)) | TENS


def said(words: str) -> int:
    """The value of a number in words, read from left to right."""
    total = current = 0
    for word in re.split("[ -]", words):
        if word == "thousand":
            total, current = 1000 * current, 0
        elif word == "hundred":
            current *= 100
        else:
            current += VALUES[word]
    return total + current


def solve(text: str) -> int:
    """The answer to one problem as it is written, with no help of the code that wrote it."""
    text = text.removeprefix("Question: ").removesuffix("Answer:").removesuffix("=").strip().removesuffix("?")
    if found := re.fullmatch(r"(?:What is )?(\d+) ([-+*]|plus|minus|times) (\d+)", text):
        return OPERATIONS[found[2]](int(found[1]), int(found[3]))
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if "larger" in text:
        return max(numbers)
    if "first" in text or "second" in text:
        return numbers["second" in text]
    return said(text.removeprefix("What is ").removesuffix(" in digits"))


def apart(question: str) -> tuple[list[tuple[str, str]], str]:
    """The solved problems of a prompt with their answers, and the last problem."""
    if question.startswith("Question:"):
        *solved, last = question.split("\n\n")
        return [tuple(text.split("\nAnswer: ")) for text in solved], last
    *solved, last = question.split("\n")
    return [tuple(text.split(" = ")) for text in solved], last


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    ("digits", "form"), [(1, "equation"), (2, "question"), (3, "equation"), (6, "question"), (2, "equation")]
)
def test_every_answer_is_right_and_solved_problems_give_none_away(member, form, digits):
    task = find(f"arithmetic:{member}?digits={digits}&form={form}&shots=4")
    assert (task.kind, task.style, task.stop) == ("generate", "raw", ("\n",))
    for item in draw(task, 150, 0):
        solved, last = apart(item.question)
        assert len(solved) == 4
        assert solve(last) == int(item.gold)
        for text, answer in solved:
            assert solve(text) == int(answer) != int(item.gold)
        operands = [sorted(re.findall(r"\d+", text)) or text for text in (*(text for text, _ in solved), last)]
        assert len({str(numbers) for numbers in operands}) == 5
        for numbers in operands:
            assert member == "words" or all(len(number) == digits for number in numbers)
        assert len(item.gold) <= MEMBERS[member].longest(digits) < task.max_new_tokens


@pytest.mark.parametrize(("member", "digits"), list(product(MEMBERS, (1, 2, 4))))
def test_items_are_all_different_and_kept_apart_from_calibration_where_there_are_enough(member, digits):
    task = find(f"arithmetic:{member}?digits={digits}")
    items, pool = task.load(), calibration_items(task)
    for each in (items, pool):
        assert len({item.id for item in each}) == len({item.question for item in each}) == len(each)
    together = {item.id for item in items} & {item.id for item in pool}
    assert together == (set() if len(items) >= FEWEST else {item.id for item in items})


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("add?digits=1", 100), ("subtract?digits=1", 55), ("compare?digits=1", 90), ("copy?digits=1", 180),
        ("words?digits=1", 10), ("words", 90), ("words?digits=3", 450), ("multiply", 2000), ("add?digits=6", 2000),
    ],
)  # fmt: skip
def test_there_are_as_many_as_there_are_problems(name, count):
    assert len(find(f"arithmetic:{name}").load()) == count


def test_fewer_shots_are_the_first_of_more_and_each_item_has_its_own():
    few, many = (find(f"arithmetic:add?shots={count}").load() for count in (3, 16))
    for item, other in zip(few[:50], many[:50], strict=True):
        assert item.id == other.id
        assert apart(item.question)[0] == apart(other.question)[0][:3]
    assert len({tuple(apart(item.question)[0]) for item in few[:50]}) == 50
    assert find("arithmetic:add?shots=0").load()[0].question.count("=") == 1


@pytest.mark.parametrize("name", ["add", "add?digits=1", "copy", "words", "compare"])
def test_questions_share_sets_of_solved_problems_that_show_neither_their_numbers_nor_their_answer(name):
    join = "&" if "?" in name else "?"
    items = find(f"arithmetic:{name}{join}sets=3").load()[:90]
    alone = find(f"arithmetic:{name}").load()[:90]
    solved = {item.id: apart(item.question)[0] for item in items}
    assert [(item.id, item.gold, apart(item.question)[1]) for item in items] == [
        (item.id, item.gold, apart(item.question)[1]) for item in alone
    ]
    shared = Counter(map(tuple, solved.values())).most_common(6 if name == "copy" else 3)
    assert sum(count for _, count in shared) >= 0.9 * len(items)
    assert min(count for _, count in shared) >= 5
    for item in items:
        shots = solved[item.id]
        assert len(shots) == len(set(shots)) == 4
        assert item.gold not in [answer for _, answer in shots]


def test_groups_say_what_is_carried_and_borrowed():
    assert [carries(*pair) for pair in ((12, 34), (19, 1), (99, 1), (999, 999))] == [0, 1, 2, 3]
    for item in find("arithmetic:subtract").load()[:200]:
        first, second = map(int, item.id.split("-"))
        assert item.group == ("borrow" if first % 10 < second % 10 else "no borrow")


@pytest.mark.parametrize(
    ("typed", "canonical_name"),
    [
        ("arithmetic:add?shots=4&digits=2", "arithmetic:add"),
        ("arithmetic:add?form=question&digits=3", "arithmetic:add?digits=3&form=question"),
        ("shuffled:arithmetic:add?digits=2", "shuffled:arithmetic:add"),
    ],
)
def test_one_task_typed_in_several_ways_is_one(typed, canonical_name):
    assert canonical(typed) == canonical_name
    assert find(typed).name == typed
    assert find(typed).load() == find(canonical_name).load()


@pytest.mark.parametrize(
    ("text", "finish", "parsed", "correct"),
    [
        (" 46", "stop", "46", True), ("46.", "stop", "46", True), (" 46, 12 + 35 = 47", "stop", "46", True),
        ("12 + 34 = 46", "stop", "46", True), ("12 plus 34 is 46.", "stop", "46", True),
        ("The sum of 12 and 34 is 46.", "stop", "46", True), ("46 apples", "stop", "46", True),
        ("\n 46\n99", "stop", "46", True), (" 1,046", "stop", "1046", False), ("460", "stop", "460", False),
        ("-46", "stop", "-46", False), ("46.5", "stop", None, False), ("forty-six", "stop", None, False),
        ("", "stop", None, False), ("46", "length", None, False), ("46 and then", "length", "46", True),
        ("46", "nonfinite", None, False), ("9" * 5000, "stop", None, False),
    ],
)  # fmt: skip
def test_the_whole_number_of_the_first_line_is_read(text, finish, parsed, correct):
    task = find("arithmetic:add")
    item = next(item for item in task.load() if item.gold == "46")
    verdict = task.judge(item, Answer(text, finish=finish))
    assert (verdict.parsed, verdict.correct) == (parsed, correct)


def test_more_solved_problems_than_there_are_is_refused():
    with pytest.raises(UsageError, match=r"only 9 other problems .* write shots=9 or fewer"):
        find("arithmetic:words?digits=1&shots=10")


@pytest.mark.parametrize("member", MEMBERS)
def test_what_the_first_problem_of_one_digit_can_have_solved_before_it_every_other_can_too(member):
    kind, most = MEMBERS[member], 16

    def others(problem: Problem) -> int:
        """How many problems do not show the answer, counted over all."""
        pairs = {
            tuple(sorted(other.numbers))
            for other in problems(member, 1)
            if other.second == problem.second and kind.right(other) != kind.right(problem)
        }
        return len(pairs - {tuple(sorted(problem.numbers))})

    counts = [min(most, others(problem)) for problem in problems(member, 1)]
    assert set(counts) == {counts[0]}
    assert counts[0] == (9 if member == "words" else most)
