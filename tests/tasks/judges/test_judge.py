"""Judges of text: exact, contains and the rules for trivia."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.judges import judge


def test_exact_asks_for_the_whole_answer():
    assert judge.exact(" Paris\n", "Paris").correct
    assert judge.exact("Paris", "Lyon", aliases=("Paris ",)).correct
    assert not judge.exact("Paris, I think", "Paris").correct
    assert not judge.exact("paris", "Paris").correct


def test_contains_finds_the_answer_anywhere_in_any_case():
    assert judge.contains("I think it is PARIS.", "Paris").correct
    assert judge.substring("party", "art").correct
    assert not judge.contains("London", "Paris", aliases=("Lutetia", "")).correct


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        *[("the party", "art", False), ("Art, of course.", "art", True), ("it was stolen", "stole", False)],
        *[
            ("He stole it", "stole", True),
            ("15 apples", "5", False),
            ("2.5 apples", "5", False),
            ("1,500", "500", False),
        ],
        *[
            ("5 apples", "5", True),
            ("costs $500.", "$500", True),
            ("the end: 500.", "500", True),
            ("C++ it is", "C++", True),
        ],
        *[
            ("首都是北京。", "北京", True),
            ("答えは東京です", "東京", True),
            ("서울입니다", "서울", True),
            ("a_b", "b", True),
        ],
    ],
)
def test_contains_takes_whole_words_and_numbers(text, gold, right):
    assert judge.contains(text, gold).correct is right


@pytest.mark.parametrize("rule", [judge.exact, judge.contains, judge.substring, judge.aliases, judge.math])
def test_an_empty_answer_is_unparseable(rule):
    assert rule("  \n ", "Paris") == judge.UNREAD


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Mark Twain", True), ("It was Mark Twain.", True), ("the MARK-TWAIN", True),
        ("\n\n Mark Twain\nQuestion: who?", True), ("<think>Dickens?</think>\nMark Twain", True),
        ("<answer> Mark Twain </answer> and more", True), ("Samuel Clemens", True), ("Twain", False),
        ("Mark Twains", False), ("Charles Dickens\nMark Twain", False),
    ],
)  # fmt: skip
def test_trivia_answers_are_compared_as_whole_words_of_the_first_line(answer, right):
    assert judge.aliases(answer, "Mark Twain", aliases=("Samuel Clemens",)).correct is right


def test_the_rule_of_exact_match_asks_for_the_whole_line():
    assert judge.aliases("The Beatles!", "beatles", rule="exact").correct
    assert not judge.aliases("It was the Beatles", "beatles", rule="exact").correct


def test_the_rule_of_the_paper_looks_for_the_letters_in_the_whole_answer():
    assert judge.aliases("A party.\nOr not", "art", rule="substring").correct
    assert not judge.aliases("A party", "art").correct


def test_an_answer_of_articles_alone_does_not_match_everything():
    assert judge.normalise("The The") == "the the"
    assert judge.aliases("the the", "The The").correct
    assert not judge.aliases("Queen", "The The", aliases=("...", "")).correct


@given(st.text(max_size=60))
def test_normalising_twice_is_normalising_once(text):
    once = judge.normalise(text)
    # what is left may be articles only, and then stays
    assert judge.normalise(once) == once
    assert not set(once) & set(string.punctuation)
    assert once == " ".join(once.split())


@given(st.lists(st.sampled_from(["the", "red", "art", "party", "of"]), min_size=1, max_size=5))
def test_whole_words_are_found_as_a_naive_search_finds_them(words):
    kept = [word for word in words if word != "the"] or words
    for target in ("red", "art", "party", "red art"):
        wanted = target.split()
        found = any(kept[i : i + len(wanted)] == wanted for i in range(len(kept)))
        assert judge.aliases(" ".join(words), target).correct is found
