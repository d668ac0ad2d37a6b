"""Stop strings end an answer where they end, whatever tokens spell them."""

import pytest
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import tiny
from lesion.engines.endings import StopStrings


def byte_pairs() -> hf.PreTrainedTokenizerFast:
    """Byte pairs in which tokens overlap the ends of stop strings: `.⏎⏎`, `⏎Q`, and parts of a character."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = ["yes.\n\nQuestion: who?\n", "no.\n\nQ: why?\n\n", "<end> <end>"] * 5
    core.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return hf.PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False)


def pieces() -> hf.PreTrainedTokenizerFast:
    """Word pieces with `▁` for a space and bytes for what is rare, as in Llama 2; the text's first space is dropped."""
    words = ["▁", "▁the", "▁end", "end", "▁Q", "Q", ":", "\n", "\n\n", ".\n", "é", "a", "▁a", "?"]
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    vocabulary |= {word: len(vocabulary) + index for index, word in enumerate(words)}
    core = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return hf.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", clean_up_tokenization_spaces=False)


TOKENIZERS = {"characters": tiny.tokenizer(), "byte pairs": byte_pairs(), "pieces": pieces()}
STOPS = [("\n",), ("\n\n", "Q:"), ("<end>",), (" the end", " a"), ("the ",), ("é",), ("?", "\nQ")]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_stop_string_is_seen_with_the_token_that_completes_it_however_it_is_split(name, data):
    tokenizer = TOKENIZERS[name]
    stop = StopStrings(tokenizer, data.draw(st.sampled_from(STOPS), "stop"))
    # Tokens that spell a part of a stop string, among any others.
    parts = [
        token
        for token in range(len(tokenizer))
        if (text := tokenizer.decode([token]).strip()) == "" or any(text in s or s in text for s in stop.stop)
    ]
    token = st.one_of(st.sampled_from(parts), st.integers(0, len(tokenizer) - 1))
    said = data.draw(st.lists(token, min_size=1, max_size=25), "said")
    for length in range(1, len(said) + 1):
        text = tokenizer.decode(said[:length], skip_special_tokens=True)
        assert stop.hit(said[:length]) == any(s in text for s in stop.stop), text
        if stop.hit(said[:length]):
            break


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_stop_string_far_into_an_answer_is_seen(name):
    tokenizer = TOKENIZERS[name]
    filler = tokenizer.encode("a", add_special_tokens=False) * 300
    for text in ("\n\n", "e?"):
        said = [*filler, *tokenizer.encode(text, add_special_tokens=False)]
        assert StopStrings(tokenizer, ("never", "\n\n", "?")).hit(said)
        assert not StopStrings(tokenizer, ("never", "\n\n", "?")).hit(said[:-2])


def test_a_stop_string_after_a_long_run_of_bytes_is_seen_and_one_in_a_spoilt_run_is_not():
    tokenizer = TOKENIZERS["pieces"]
    stop = StopStrings(tokenizer, ("\n",))
    run = [byte + 1 for byte in "一二三四五六七八九十\n".encode()]
    assert [stop.hit(run[:length]) for length in range(1, len(run) + 1)] == [False] * (len(run) - 1) + [True]
    accented = StopStrings(tokenizer, ("é",))
    assert [accented.hit(said) for said in ([0xC3 + 1], [0xC3 + 1, 0xA9 + 1])] == [False, True]
    # A run of bytes that is not UTF-8 has no newline in it as a whole, and so none for the judge who reads it.
    assert not stop.hit([0x80 + 1, *run])


def test_a_stop_string_that_ends_in_a_space_is_seen_though_a_text_would_not_begin_with_one():
    tokenizer = TOKENIZERS["pieces"]
    said = tokenizer.convert_tokens_to_ids(["▁the", "▁a"])
    assert tokenizer.decode(said) == "the a"
    assert StopStrings(tokenizer, ("the ",)).hit(said)


@given(text=st.text("ab\n", max_size=12), stop=st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_what_stands_before_the_first_stop_string_is_the_answer(text, stop):
    cut = StopStrings(TOKENIZERS["characters"], tuple(stop)).cut(text)
    assert text.startswith(cut)
    assert not any(s in cut for s in stop)
    assert cut == text or any(text[len(cut) :].startswith(s) for s in stop)
