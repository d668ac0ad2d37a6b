"""Shuffled gold answers: the same answers, dealt out so that as few items as can be keep their own."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Answer, Item, Task
from lesion.tasks.wrapped import Shuffled, deal, shuffle

golds = st.lists(st.sampled_from("abcde"), min_size=1, max_size=25)


def items(golds, choices=()) -> list[Item]:
    return [Item(str(number), f"q{number}", gold, choices=tuple(choices)) for number, gold in enumerate(golds)]


@given(golds)
def test_answers_are_dealt_out_anew_and_no_more_items_than_must_keep_their_own(golds):
    shuffled = shuffle(items(golds), "generate")
    assert Counter(item.gold for item in shuffled) == Counter(golds)
    assert [(item.id, item.question) for item in shuffled] == [(item.id, item.question) for item in items(golds)]
    # With m items of the most frequent answer, n - m others can take it: 2m - n keep it at the least.
    kept = sum(item.gold == gold for item, gold in zip(shuffled, golds, strict=True))
    assert kept == max(0, 2 * max(Counter(golds).values()) - len(golds))


@given(golds, st.randoms())
def test_who_gets_what_does_not_depend_on_the_order_of_the_file(golds, random):
    there = items(golds)
    moved = random.sample(there, len(there))
    by_id = {item.id: item for item in shuffle(there, "generate")}
    assert {item.id: item for item in shuffle(moved, "generate")} == by_id


def test_the_deal_is_random_and_no_rotation():
    dealt = [deal(items("ab" * 300), "ab" * 300, lambda item, gold: False, seed=str(seed)) for seed in range(3)]
    assert dealt[0] != dealt[1] != dealt[2]
    right = [gold == own for gold, own in zip(dealt[0], "ab" * 300, strict=True)]
    assert 240 < sum(right) < 360  # 300 by chance, standard deviation 12


def test_aliases_and_solutions_move_with_their_answer():
    there = [Item(str(n), f"q{n}", f"gold {n}", (f"alias {n}",), solution=f"because {n}") for n in range(20)]
    for item in shuffle(there, "generate"):
        number = item.gold.removeprefix("gold ")
        assert (item.aliases, item.solution) == ((f"alias {number}",), f"because {number}")
        assert number != item.id


def test_an_alias_of_another_item_counts_as_its_own_answer():
    there = [
        Item("0", "q", "Mark Twain", ("Samuel Clemens",)),
        Item("1", "q", "Samuel Clemens"),
        Item("2", "q", "x"),
        Item("3", "q", "y"),
    ]
    found = {item.id: item.gold for item in shuffle(there, "generate")}
    assert {found["0"], found["1"]} == {"x", "y"}


def test_of_choices_that_are_texts_the_place_of_the_right_one_moves_among_items_with_as_many():
    there = [
        Item(f"{count}.{n}", "q", f"{n} choice {n % count}", choices=tuple(f"{n} choice {c}" for c in range(count)))
        for count in (2, 4)
        for n in range(20)
    ]
    shuffled = shuffle(there, "choose")
    for before, after in zip(there, shuffled, strict=True):
        assert after.choices == before.choices
        assert after.gold in after.choices
        assert after.gold != before.gold
    for count in (2, 4):
        places = [item.choices.index(item.gold) for item in shuffled if len(item.choices) == count]
        assert Counter(places) == dict.fromkeys(range(count), 20 // count)


contrasts = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcdxy")).filter(lambda p: p[0] != p[1]))


@given(contrasts)
def test_of_contrasts_right_and_tempting_never_become_the_same(pairs):
    there = [Item(str(n), f"q{n}", right, choices=(right, other)) for n, (right, other) in enumerate(pairs)]
    shuffled = shuffle(there, "contrast")
    assert Counter(item.gold for item in shuffled) == Counter(right for right, _ in pairs)
    for before, after in zip(there, shuffled, strict=True):
        assert after.choices[0] == after.gold != after.choices[1]
        assert after.choices[1] in (before.choices[1], before.gold)


def test_a_shuffled_task_is_the_task_in_all_but_its_answers(shared):
    inner = find(f"mmlu:{shared}/data/mmlu/marketing_test.csv")
    task = Shuffled(inner)
    assert isinstance(task, Task)
    assert task.name == f"shuffled:{inner.name}"
    assert (task.kind, task.style, task.subject, task.stop) == (inner.kind, inner.style, inner.subject, inner.stop)
    assert task.load() == Shuffled(inner).load()
    for before, after in zip(inner.load(), task.load(), strict=True):
        assert replace(after, gold=before.gold, solution=before.solution) == before
        assert task.judge(after, Answer(after.gold)).correct
        assert not task.judge(after, Answer(before.gold)).correct


def test_calibration_items_are_shuffled_among_themselves():
    task = find("shuffled:primer:reading")
    pool = calibration_items(find("primer:reading"))
    shuffled = calibration_items(task)
    assert [item.id for item in shuffled] == [item.id for item in pool]
    assert Counter(item.gold for item in shuffled) == Counter(item.gold for item in pool)
    assert not any(a.gold == b.gold for a, b in zip(shuffled, pool, strict=True))


def test_a_task_without_answers_cannot_be_shuffled():
    with pytest.raises(UsageError, match="primer:text has no gold answers"):
        Shuffled(find("primer:text"))
    with pytest.raises(UsageError, match="write gold:shuffled:primer:atlas"):
        Shuffled(find("gold:primer:atlas"))
