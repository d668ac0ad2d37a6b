"""Stories say what their solutions compute, and passages hold the one answer to their question.

The readers here know English words, not the templates that the stories were made from.
"""

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lesion.tasks.catalogue import find
from lesion.tasks.primer import arithmetic, lexicon, reading

TIMES = re.compile(r"times as many|piles of that size")
SHARE = re.compile(r"\bequal|\bevenly")
LESS = re.compile(
    r"\bgives \d|\bloses\b|\bsells\b|\btakes\b.*\baway\b|\bbreak\b|\bthrows\b|\bdrops\b|\bhands\b|\bleaves\b|\bstolen\b"
    r"|\bborrows\b|\buses up\b"
)
MORE = re.compile(
    r"\bbuys\b|\bfinds\b|\bgets\b|\bpicks up\b|\bgives (her|him) \d|\bwins\b|\bmakes \d+ more\b|^Another\b|\bsends\b"
    r"|\breceives\b|\bcollects\b|\bearns\b"
)
ASIDE = re.compile(r"\balso\b|\byesterday\b|\bcosts\b|^\w+ has \d")


def read(story: str) -> tuple[int, list[tuple[str, int]]]:
    """The start and the operations of a story, as a person would read them off its sentences."""
    *sentences, question = re.findall(r"[^.?]+[.?]", story)
    assert question.strip().endswith("?"), story
    first, *rest = (sentence.strip() for sentence in sentences)
    (start,) = re.findall(r"\d+", first)
    operations = []
    for sentence in rest:
        if ASIDE.search(sentence):
            continue
        (number,) = re.findall(r"\d+", sentence)
        kinds = [
            sign for sign, words in (("*", TIMES), ("/", SHARE), ("-", LESS), ("+", MORE)) if words.search(sentence)
        ]
        assert len(kinds) == 1, (sentence, kinds)
        operations.append((kinds[0], int(number)))
    return int(start), operations


def compute(before: int, sign: str, number: int) -> int:
    """The value after a step, by counting where that is easy: no operator of the task's own is reused."""
    if sign == "+":
        return sum((before, number))
    if sign == "-":
        return sum((before, -number))
    if sign == "*":
        return sum(before for _ in range(number))
    (after,) = [share for share in range(1, before + 1) if sum(share for _ in range(number)) == before]
    return after


def check(story: str, solution: str) -> int:
    """Follow the story step by step beside the solution; the number of steps."""
    value, operations = read(story)
    chain, mark, result = solution.partition(" #### ")
    assert mark
    steps = chain.split(" ")
    assert len(steps) == len(operations)
    for step, (sign, number) in zip(steps, operations, strict=True):
        after = compute(value, sign, number)
        assert step == f"{value}{sign}{number}={after}."
        assert 1 <= after <= arithmetic.LARGEST
        value = after
    assert result == str(value)
    return len(steps)


def test_every_test_story_is_solved_by_its_solution():
    steps = []
    for item in find("primer:arithmetic").load():
        count = check(item.question, item.solution)
        assert item.solution.endswith(f"#### {item.gold}")
        assert item.group == ("1 step" if count == 1 else f"{count} steps")
        start, operations = read(item.question)
        assert item.id == f"{start}" + "".join(f"{sign}{number}" for sign, number in operations)
        steps.append(count)
    for count in arithmetic.STEPS:
        assert steps.count(count) > 0.15 * len(steps)


@settings(max_examples=60)
@given(st.integers(0, 2**64), st.booleans())
def test_every_training_story_is_solved_by_its_solution_too(seed, test):
    problem, story, solution = arithmetic.example(random.Random(seed), test=test)
    assert check(story, solution) == len(problem.operations)
    assert solution.endswith(f"#### {problem.result}")


KINDS = {
    "Who": set(lexicon.FIRST_NAMES),
    "Where": set(lexicon.PLACES),
    "What": set(reading.SINGULARS),
    "Which colour": set(lexicon.COLOURS),
}
ENTITIES = set(lexicon.FIRST_NAMES) | set(lexicon.PLACES) | set(reading.SINGULARS)


def check_passage(text: str, gold: str, sentences: int) -> None:
    """The question is about things that stand together in one sentence, and the answer of its kind stands there too."""
    *passage, question = re.findall(r"[^.?]+[.?]", text)
    question = question.strip()
    assert len(passage) == sentences
    (kind,) = [words for start, words in KINDS.items() if question.startswith(f"{start} ")]
    assert gold in kind
    named = set(re.findall(r"\w+", question)) & ENTITIES
    assert named
    assert gold not in named or gold == "orange"  # which an orange is, too
    # In `an orange book` the orange is no thing that a question is about.
    colour = re.compile(rf"\borange (?=(?:{'|'.join(reading.SINGULARS)})\b)")
    (answering,) = [
        set(re.findall(r"\w+", sentence))
        for sentence in passage
        if named <= set(re.findall(r"\w+", colour.sub("", sentence)))
    ]
    assert gold in answering
    # `an orange kite` may hold two words that could be things: the colour is one more reading, no more.
    assert len((answering & kind) - named) <= 1 + ("orange" in answering)


PORTRAIT_KINDS = {
    "Who": set(lexicon.FIRST_NAMES), "What is the job": set(lexicon.JOBS), "What work": set(lexicon.JOBS),
    "Which animal": set(lexicon.ANIMALS), "Which food": set(lexicon.FOODS),
    "What did": set(lexicon.FOODS) | set(reading.SINGULARS), "Which colour": set(lexicon.COLOURS),
    "Where": set(lexicon.PLACES), "In which place": set(lexicon.PLACES), "Which town": set(lexicon.TOWNS),
    "Which thing": set(reading.SINGULARS),
}  # fmt: skip


def check_portrait(text: str, gold: str, sentences: int) -> None:
    """One person, several things of different kinds, and one word of the kind that is asked for: the answer."""
    *passage, question = re.findall(r"[^.?]+[.?]", text)
    assert len(passage) == sentences
    (kind,) = [words for start, words in PORTRAIT_KINDS.items() if question.strip().startswith(f"{start} ")]
    if question.strip().endswith(" eat?"):
        kind = set(lexicon.FOODS)
    elif question.strip().startswith("What did"):
        kind = set(reading.SINGULARS)
    words = set(re.findall(r"\w+", " ".join(passage)))
    assert len(words & set(lexicon.FIRST_NAMES)) == 1
    # An orange house is no orange, and a pie may be eaten or found.
    assert (words & kind) - ({"orange", "pie"} - {gold}) == {gold}


def test_every_test_passage_holds_the_one_answer_to_its_question():
    for item in find("primer:reading").load():
        check_portrait(item.question, item.gold, int(item.group.split()[0]))


@settings(max_examples=60)
@given(st.integers(0, 2**64), st.booleans())
@example(47662, True)
@example(8_342_557_161_889, True)
def test_every_training_passage_holds_the_answers_to_all_its_questions(seed, crowd):
    (first, answer), *others = reading.lesson(random.Random(seed), crowd=crowd)
    passage = re.match(r"(?:[^.?]+[.] )+", first)[0]
    for question, gold in [(first.removeprefix(passage), answer), *others]:
        check = check_passage if crowd else check_portrait
        check(f"{passage}{question}", gold, passage.count("."))


@pytest.mark.parametrize("kind", PORTRAIT_KINDS)
def test_every_kind_of_question_is_asked(kind):
    asked = [item for item in find("primer:reading").load() if re.search(rf"[.] {kind} ", item.question)]
    assert len(asked) >= 40
    assert len({item.gold for item in asked}) >= 10
