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
    """The class of every token: one of `CLASSES`, or what the lexicon says of its word.

    Letters that touch are one word: a token that begins a word and is all of it is a word, tokens that share one are
    its pieces, unless the lexicon knows the word: then all of them have its class. A lexicon is asked for the word as
    written, then in lower case. `-`, `*`, `/`, `%` and `^` count as operators wherever they stand.

    Args:
        tokenizer: the model's.
        ids: of the tokens, text after text.
        text_of: which text a token stands in, so that no word crosses from one to the next; None for one text.
        lexicon: class by word, `primer_lexicon()` for the tasks of the primer.

    Returns:
        An array of text.

    Raises:
        UsageError: `text_of` has another length.
    """
    if text_of is None:
        text_of = np.zeros(len(ids), dtype=np.int64)
    if len(text_of) != len(ids):
        raise UsageError(f"{len(ids)} tokens were given and the texts of {len(text_of)}.")
    kinds = {token: _kind(tokenizer, token) for token in map(int, np.unique(ids))}
    classes = [""] * len(ids)
    word: list[int] = []
    for place, token in enumerate(map(int, ids)):
        spaced, text, kind = kinds[token]
        if word and (kind != WORD or spaced or text_of[place] != text_of[word[0]]):
            _close(word, kinds, ids, lexicon, classes)
            word = []
        if kind == WORD:
            word.append(place)
        else:
            classes[place] = (lexicon or {}).get(text, kind)
    if word:
        _close(word, kinds, ids, lexicon, classes)
    return np.array(classes, dtype=np.str_)


@cache
def primer_lexicon() -> Mapping[str, str]:
    """The class of every word of the primer's world: first name, family name, town, job, animal, colour, food, thing,
    place, adjective, adverb, verb, preposition, pronoun, determiner, conjunction, question word.

    A word of several classes, `orange` say, is left out, so that it is a plain word.
    """
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
        **{
            part: primer.PARTS_OF_SPEECH[part]
            for part in ("adverb", "verb", "preposition", "pronoun", "determiner", "conjunction", "question word")
        },
    }
    names_of: dict[str, set[str]] = {}
    for name, words in classes.items():
        for word in words:
            names_of.setdefault(word, set()).add(name)
    return {word: next(iter(names)) for word, names in names_of.items() if len(names) == 1}


def _close(
    word: list[int],
    kinds: Mapping[int, tuple[bool, str, str]],
    ids: Int[np.ndarray, " tokens"],
    lexicon: Mapping[str, str] | None,
    classes: list[str],
) -> None:
    """Classify the tokens that are one word together."""
    text = "".join(kinds[int(ids[place])][1] for place in word)
    known = (lexicon or {}).get(text) or (lexicon or {}).get(text.lower())
    plain = PIECE if len(word) > 1 else CAPITALISED if text[:1].isupper() else WORD
    for place in word:
        classes[place] = known or plain


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
    categories = [unicodedata.category(character) for character in text]
    signs = [c in _OPERATORS or category == "Sm" for c, category in zip(text, categories, strict=True)]
    if all(signs):
        return OPERATOR
    if all(sign or category[0] == "P" for sign, category in zip(signs, categories, strict=True)):
        return PUNCTUATION
    letters = [category[0] in "LM" for category in categories]
    if any(letters) and all(is_letter or c in _APOSTROPHES for is_letter, c in zip(letters, text, strict=True)):
        return WORD
    return OTHER
