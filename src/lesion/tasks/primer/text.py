"""Running text: small lines in many words, for the model to have a language, and to measure perplexity on."""

from __future__ import annotations

import random

from lesion.tasks.primer.atlas import statements
from lesion.tasks.primer.lexicon import (
    ADJECTIVES,
    ADVERBS,
    ANIMALS,
    CARRYING,
    COLOURS,
    FAMILY_NAMES,
    FIRST_NAMES,
    FOODS,
    JOBS,
    MOVING,
    PLACES,
    PREPOSITIONS,
    SINGULAR,
    THINGS,
    TOWNS,
    WORDINGS,
    articles,
    pronoun,
)

LISTED = (
    FIRST_NAMES, THINGS, tuple(SINGULAR.values()), PLACES, COLOURS, ADJECTIVES, ANIMALS, JOBS, FAMILY_NAMES, TOWNS,
)  # fmt: skip


def scene(rng: random.Random, sentences: int) -> str:
    """A few sentences about one person."""
    name = rng.choice(FIRST_NAMES)
    she = pronoun(name)
    lines = []
    for _ in range(sentences):
        food, food2, food3 = rng.sample(FOODS, 3)
        adjective, adjective2 = rng.sample(ADJECTIVES, 2)
        plural = rng.choice(THINGS)
        lines.append(
            rng.choice(WORDINGS["text"]["sentences"]).format(
                Name=name,
                she=she,
                She=she.capitalize(),
                adjective=adjective,
                adjective2=adjective2,
                animal=rng.choice(ANIMALS),
                moved=rng.choice(MOVING),
                adverb=rng.choice(ADVERBS),
                preposition=rng.choice(PREPOSITIONS),
                place=rng.choice(PLACES),
                carried=rng.choice(CARRYING),
                colour=rng.choice(COLOURS),
                thing=SINGULAR[rng.choice(THINGS)],
                things=plural,
                job=rng.choice(JOBS),
                food=food,
                food2=food2,
                food3=food3,
            )
        )
    return articles(" ".join(lines))


def running(rng: random.Random) -> str:
    """A document: the facts about somebody of the atlas, or a scene."""
    return statements(rng) if rng.random() < 0.5 else scene(rng, rng.randint(2, 4))


def listing(rng: random.Random) -> str:
    """A list of words to be said twice: nothing but copying can tell the second half.

    Copying is what reading needs first, and nothing teaches it to a small model as quickly: each word of the second
    half is a lesson, where an answer to a passage is a single one.
    """
    return " ".join(rng.choice(rng.choice(LISTED)) for _ in range(rng.randint(3, 16)))


def echo(rng: random.Random) -> str:
    """A scene or a list of words to be said twice."""
    return scene(rng, rng.randint(1, 2)) if rng.random() < 0.5 else listing(rng)
