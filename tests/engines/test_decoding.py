"""Sampling draws from the nucleus and nothing else; an answer's luck is its own; stop strings end it where they end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf
from alone import nucleus
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import tiny
from lesion.engines.decoding import StopStrings, luck, sample
from lesion.engines.engine import Decoding
from lesion.errors import UsageError

LOGITS = np.random.default_rng(0).normal(0, 2, 12)


def draw(logits, temperature: float, top_p: float, uniform) -> list[int]:
    """`sample` with the same logits and settings in every row."""
    uniform = torch.as_tensor(uniform, dtype=torch.float64)
    rows = len(uniform)
    return sample(
        torch.as_tensor(np.asarray(logits)).expand(rows, -1),
        torch.full((rows,), temperature, dtype=torch.float64),
        torch.full((rows,), top_p, dtype=torch.float64),
        uniform,
    ).tolist()


@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9),
    temperature=st.floats(0.1, 5),
    top_p=st.floats(0.01, 1),
    uniform=st.floats(0, 1, exclude_max=True),
)
@example(logits=[0.0, 0.0, 0.0, 0.0], temperature=1.0, top_p=0.5, uniform=0.99)
@example(logits=[1.0, 5.0], temperature=1.0, top_p=0.01, uniform=0.999)
@settings(deadline=None)
def test_a_draw_inverts_the_distribution_function_of_the_nucleus(logits, temperature, top_p, uniform):
    inside = nucleus(np.array(logits), temperature, top_p)
    edges = np.cumsum(list(inside.values()))
    # On an edge rounding decides; between the edges nothing may. Equal logits are equal in both: their edges are exact.
    assume(len(set(logits)) == 1 or np.abs(edges - uniform).min() > 1e-9)
    whole = np.cumsum(list(nucleus(np.array(logits), temperature, 1.0).values()))
    assume(len(set(logits)) == 1 or np.abs(whole[:-1] - top_p).min(initial=1) > 1e-9)
    expected = list(inside)[int(np.searchsorted(edges, uniform, side="right").clip(max=len(inside) - 1))]
    assert draw(logits, temperature, top_p, [uniform]) == [expected]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (2.0, 0.5)])
def test_many_draws_have_the_probabilities_of_the_nucleus(temperature, top_p):
    decoding = Decoding(max_new_tokens=20_000, temperature=temperature, top_p=top_p, seed=3)
    drawn = np.bincount(draw(LOGITS, temperature, top_p, luck(decoding, (1, 2, 3))), minlength=len(LOGITS))
    expected = nucleus(LOGITS, temperature, top_p)
    assert set(np.flatnonzero(drawn)) <= set(expected)
    tokens = [token for token, probability in expected.items() if probability * 20_000 >= 5]
    rest = 20_000 - drawn[tokens].sum(), 20_000 * (1 - sum(expected[token] for token in tokens))
    found, due = [*drawn[tokens]], [20_000 * expected[token] for token in tokens]
    if rest[1] > 1e-6:
        found, due = [*found, rest[0]], [*due, rest[1]]
    assert chisquare(found, due).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_towards_temperature_zero_the_most_likely_token_is_drawn_whatever_the_luck(temperature):
    luckless = [0.0, 0.5, np.nextafter(1, 0)]
    assert draw(LOGITS, temperature, 1.0, luckless) == [int(LOGITS.argmax())] * 3
    # Of equally likely ones the first is still chosen by luck, as at any other temperature.
    assert draw([1.0, 3.0, 3.0], temperature, 1.0, luckless) == [1, 2, 2]


def test_rows_with_settings_of_their_own_are_drawn_as_each_would_be_alone():
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, (20, 12))
    temperature, top_p, uniform = rng.uniform(0.2, 2, 20), rng.uniform(0.1, 1, 20), rng.random(20)
    together = sample(*map(torch.as_tensor, (logits, temperature, top_p, uniform))).tolist()
    assert together == [
        draw(row, t, p, [u])[0] for row, t, p, u in zip(logits, temperature, top_p, uniform, strict=True)
    ]


def test_luck_is_the_same_for_the_same_prompt_and_another_for_another_prompt_or_seed():
    decoding = Decoding(max_new_tokens=8, temperature=1.0, seed=1)
    first = luck(decoding, (5, 6, 7))
    assert luck(decoding, [5, 6, 7]).tolist() == first.tolist()
    others = [luck(decoding, (5, 6)), luck(decoding, (7, 6, 5)), luck(Decoding(8, temperature=1.0, seed=2), (5, 6, 7))]
    assert all(set(other).isdisjoint(first) for other in others)


def test_a_longer_answer_begins_with_the_luck_of_the_shorter():
    short, long = (Decoding(max_new_tokens=limit, temperature=0.7, top_p=0.9) for limit in (5, 500))
    assert luck(long, (3,))[:5].tolist() == luck(short, (3,)).tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": float("nan")},
    ],
    ids=str,
)
def test_a_decoding_that_cannot_be_meant_is_refused(settings):
    with pytest.raises(UsageError, match=r"needs at least 1|temperature is|top_p is"):
        Decoding(**settings)


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
@settings(max_examples=150, deadline=None)
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


def test_no_stop_string_and_an_empty_one_stop_nothing():
    for stop in ((), ("",)):
        strings = StopStrings(TOKENIZERS["characters"], stop)
        assert not strings.hit([3])
        assert strings.cut("all of it") == "all of it"


@given(text=st.text("ab\n", max_size=12), stop=st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_what_stands_before_the_first_stop_string_is_the_answer(text, stop):
    cut = StopStrings(TOKENIZERS["characters"], tuple(stop)).cut(text)
    assert text.startswith(cut)
    assert not any(s in cut for s in stop)
    assert cut == text or any(text[len(cut) :].startswith(s) for s in stop)
