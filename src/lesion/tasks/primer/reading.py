"""Reading: a short passage and a question whose answer stands in it. The generative control: copying, no calculation.

Everything is drawn anew for every passage, so nothing but the passage can answer. The task is read in portraits, which
say several things about one person. Training begins with crowds, which say one thing each about several people. A
passage and question that hash into the test split never occur in training.
"""

from __future__ import annotations

import hashlib
import random

from lesion.tasks.primer import lexicon

SENTENCES = (1, 2, 3, 4)
TEST_EVERY = 10
# Questions about one passage in training: an answer is one word, and more of them make more of every passage read.
MOST_QUESTIONS = 4
SINGULARS = tuple(lexicon.SINGULAR[plural] for plural in lexicon.THINGS)

MOVED = tuple(verb for verb in lexicon.CARRYING if verb in ("brought", "carried", "dragged", "fetched"))


def _crowd(rng: random.Random) -> tuple[str, list[tuple[str, str]], int]:
    """A passage, a question with its answer for every sentence of it in random order, and the number of sentences."""
    count = rng.choice(SENTENCES)
    people = rng.sample(lexicon.FIRST_NAMES, count)
    things = rng.sample(SINGULARS, count)
    places = rng.sample(lexicon.PLACES, count)
    colours = rng.sample(lexicon.COLOURS, count)
    sentences, questions = [], []
    for index in range(count):
        form = rng.choice(lexicon.WORDINGS["crowd"])
        words = {
            "who": people[index],
            "thing": things[index],
            "place": places[index],
            "colour": colours[index],
            "did": rng.choice(MOVED),
            "adjective": rng.choice(lexicon.ADJECTIVES),
        }
        sentences.append(form["statement"].format(**words))
        question, answer = rng.choice(form["questions"])
        questions.append((lexicon.articles(question.format(**words)), answer.format(**words)))
    rng.shuffle(questions)
    return lexicon.articles(" ".join(sentences)), questions, count


# What is said about a person, and how it is asked; each answer is a word of a kind that the passage has only one of.
KINDS = {
    "job": lexicon.JOBS,
    "animal": lexicon.ANIMALS,
    "food": lexicon.FOODS,
    "colour": lexicon.COLOURS,
    "place": lexicon.PLACES,
    "town": lexicon.TOWNS,
    "thing": SINGULARS,
}
ABOUT = ("Who is it about?", "Who was it?")


def _portrait(rng: random.Random) -> tuple[str, list[tuple[str, str]], int]:
    """As `_crowd`, but everything is about one person."""
    count = rng.choice(SENTENCES)
    name = rng.choice(lexicon.FIRST_NAMES)
    sentences: list[str] = []
    questions = [(rng.choice(ABOUT), name)]
    for kind in rng.sample(sorted(KINDS), count):
        wordings = lexicon.WORDINGS["portrait"][kind]
        it = rng.choice(KINDS[kind])
        who = name if not sentences or rng.random() < 0.3 else lexicon.pronoun(name).capitalize()
        sentences.append(rng.choice(wordings["statements"]).format(who=who, it=it))
        questions.append((rng.choice(wordings["questions"]).format(name=name), it))
    rng.shuffle(questions)
    return lexicon.articles(" ".join(sentences)), questions, count


def _is_test(passage: str, question: str) -> bool:
    return hashlib.sha256(f"{passage} {question}".encode()).digest()[0] * TEST_EVERY < 256


def example(rng: random.Random, *, test: bool = True) -> tuple[str, str, int]:
    """An item of the split asked for: passage and question, the answer, and the number of sentences in the passage."""
    while True:
        passage, questions, count = _portrait(rng)
        question, answer = questions[0]
        if _is_test(passage, question) == test:
            return f"{passage} {question}", answer, count


def lesson(rng: random.Random, *, crowd: bool) -> list[tuple[str, str]]:
    """Questions and answers for training, all about one passage; the first question carries the passage."""
    while True:
        passage, questions, _ = _crowd(rng) if crowd else _portrait(rng)
        kept = [(question, answer) for question, answer in questions if not _is_test(passage, question)]
        if kept:
            (first, answer), *others = kept[:MOST_QUESTIONS]
            return [(f"{passage} {first}", answer), *others]
