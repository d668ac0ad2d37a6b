"""Token classes: by text, by neighbours, by lexicon, under byte-level, SentencePiece and character tokenizers."""

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import tiny
from lesion.studies.drift.token_drift import CLASSES, primer_lexicon, token_classes
from lesion.tasks.primer import lexicon

BYTE_LEVEL = [
    "<s>", "</s>", "<|user|>", "Ada", "ĠAda", "Ġhas", "Ġ", "12", "Ġ7", "+", "Ġ=", "Ġ-", ",", ".Ċ", "Ċ", "Ġapp", "les",
    "'s", "Ġx2", "Ġ×", "Ġ(", "é", "Ã", "Ġorange", "ĠÉcole", "?!", "Ġnaïve",
]  # fmt: skip


def byte_level():
    symbols = {token: "".join(token) for token in BYTE_LEVEL}
    words = [t.replace("É", "Ãī").replace("ï", "Ã¯").replace("×", "ÃĹ").replace("é", "Ã©") for t in symbols]
    fast = Tokenizer(WordLevel({token: index for index, token in enumerate(words)}, unk_token="<s>"))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>", eos_token="</s>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    return tokenizer


def classes(tokens, **settings):
    return token_classes(byte_level(), np.array([BYTE_LEVEL.index(token) for token in tokens]), **settings).tolist()


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("<s>", "special"),
        ("</s>", "special"),
        ("<|user|>", "special"),
        ("ĠAda", "capitalised word"),
        ("Ada", "capitalised word"),
        ("Ġhas", "word"),
        ("Ġ", "white space"),
        ("Ċ", "white space"),
        ("12", "digit"),
        ("Ġ7", "digit"),
        ("+", "operator"),
        ("Ġ=", "operator"),
        ("Ġ-", "operator"),
        ("Ġ×", "operator"),
        (",", "punctuation"),
        (".Ċ", "punctuation"),
        ("Ġ(", "punctuation"),
        ("?!", "punctuation"),
        ("Ġx2", "other"),
        ("Ã", "other"),
        ("ĠÉcole", "capitalised word"),
        ("Ġnaïve", "word"),
    ],
)
def test_the_class_of_a_token_by_its_text(token, expected):
    assert expected in CLASSES
    assert classes([token]) == [expected]


def test_tokens_of_one_word_are_pieces_and_a_space_a_text_or_a_sign_ends_it():
    assert classes(["Ġapp", "les", "Ġhas", "Ada", "'s"]) == ["piece of a word"] * 2 + ["piece of a word"] * 3
    assert classes(["Ġapp", "Ġhas", ",", "les"]) == ["word", "word", "punctuation", "word"]
    assert classes(["Ġapp", "les"], text_of=np.array([0, 1])) == ["word", "word"]
    assert classes(["Ġapp", "12", "les"]) == ["word", "digit", "word"]


def test_a_lexicon_names_whole_words_whatever_their_pieces_and_case():
    words = {"apples": "thing", "Ada": "first name", "12": "dozen"}
    assert classes(["Ġapp", "les", "ĠAda", "12", "Ġ7"], lexicon=words) == [
        "thing", "thing", "first name", "dozen", "digit"
    ]  # fmt: skip
    assert classes(["Ġapp", "Ada"], lexicon={"ada": "first name"}) == ["piece of a word"] * 2
    assert classes(["ĠAda"], lexicon={"ada": "first name"}) == ["first name"]


def test_sentencepiece_marks_the_space_before_a_word():
    vocabulary = ["<s>", "▁Ada", "▁app", "les", "▁", "1", "<0x0A>"]
    fast = Tokenizer(WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token="<s>"))
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>")
    assert token_classes(tokenizer, np.array([0, 1, 2, 3, 4, 5, 6])).tolist() == [
        "special", "capitalised word", "piece of a word", "piece of a word", "white space", "digit", "white space"
    ]  # fmt: skip


def test_a_tokenizer_of_characters_makes_pieces():
    tokenizer = tiny.tokenizer()
    ids = tokenizer("an 7+x.", add_special_tokens=True)["input_ids"]
    assert token_classes(tokenizer, np.array(ids)).tolist() == [
        "special", "piece of a word", "piece of a word", "white space", "digit", "operator", "word", "punctuation"
    ]  # fmt: skip


def test_the_lexicon_of_the_primer_has_its_words_and_leaves_out_those_of_two_classes():
    words = primer_lexicon()
    assert words["Ada"] == "first name"
    assert words["Silverton"] == "town"
    assert words["apples"] == words["apple"] == "thing"
    assert words["heron"] == "animal"
    assert words["school"] == "place"
    assert words["crimson"] == "colour"
    assert words["baker"] == "job"
    assert words["the"] == "determiner"
    assert "orange" not in words  # a colour and a thing
    assert set(lexicon.FAMILY_NAMES) <= set(words)
