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

SENTENCES = (1, 2, 3, 4, 5)
TEST_EVERY = 10
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


def _passage(rng: random.Random) -> tuple[str, str, str, int]:
    count = rng.choice(SENTENCES)
    people = rng.sample(FIRST_NAMES, count)
    things = rng.sample(SINGULARS, count)
    places = rng.sample(PLACES, count)
    colours = rng.sample(COLOURS, count)
    asked = rng.randrange(count)
    sentences, question, answer = [], "", ""
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
        if index == asked:
            form, gold = rng.choice(questions)
            question, answer = form.format(**words), gold.format(**words)
    return articles(" ".join(sentences)), articles(question), answer, count


def example(rng: random.Random, *, test: bool) -> tuple[str, str, int]:
    """The passage followed by its question, the answer, and the number of sentences in the passage."""
    while True:
        passage, question, answer, count = _passage(rng)
        text = f"{passage} {question}"
        if (hashlib.sha256(text.encode()).digest()[0] * TEST_EVERY < 256) == test:
            return text, answer, count
