"""Items are one by what they ask: numbers in any order, questions in any spelling, also where they stand solved."""

import re

import pytest

from lesion.tasks.catalogue import find
from lesion.tasks.item_clusters import sharing, shown, value
from lesion.tasks.task import Item


@pytest.mark.parametrize("name", ["arithmetic:add", "arithmetic:multiply"])
@pytest.mark.parametrize("form", ["equation", "question"])
def test_a_problem_and_its_twin_are_one_in_every_form_and_nothing_else_is(name, form):
    values: dict[str, set[frozenset[str]]] = {}
    for shots in (0, 2):
        task = f"{name}?digits=1&shots={shots}&form={form}"
        for item in find(task).load():
            values.setdefault(value(task, item), set()).add(frozenset(re.split("[+*]", item.id)))
    assert all(len(numbers) == 1 for numbers in values.values())
    assert len(values) == 55  # of two digits in any order


def test_the_order_of_a_difference_counts():
    task = "arithmetic:compare?digits=1"
    items = {item.id: item for item in find(task).load()}
    assert value(task, items["3|8"]) != value(task, items["8|3"])


def test_a_prompt_shows_its_own_problem_and_every_solved_one():
    task = "arithmetic:add?digits=2&shots=3"
    item = find(task).load()[0]
    lines = item.question.splitlines()
    expected = {
        f"arithmetic:add {' '.join(map(str, sorted(map(int, re.findall('[0-9]+', line)[:2]))))}" for line in lines
    }
    assert shown(task, item) == expected
    assert len(expected) == 4


def test_questions_in_other_spelling_are_one_and_solved_ones_count():
    first, second = Item("a", "What  is\nThis?", "x"), Item("b", "what is this?", "y")
    third = Item("c", "another", "z", shots=((second.question, "y"),))
    assert value("q.jsonl", first) == value("q.jsonl", second)
    assert sharing("q.jsonl", [first, second, third], {value("q.jsonl", first)}) == {"a", "b"}
    assert value("q.jsonl", first) in shown("q.jsonl", third)
