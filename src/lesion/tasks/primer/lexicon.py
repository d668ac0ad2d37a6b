"""The words of the primer's world, by part of speech: every word type the generated tasks can say."""

from __future__ import annotations

import re
from functools import cache


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Closed world: first names carry a pronoun, so that stories can refer back to a person.
SHE = _words(
    "Ada Bela Cora Dalia Edda Fenna Greta Hilde Ines Jora Kira Lena Mara Nola Orla Petra Runa Selma Tilda Vera"
)
HE = _words(
    "Anton Bram Cyril Dario Emil Falk Goran Henk Ivo Jonas Karel Lorik Milo Nuno Oskar Pavel Rufus Sandor Timo Viktor"
)
FIRST_NAMES = SHE + HE
FAMILY_NAMES = _words(
    "Abelard Birken Castor Dornik Elster Fallow Garland Hollis Ibsen Jansen Kestrel Lindqvist Marlow Norwood Osgood"
    " Pellam Quist Ravn Sorrel Tarkin Ulmer Vantor Wexley Yarrow Zeller Brandt Corvin Halden Morrow Thorne"
)
TOWNS = _words(
    "Alderby Brackmoor Caldwick Dunmere Eastholt Farrowdale Glenhaven Harrowgate Islemouth Juniper Kelford Larkspur"
    " Millbrook Northam Oakhurst Pinecrest Quarrytown Ravenport Silverton Thornfield Umberley Valewood Westmarsh"
    " Yewbridge Ashcombe Briarton Copperhill Dovecote Elmsworth Foxley Greystone Hazelwick"
)
JOBS = _words(
    "baker carpenter dentist doctor driver farmer fisher gardener hunter jeweller judge lawyer mason miller miner"
    " musician nurse painter pilot plumber poet potter printer sailor singer smith soldier tailor teacher weaver"
)
ANIMALS = _words(
    "badger beaver camel cat cow crow deer dog donkey duck eagle falcon ferret fox frog goat goose hare hedgehog"
    " heron horse lizard mole otter owl parrot pigeon pony rabbit raven sheep snake spider swan tortoise turkey"
)
COLOURS = _words("amber black blue brown crimson golden green grey orange pink purple red silver violet white yellow")
FOODS = _words(
    "bread butter cabbage cheese chocolate cream fish honey jam lentils milk mushrooms noodles onions pancakes pepper"
    " pie porridge potatoes pudding rice salad soup stew tea toast turnips yoghurt"
)
# Things that are counted, in the plural; the singular is another word type.
THINGS = _words(
    "apples arrows balls bananas baskets beads bells blankets books bottles bowls bricks brushes buttons cakes candles"
    " cards carrots chairs coins cookies cups drums eggs feathers flags flowers forks gloves hammers hats jars kites"
    " knives ladders lamps lemons letters marbles mirrors nails oranges paintings pears pencils pies plates plums"
    " ribbons ropes scarves shells shirts shoes spoons stamps stickers stones tickets towels toys umbrellas"
)
SINGULAR = {
    plural: {
        "cookies": "cookie",
        "knives": "knife",
        "scarves": "scarf",
        "brushes": "brush",
        "pies": "pie",
    }.get(plural, plural[:-1])
    for plural in THINGS
}
PLACES = _words(
    "attic barn bathroom bedroom cabin cave cellar chapel church courtyard desert factory field forest garage garden"
    " hall harbour kitchen library market meadow mill museum office orchard palace park school shed shop square"
    " stable station street temple tent theatre tower valley village yard"
)
ADJECTIVES = _words(
    "ancient big bitter brave bright broken busy calm careful cheap clean clever cold crooked curious dark deep dry"
    " dusty early empty fancy flat fresh friendly gentle happy heavy honest hungry large lazy little long lonely loud"
    " lucky modern narrow neat noisy old patient plain polite poor pretty proud quick quiet rough round rusty sad sharp"
    " shiny shy simple sleepy slow small soft steady strange strong sweet tall thin tidy tired tiny warm weak wet wide"
    " wild wise wooden young"
)
ADVERBS = _words(
    "again already alone almost always badly bravely calmly carefully early eagerly easily finally gently"
    " gladly happily hardly late loudly nearly never nicely now often once politely proudly quickly"
    " quietly rarely sadly seldom silently slowly softly sometimes soon still suddenly then today together"
    " tomorrow twice usually well yesterday"
)
# Past tense, taking an object that can be carried about.
CARRYING = _words("borrowed brought bought carried cleaned dropped dragged fetched found hid kept left mended painted")
MOVING = _words(
    "climbed danced drove hurried jumped marched ran rode sailed sat slept stood strolled swam waited walked"
)
PREPOSITIONS = _words(
    "above across around before behind below beside between by from in inside near over past through to"
)
PRONOUNS = _words("she he her his it they them their everyone nobody somebody")
DETERMINERS = _words("a an the this that each every some no many more all any")
CONJUNCTIONS = _words("and but because when while so or than as if")
VERBS = _words(
    "has had have is was are were does do did buys finds gets picks collects receives wins earns makes adds gives loses"
    " sells drops breaks eats uses throws hands sends shares puts keeps live lives work works love loves like likes"
    " own owns eat said saw heard felt liked loved wanted needed became began looked seemed turned went came took made"
    " asked told thought knew put gave sold"
)
QUESTION_WORDS = _words("who what where which how when why")

PARTS_OF_SPEECH: dict[str, tuple[str, ...]] = {
    "name": FIRST_NAMES + FAMILY_NAMES + TOWNS,
    "noun": JOBS + ANIMALS + FOODS + THINGS + tuple(SINGULAR.values()) + PLACES,
    "adjective": ADJECTIVES + COLOURS,
    "adverb": ADVERBS,
    "verb": VERBS + CARRYING + MOVING,
    "preposition": PREPOSITIONS + _words("of with at on for into among after about"),
    "pronoun": (*PRONOUNS, "him"),
    "determiner": DETERMINERS,
    "conjunction": CONJUNCTIONS,
    "question word": QUESTION_WORDS,
    "digit": tuple("0123456789"),
}


def articles(text: str) -> str:
    """The text with `an` for `a` before a vowel, so that templates can say `a` everywhere."""
    return re.sub(r"\b([Aa]) (?=[aeiou]|honest)", r"\1n ", text)


@cache
def part_of_speech(word: str) -> str | None:
    """The part of speech of a word type, or None where it has none or more than one in this world.

    Sentence-initial capitals are looked up in lower case: `The` is a determiner.
    """
    found = {part for part, words in PARTS_OF_SPEECH.items() if word in words or word.lower() in words}
    return found.pop() if len(found) == 1 else None


def pronoun(first_name: str) -> str:
    """`she` or `he`, as the stories refer to the person."""
    return "she" if first_name in SHE else "he"
