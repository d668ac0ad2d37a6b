"""The words of the primer's world, by part of speech: every word type the generated tasks can say."""

from __future__ import annotations

import re

from lesion.tasks.source import packaged

WORDINGS = packaged("primer/wordings.toml")
"""The sentences of each task."""
_WORDS: dict[str, tuple[str, ...]] = {
    kind: tuple(words.split()) for kind, words in packaged("primer/lexicon.toml").items()
}
SHE, HE = _WORDS["she"], _WORDS["he"]
FIRST_NAMES = SHE + HE
FAMILY_NAMES = _WORDS["family_names"]
TOWNS = _WORDS["towns"]
JOBS = _WORDS["jobs"]
ANIMALS = _WORDS["animals"]
COLOURS = _WORDS["colours"]
FOODS = _WORDS["foods"]
THINGS = _WORDS["things"]
_IRREGULAR = {"cookies": "cookie", "knives": "knife", "scarves": "scarf", "brushes": "brush", "pies": "pie"}
SINGULAR = {plural: _IRREGULAR.get(plural, plural[:-1]) for plural in THINGS}
PLACES = _WORDS["places"]
ADJECTIVES = _WORDS["adjectives"]
ADVERBS = _WORDS["adverbs"]
CARRYING = _WORDS["carrying"]
MOVING = _WORDS["moving"]
PREPOSITIONS = _WORDS["prepositions"]

PARTS_OF_SPEECH: dict[str, tuple[str, ...]] = {
    "name": FIRST_NAMES + FAMILY_NAMES + TOWNS,
    "noun": JOBS + ANIMALS + FOODS + THINGS + tuple(SINGULAR.values()) + PLACES,
    "adjective": ADJECTIVES + COLOURS,
    "adverb": ADVERBS,
    "verb": _WORDS["verbs"] + CARRYING + MOVING,
    "preposition": (*PREPOSITIONS, "of", "with", "at", "on", "for", "into", "among", "after", "about"),
    "pronoun": (*_WORDS["pronouns"], "him"),
    "determiner": _WORDS["determiners"],
    "conjunction": _WORDS["conjunctions"],
    "question word": _WORDS["question_words"],
    "digit": tuple("0123456789"),
}


def articles(text: str) -> str:
    """The text with `an` for `a` before a vowel, so that templates can say `a` everywhere."""
    return re.sub(r"\b([Aa]) (?=[aeiou]|honest)", r"\1n ", text)


def pronoun(first_name: str) -> str:
    """`she` or `he`, as the stories refer to the person."""
    return "she" if first_name in SHE else "he"
