"""Reading: a short passage and a question whose answer stands in it. The generative control: copying, no calculation.

Names, things and places are drawn anew for every passage, so nothing but the passage can answer. A passage whose
question and facts hash into the test split never occurs in training.
"""

from __future__ import annotations

import hashlib
import random

from lesion.tasks.primer.lexicon import (
    ADJECTIVES,
    CARRYING,
    COLOURS,
    FIRST_NAMES,
    PLACES,
    SINGULAR,
    THINGS,
    articles,
)

SENTENCES = (1, 2, 3, 4)
TEST_EVERY = 10
# Questions about one passage in training: an answer is one word, and more of them make more of every passage read.
MOST_QUESTIONS = 4
SINGULARS = tuple(SINGULAR[plural] for plural in THINGS)

# (statement, (question, answer)…): each statement can be asked about in several ways.
FORMS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "{who} {did} the {thing} to the {place}.",
        (
            ("Who {did} the {thing}?", "{who}"),
            ("Where is the {thing} now?", "{place}"),
            ("What was {did} by {who}?", "{thing}"),
        ),
    ),
    (
        "The {thing} of {who} is in the {place}.",
        (("Where is the {thing} of {who}?", "{place}"), ("Who has a {thing} in the {place}?", "{who}")),
    ),
    (
        "{who} is waiting in the {place} with a {thing}.",
        (
            ("Where is {who}?", "{place}"),
            ("Who is in the {place}?", "{who}"),
            ("What does {who} have?", "{thing}"),
        ),
    ),
    (
        "{who} has a {colour} {thing}.",
        (
            ("Which colour is the {thing} of {who}?", "{colour}"),
            ("Who has the {thing}?", "{who}"),
            ("What does {who} have?", "{thing}"),
        ),
    ),
    (
        "The {thing} in the {place} is {adjective}.",
        (("Where is the {thing}?", "{place}"), ("What is in the {place}?", "{thing}")),
    ),
)
MOVED = tuple(verb for verb in CARRYING if verb in ("brought", "carried", "dragged", "fetched"))


def _passage(rng: random.Random) -> tuple[str, list[tuple[str, str]], int]:
    """A passage, a question with its answer for every sentence of it in random order, and the number of sentences."""
    count = rng.choice(SENTENCES)
    people = rng.sample(FIRST_NAMES, count)
    things = rng.sample(SINGULARS, count)
    places = rng.sample(PLACES, count)
    colours = rng.sample(COLOURS, count)
    sentences, asked = [], []
    for index in range(count):
        statement, questions = rng.choice(FORMS)
        words = {
            "who": people[index],
            "thing": things[index],
            "place": places[index],
            "colour": colours[index],
            "did": rng.choice(MOVED),
            "adjective": rng.choice(ADJECTIVES),
        }
        sentences.append(statement.format(**words))
        question, answer = rng.choice(questions)
        asked.append((articles(question.format(**words)), answer.format(**words)))
    rng.shuffle(asked)
    return articles(" ".join(sentences)), asked, count


def _is_test(passage: str, question: str) -> bool:
    return hashlib.sha256(f"{passage} {question}".encode()).digest()[0] * TEST_EVERY < 256


def example(rng: random.Random) -> tuple[str, str, int]:
    """An item of the test split: passage and question, the answer, and the number of sentences in the passage."""
    while True:
        passage, asked, count = _passage(rng)
        question, answer = asked[0]
        if _is_test(passage, question):
            return f"{passage} {question}", answer, count


def lesson(rng: random.Random) -> list[tuple[str, str]]:
    """Questions and answers for training, all about one passage; the first question carries the passage."""
    while True:
        passage, asked, _ = _passage(rng)
        kept = [(question, answer) for question, answer in asked if not _is_test(passage, question)]
        if kept:
            (first, answer), *others = kept[:MOST_QUESTIONS]
            return [(f"{passage} {first}", answer), *others]
