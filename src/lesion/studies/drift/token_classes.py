"""Token classes: what kind of token each one is, by its text and its neighbours, or by a lexicon of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache

import numpy as np
from jaxtyping import Int, Shaped
from transformers import PreTrainedTokenizerBase

from lesion.errors import UsageError
from lesion.tasks.primer import lexicon as primer

DIGIT, OPERATOR, PUNCTUATION, SPACE, SPECIAL = "digit", "operator", "punctuation", "white space", "special"
CAPITALISED, WORD, PIECE, OTHER = "capitalised word", "word", "piece of a word", "other"
CLASSES = (DIGIT, OPERATOR, PUNCTUATION, SPACE, SPECIAL, CAPITALISED, WORD, PIECE, OTHER)

# Signs between numbers that Unicode does not count among the mathematical ones.
_OPERATORS = frozenset("-*/%^")
_APOSTROPHES = frozenset("'’")
# How tokenizers write the space before a word, or a word's going on: byte-level and SentencePiece; WordPiece.
_SPACES, _GOES_ON = ("Ġ", "▁", " "), "##"


def token_classes(
    tokenizer: PreTrainedTokenizerBase,
    ids: Int[np.ndarray, " tokens"],
    text_of: Int[np.ndarray, " same_tokens"] | None = None,
    *,
    lexicon: Mapping[str, str] | None = None,
) -> Shaped[np.ndarray, " tokens"]:
    """The class of every token as text: one of `CLASSES`, or what the lexicon says of its word.

    Letters that touch are one word. A token that is all of a word is a word, tokens that share one are its pieces; all
    tokens of a word that the lexicon has, as written or in lower case, have its class. `-`, `*`, `/`, `%` and `^` are
    operators everywhere. No word crosses from one of the texts `text_of` to the next.
    """
    if text_of is None:
        text_of = np.zeros(len(ids), dtype=np.int64)
    if len(text_of) != len(ids):
        raise UsageError(f"{len(ids)} tokens were given and the texts of {len(text_of)}.")
    known = lexicon or {}
    kinds = {token: _kind(tokenizer, token) for token in map(int, np.unique(ids))}
    classes = [""] * len(ids)
    word: list[int] = []

    def close() -> None:
        """Classify the tokens that are one word together."""
        text = "".join(kinds[int(ids[place])][1] for place in word)
        plain = PIECE if len(word) > 1 else CAPITALISED if text[:1].isupper() else WORD
        for place in word:
            classes[place] = known.get(text) or known.get(text.lower()) or plain
        word.clear()

    for place, token in enumerate(map(int, ids)):
        spaced, text, kind = kinds[token]
        if kind != WORD or spaced or (word and text_of[place] != text_of[word[0]]):
            close()
        if kind == WORD:
            word.append(place)
        else:
            classes[place] = known.get(text, kind)
    close()
    return np.array(classes, dtype=np.str_)


@cache
def primer_lexicon() -> Mapping[str, str]:
    """The class of every word of the primer's world; a word of several classes (`orange`) is left out."""
    parts = ("adverb", "verb", "preposition", "pronoun", "determiner", "conjunction", "question word")
    classes = {
        "first name": primer.FIRST_NAMES,
        "family name": primer.FAMILY_NAMES,
        "town": primer.TOWNS,
        "job": primer.JOBS,
        "animal": primer.ANIMALS,
        "colour": primer.COLOURS,
        "food": primer.FOODS,
        "thing": (*primer.THINGS, *primer.SINGULAR.values()),
        "place": primer.PLACES,
        "adjective": primer.ADJECTIVES,
        **{part: primer.PARTS_OF_SPEECH[part] for part in parts},
    }
    names_of: dict[str, set[str]] = {}
    for name, words in classes.items():
        for word in words:
            names_of.setdefault(word, set()).add(name)
    return {word: next(iter(names)) for word, names in names_of.items() if len(names) == 1}


def _kind(tokenizer: PreTrainedTokenizerBase, token: int) -> tuple[bool, str, str]:
    """Of a token: whether a space goes before its text, the text, and its class as far as it tells alone."""
    raw = tokenizer.convert_ids_to_tokens(token)
    added = getattr(tokenizer, "added_tokens_decoder", {}).get(token)
    if token in tokenizer.all_special_ids or (added is not None and (added.special or _bracketed(str(added)))):
        return False, str(raw), SPECIAL
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    raw = raw if isinstance(raw, str) else text
    spaced = raw.startswith(_SPACES) or text[:1].isspace()
    # Some decoders keep the mark of a word's going on.
    text = text.strip().removeprefix(_GOES_ON if raw.startswith(_GOES_ON) else "")
    return spaced, text, _class(text, bool(raw))


def _bracketed(text: str) -> bool:
    return len(text) > 2 and text[0] in "<[" and text[-1] in ">]"


def _class(text: str, something: bool) -> str:
    if not text:
        return SPACE if something else OTHER
    if all(character.isdecimal() for character in text):
        return DIGIT
    categories = {character: unicodedata.category(character) for character in text}
    signs = {character for character, category in categories.items() if character in _OPERATORS or category == "Sm"}
    marks = {character for character, category in categories.items() if category[0] == "P"}
    letters = {character for character, category in categories.items() if category[0] in "LM"}
    if signs >= categories.keys():
        return OPERATOR
    if signs | marks >= categories.keys():
        return PUNCTUATION
    return WORD if letters and letters | _APOSTROPHES >= categories.keys() else OTHER
