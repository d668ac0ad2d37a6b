"""Reading: a short passage and a question whose answer stands in it. The generative control: copying, no calculation.

Everything is drawn anew for every passage, so nothing but the passage can answer. The task is read in portraits, which
say several things about one person. Training begins with crowds, which say one thing each about several people. A
passage and question that hash into the test split never occur in training.
"""

from __future__ import annotations

import hashlib
import random

from lesion.tasks.primer.lexicon import (
    ADJECTIVES,
    ANIMALS,
    CARRYING,
    COLOURS,
    FIRST_NAMES,
    FOODS,
    JOBS,
    PLACES,
    SINGULAR,
    THINGS,
    TOWNS,
    articles,
    pronoun,
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


def _crowd(rng: random.Random) -> tuple[str, list[tuple[str, str]], int]:
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


# What is said about a person, as the first sentence and as a later one, and how it is asked; each answer is a word of a
# kind that the passage has only one of.
PORTRAIT: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "job": (
        JOBS,
        ("{who} is a {it}.", "{who} works as a {it}."),
        ("What is the job of {name}?", "What work does {name} do?"),
    ),
    "animal": (
        ANIMALS,
        ("{who} keeps a {it}.", "{who} walked with a {it}."),
        ("Which animal is with {name}?", "Which animal is it?"),
    ),
    "food": (
        FOODS,
        ("{who} likes {it}.", "{who} had {it} today."),
        ("Which food does {name} like?", "What did {name} eat?"),
    ),
    "colour": (
        COLOURS,
        ("{who} has a {it} house.", "{who} owns a {it} boat."),
        ("Which colour is it?", "Which colour does {name} like?"),
    ),
    "place": (
        PLACES,
        ("{who} waited in the {it}.", "{who} slept in the {it}."),
        ("Where was {name}?", "In which place was {name}?"),
    ),
    "town": (
        TOWNS,
        ("{who} comes from {it}.", "{who} drove to {it}."),
        ("Which town was it?", "Which town does {name} know?"),
    ),
    "thing": (
        SINGULARS,
        ("{who} found a {it}.", "{who} mended the {it}."),
        ("Which thing did {name} have?", "What did {name} have?"),
    ),
}
ABOUT = ("Who is it about?", "Who was it?")


def _portrait(rng: random.Random) -> tuple[str, list[tuple[str, str]], int]:
    """As `_crowd`, but everything is about one person."""
    count = rng.choice(SENTENCES)
    name = rng.choice(FIRST_NAMES)
    sentences: list[str] = []
    asked = [(rng.choice(ABOUT), name)]
    for kind in rng.sample(sorted(PORTRAIT), count):
        words, statements, questions = PORTRAIT[kind]
        it = rng.choice(words)
        who = name if not sentences or rng.random() < 0.3 else pronoun(name).capitalize()
        sentences.append(rng.choice(statements).format(who=who, it=it))
        asked.append((rng.choice(questions).format(name=name), it))
    rng.shuffle(asked)
    return articles(" ".join(sentences)), asked, count


def _is_test(passage: str, question: str) -> bool:
    return hashlib.sha256(f"{passage} {question}".encode()).digest()[0] * TEST_EVERY < 256


def example(rng: random.Random) -> tuple[str, str, int]:
    """An item of the test split: passage and question, the answer, and the number of sentences in the passage."""
    while True:
        passage, asked, count = _portrait(rng)
        question, answer = asked[0]
        if _is_test(passage, question):
            return f"{passage} {question}", answer, count


def practice(rng: random.Random) -> tuple[str, str, int]:
    """As `example`, of the training split."""
    while True:
        passage, asked, count = _portrait(rng)
        question, answer = asked[0]
        if not _is_test(passage, question):
            return f"{passage} {question}", answer, count


def lesson(rng: random.Random, *, crowd: bool) -> list[tuple[str, str]]:
    """Questions and answers for training, all about one passage; the first question carries the passage."""
    while True:
        passage, asked, _ = _crowd(rng) if crowd else _portrait(rng)
        kept = [(question, answer) for question, answer in asked if not _is_test(passage, question)]
        if kept:
            (first, answer), *others = kept[:MOST_QUESTIONS]
            return [(f"{passage} {first}", answer), *others]
