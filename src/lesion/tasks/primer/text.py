"""Running text: small scenes in many words, for the model to have a language, and to measure perplexity on."""

from __future__ import annotations

import random

from lesion.tasks.primer import lexicon
from lesion.tasks.primer.atlas import statements

LISTED = (
    lexicon.FIRST_NAMES,
    lexicon.THINGS,
    tuple(lexicon.SINGULAR.values()),
    lexicon.PLACES,
    lexicon.COLOURS,
    lexicon.ADJECTIVES,
    lexicon.ANIMALS,
    lexicon.JOBS,
    lexicon.FAMILY_NAMES,
    lexicon.TOWNS,
)


def scene(rng: random.Random, sentences: int) -> str:
    """A few sentences about one person."""
    name = rng.choice(lexicon.FIRST_NAMES)
    she = lexicon.pronoun(name)
    story = []
    for _ in range(sentences):
        food, food2, food3 = rng.sample(lexicon.FOODS, 3)
        adjective, adjective2 = rng.sample(lexicon.ADJECTIVES, 2)
        plural = rng.choice(lexicon.THINGS)
        story.append(
            rng.choice(lexicon.WORDINGS["text"]["sentences"]).format(
                Name=name,
                she=she,
                She=she.capitalize(),
                adjective=adjective,
                adjective2=adjective2,
                animal=rng.choice(lexicon.ANIMALS),
                moved=rng.choice(lexicon.MOVING),
                adverb=rng.choice(lexicon.ADVERBS),
                preposition=rng.choice(lexicon.PREPOSITIONS),
                place=rng.choice(lexicon.PLACES),
                carried=rng.choice(lexicon.CARRYING),
                colour=rng.choice(lexicon.COLOURS),
                thing=lexicon.SINGULAR[rng.choice(lexicon.THINGS)],
                things=plural,
                job=rng.choice(lexicon.JOBS),
                food=food,
                food2=food2,
                food3=food3,
            )
        )
    return lexicon.articles(" ".join(story))


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
