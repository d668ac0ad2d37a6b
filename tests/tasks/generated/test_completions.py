"""Copying, induction, agreement and greater-than: what is right follows from the prompt as anybody reads it."""

import math
import re
from collections import Counter

import pytest

from lesion.models.load import load
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_contrast
from lesion.tasks.generated.family import words
from lesion.tasks.generated.greater_than import margin
from lesion.tasks.task import Answer

NAMES = ("copying", "induction", "agreement", "greater_than")
PLURALS = {"are": True, "were": True, "have": True, "is": False, "was": False, "has": False}


@pytest.mark.parametrize("name", NAMES)
def test_hundreds_of_items_are_different_and_none_is_for_calibration(name):
    task = find(name)
    items, pool = task.load(), calibration_items(task)
    assert len(items) == len({item.id for item in items}) == len({item.question for item in items}) >= 500
    assert not {item.question for item in items} & {item.question for item in pool}
    assert task.style == "raw"


def test_words_are_all_different_and_one_word_each():
    assert len(set(words())) == len(words()) > 200
    assert all(re.fullmatch("[a-z]+", word) for word in words())


@pytest.mark.parametrize("length", [4, 20, 100])
def test_induction_repeats_a_sequence_and_asks_for_the_next_word_of_it(length):
    for item in find(f"induction?length={length}").load()[:200]:
        said = item.question.split()
        first, second = said[:length], said[length:]
        assert len(set(first)) == length
        assert 1 <= len(second) < length
        assert first[: len(second)] == second
        assert item.gold == first[len(second)]
        right, *rivals, word = item.choices
        assert (right, word) == (item.gold, " a" if right.startswith("the") else " the")
        assert sorted(rivals) == sorted(set(first) - {right})
        assert rivals[0][0] != right[0] or {rival[0] for rival in rivals} == {right[0]}


def test_copying_shows_lists_of_other_words_and_asks_for_its_own():
    task = find("copying?length=3&shots=2")
    for item in task.load()[:200]:
        *solved, last = item.question.split("\n")
        asked = last.removesuffix(" =").split()
        assert item.gold.split() == asked
        assert len(set(asked)) == 3
        for line in solved:
            given, said = line.split(" = ")
            assert given == said
            assert not set(given.split()) & set(asked)
    item = task.load()[0]
    assert task.judge(item, Answer(f" {item.gold.upper()}.")).correct
    assert not task.judge(item, Answer(f"{item.gold} lamp")).correct
    assert task.judge(item, Answer(" ")).parsed is None


@pytest.mark.parametrize("attractors", ["other", "same", "both"])
def test_the_verb_agrees_with_the_first_noun_whatever_stands_between(attractors):
    items = find(f"agreement?attractors={attractors}").load()
    alike = Counter()
    for item in items:
        nouns = re.findall(r"\b(?:The|the) (\w+)", item.question)
        subject, between = nouns[0], nouns[-1]
        plural = [noun.endswith("s") for noun in (subject, between)]
        right, tempting = item.choices
        assert PLURALS[right] == plural[0] != PLURALS[tempting]
        alike[plural[0] == plural[1]] += 1
        if found := re.search(r"\b(likes?|knows?)$", item.question):
            assert found[1].endswith("s") != plural[1]
    assert set(alike) == {"other": {False}, "same": {True}, "both": {True, False}}[attractors]
    right = Counter(item.gold for item in items)
    assert min(right.values()) > len(items) / 12


def test_the_more_probable_verb_decides_on_agreement_not_the_most_probable_word():
    task = find("agreement")
    item = task.load()[0]
    verdict = task.judge(item, Answer("of", scores=(-3.0, -3.5), ranks=(7, 9)))
    assert (verdict.correct, verdict.parsed) == (True, item.choices[0])
    assert not task.judge(item, Answer("of", scores=(-4.0, -3.5), ranks=(9, 7))).correct
    assert task.judge(item, Answer("", finish="nonfinite")).parsed is None


@pytest.mark.parametrize("candidates", [2, 20, 100])
def test_years_to_choose_among_are_of_the_century_and_half_are_later(candidates):
    task = find(f"greater_than?candidates={candidates}")
    assert task.kind == "choose"
    for item in task.load():
        year = int(re.search(r"from the year (\d{4}) to the year$", item.question)[1])
        later = {item.gold, *item.aliases}
        assert {int(choice) // 100 for choice in item.choices} == {year // 100}
        assert all((int(choice) > year) == (choice in later) for choice in item.choices)
        assert str(year) not in item.choices
        assert len(item.choices) == (99 if candidates == 100 else candidates)
        assert candidates == 100 or len(later) == candidates // 2


def test_greater_than_sums_probabilities_of_later_and_earlier_years():
    task = find("greater_than?candidates=4")
    item = task.load()[0]
    probabilities = (0.1, 0.15, 0.2, 0.01)  # two later years, two earlier ones
    answer = Answer(item.choices[2], scores=tuple(map(math.log, probabilities)))
    assert margin(item, answer) == pytest.approx((0.25 - 0.21) / 0.46)
    assert task.judge(item, answer).correct
    assert task.judge(item, answer).parsed == item.choices[2]
    tiny = Answer(item.choices[2], scores=(-2000.0, -2001.0, -1990.0, -2002.0))
    assert not task.judge(item, tiny).correct


@pytest.mark.parametrize("name", ["induction", "agreement"])
def test_right_and_tempting_words_begin_with_different_tokens(name):
    model, task = load("bundled:llama-base"), find(name)
    for item in task.load()[:30]:
        contrasted = encode_contrast(model, task, item)
        assert contrasted.right != contrasted.tempting
