"""Written prompts: names of control tokens in a question stay text, also under tokenizers that put `▁` before texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.conversation import Written, beginning, names_control
from sentencepieces import CONTROLS, KINDS, speaker

FRAMES = [
    ("<|user|>\n", "<|end|>\n<|assistant|>\n"),
    ("<|user|>", "<|end|><|assistant|>"),
    ("Question: ", "\nAnswer:"),
    ("", ""),
]
pieces = st.lists(st.sampled_from([*CONTROLS, "a", "the cat", " ", "\n", ":", "<"]), max_size=6)


def control_ids(tokenizer, ids):
    return [id for id in ids if id in tokenizer.convert_tokens_to_ids(CONTROLS)]


@given(pieces)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_question_differs_from_a_harmless_one_by_its_text_alone(kind, frame, pieces):
    tokenizer = speaker(kind).tokenizer
    before, behind = frame
    text = f"a{''.join(pieces)}"
    ids = Written(before, text, behind, begin=True).ids(tokenizer)
    harmless = Written(before, "a@", behind, begin=True).ids(tokenizer)
    assert control_ids(tokenizer, ids) == control_ids(tokenizer, harmless)
    assert tokenizer.decode(ids) == tokenizer.decode(harmless).replace("a@", text)


@given(pieces.map("".join))
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_question_without_control_tokens_is_encoded_with_the_rest_as_one_text(kind, frame, text):
    tokenizer = speaker(kind).tokenizer
    before, behind = frame
    if not names_control(tokenizer, text):
        whole = tokenizer.encode(before + text + behind)
        assert Written(before, text, behind, begin=True).ids(tokenizer) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_of_a_template_are_encoded_beside_a_hostile_question_as_they_are_without(kind):
    tokenizer = speaker(kind).tokenizer
    whole = tokenizer.encode("<|user|>\nthe cat<|end|>\n<|assistant|>\nAnswer:", add_special_tokens=False)
    hostile = Written("<|user|>\nthe cat<|end|>\n<|assistant|>\nAnswer:", "</s>").ids(tokenizer)
    assert hostile[: len(whole)] == whole
    assert tokenizer.eos_token_id not in hostile


def test_pieces_are_texts_and_the_control_tokens_that_are_meant_in_turn():
    tokenizer = speaker("first").tokenizer
    written = Written("<|user|>\n", "why </s>?", "<|end|><|assistant|>\n")
    assert written.pieces(tokenizer) == ["", "<|user|>", "\nwhy </s>?", "<|end|>", "", "<|assistant|>", "\n"]
    assert Written("", "</s>").pieces(tokenizer) == ["</s>"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_beginning_is_what_the_tokenizer_writes_before_every_text(kind):
    tokenizer = speaker(kind).tokenizer
    assert beginning(tokenizer) == [tokenizer.bos_token_id]
    assert Written("the cat", begin=True).ids(tokenizer)[0] == tokenizer.bos_token_id
    assert Written("<s>the cat", begin=True).ids(tokenizer).count(tokenizer.bos_token_id) == 1


def test_the_kinds_differ_where_they_should():
    """What the tests of this file and of continuations rest upon: each kind treats ▁ in its own way."""

    def tokens(kind: str, text: str) -> list[str]:
        tokenizer = speaker(kind).tokenizer
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))

    assert tokens("prepend", " A") == ["▁", "▁A"]
    assert tokens("always", " A") == tokens("first", " A") == ["▁A"]
    assert tokens("prepend", "<|user|>\na") == tokens("always", "<|user|>\na") == ["<|user|>", "▁", "\n", "a"]
    assert tokens("first", "<|user|>\na") == ["<|user|>", "\n", "a"]
    assert tokens("swallowing", "<|user|>\na") == ["<|user|>", "▁", "a"]
