"""A loop ends an answer where the definition says, in every engine at the same token; answers without one are whole."""

import random
import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tiny
from alone import drawn, greedy, prompts
from lesion.edits.edit import BASELINE, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.endings import LEAST, Loop, StopStrings
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.sequence import ActiveRequest


def loops(said, times: int) -> bool:
    """The definition, word by word: the end is one piece, `times` or more times in a row, over at least 32 tokens."""
    for piece in range(1, len(said) + 1):
        for count in range(times, len(said) // piece + 1):
            if count * piece >= 32 and list(said[-count * piece :]) == list(said[-piece:]) * count:
                return True
    return False


def begun(said, times: int) -> bool:
    """The same for a loop that is broken off in the middle of its last piece: what follows a whole one is its begin."""
    for piece in range(1, len(said) // times + 1):
        length = max(times * piece, 32)
        end = said[-length:]
        if len(said) >= length and all(end[place] == end[place - piece] for place in range(piece, length)):
            return True
    return False


def heard(said, times: int, limit: int = 1 << 20) -> int | None:
    """After how many tokens the detector says that there is a loop."""
    loop = Loop(times, limit)
    return next((end for end in range(1, len(said) + 1) if loop.hit(said[:end])), None)


@st.composite
def babble(draw) -> list[int]:
    """Texts of few words with pieces said over and over."""
    said: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        piece = draw(st.lists(st.integers(0, 2), min_size=1, max_size=14))
        said += piece * draw(st.integers(1, 40 // len(piece) + 3))
        said += draw(st.lists(st.integers(0, 3), max_size=3))
    return said


@given(said=babble(), times=st.integers(2, 6))
@example(said=[0] * 40, times=2)
@example(said=[0] * 20 + [1] + [0] * 40, times=3)
@example(said=([0] * 20 + [1] * 2) * 4, times=2)
def test_a_loop_is_heard_at_the_first_token_at_which_there_is_one(said, times):
    assert heard(said, times) == next((end for end in range(1, len(said) + 1) if begun(said[:end], times)), None)


@given(said=babble(), times=st.integers(2, 6), spare=st.integers(0, 3))
def test_the_limit_of_an_answer_changes_nothing_within_it(said, times, spare):
    assert heard(said, times, len(said) + spare) == heard(said, times)


@given(said=babble(), times=st.integers(2, 6))
def test_what_is_told_for_a_loop_is_one_in_words(said, times):
    end = heard(said, times)
    whole = [last for last in range(1, len(said) + 1) if loops(said[:last], times)]
    # A piece that is no divisor of the least length needs no last whole one: it is heard a few tokens sooner.
    assert (end is None) <= (not whole)
    assert end is None or not whole or end <= whole[0]


@pytest.mark.parametrize("times", [2, 4, 40])
@pytest.mark.parametrize("piece", [1, 3, 8, 16, 33, 200])
def test_a_piece_counts_by_its_repetitions_and_a_short_one_by_its_tokens(piece, times):
    before = list(range(1000, 1050))
    said = before + list(range(piece)) * (times + 40)
    assert heard(said, times) == len(before) + max(times * piece, LEAST)


@pytest.mark.parametrize(
    "said",
    [
        [1] + [0] * 31,  # a number with 31 zeros
        [7, 0] * 15 + [8],
        [token for number in range(100) for token in (1, 2, 3, 100 + number)],  # a list that is counted up
        [*range(40)] * 3,  # a sentence that is said three times
        [token for line in range(30) for token in ([5] * 12 + [50 + line])],
    ],
)
def test_what_only_looks_like_a_loop_is_none(said):
    assert heard(said, 4) is None


def test_a_long_answer_that_does_not_repeat_itself_costs_little():
    words = random.Random(0).choices(range(997), k=20_000)
    loop, said = Loop(4, 20_000), []
    begin = time.process_time()
    for word in words:
        said.append(word)
        assert not loop.hit(said)
    # One comparison with every place before would be 2 × 10⁸ of them, most of a minute.
    assert time.process_time() - begin < 3


def row(limit: int, times: int, stop: tuple[str, ...] = (), draft: tuple[int, ...] = ()) -> ActiveRequest:
    model = tiny.model("llama")
    request = Request("it", (5,), decoding=Decoding(limit, stop, stop_loops=times))
    return ActiveRequest(request, 0, 0, limit, {2}, StopStrings(model.tokenizer, stop), draft)


def test_what_ends_an_answer_by_itself_or_by_its_limit_goes_before_the_loop():
    letter, end = 15, 2
    said = [row(100, 2).say(letter, True)]
    looping = row(100, 2)
    assert [looping.say(letter, True) for _ in range(32)] == [None] * 31 + ["loop"]
    limited = row(32, 2)
    assert [limited.say(letter, True) for _ in range(32)] == [None] * 31 + ["length"]
    stopped = row(100, 2, stop=("a" * 32,))
    assert [stopped.say(letter, True) for _ in range(32)] == [None] * 31 + ["stop"]
    ending = row(100, 2)
    assert [ending.say(token, True) for token in [letter] * 31 + [end]] == [None] * 31 + ["stop"]
    broken = row(100, 2)
    assert [broken.say(letter, place < 31) for place in range(32)] == [None] * 31 + ["nonfinite"]
    assert said == [None]


def test_a_draft_is_heard_as_an_answer_is_and_a_row_that_begins_anew_hears_anew():
    drafted = row(100, 2, draft=tuple([15] * 60))
    assert drafted.judge([15] * 61, [True] * 61) == "loop"
    assert len(drafted.generated) == LEAST
    drafted.forget()
    drafted.draft = ()
    assert [drafted.say(15, True) for _ in range(31)] == [None] * 31
    assert drafted.say(16, True) is None


EDITS = (BASELINE, *(ScaleBlock(layer) for layer in range(3)), ScaleMlp(1, 0.9), ScaleAttention(2, 0.8))


def cut(said: tuple[int, ...], times: int, limit: int) -> tuple[tuple[int, ...], str]:
    """What must be left of an answer that was said without looking for loops, and how it must end."""
    end = next((end for end in range(1, min(len(said), limit - 1) + 1) if begun(said[:end], times)), None)
    ended = "length" if len(said) == limit and said[-1] != 2 else "stop"
    return (said, ended) if end is None or (end == len(said) and ended == "stop") else (said[:end], "loop")


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_answers_are_those_of_the_model_alone_cut_at_their_loop(family):
    model, limit, texts = tiny.model(family), 56, prompts(2, seed=5)
    asked = [
        Request(f"{item} {edit} {times}", text, edit, Decoding(limit, stop_loops=times))
        for item, text in enumerate(texts)
        for edit in EDITS
        for times in (0, 2, 5)
    ]
    alone: dict[tuple[tuple[int, ...], Edit], tuple[int, ...]] = {}
    for batch_size in (8, 64):
        engine = TransformersEngine(model, batch_size)
        found = {response.key: response for response in engine.answer(asked)}
        assert engine.work.accepted  # drafts are in play
        for request in asked:
            response, times = found[request.key], request.decoding.stop_loops
            if (one := (request.prompt, request.edit)) not in alone:  # the first of them lets loops go on
                alone[one] = greedy(model, *one, limit, guess=response.token_ids)
            said = alone[one]
            expected = cut(said, times, limit) if times else (said, "stop" if said[-1] == 2 else "length")
            assert (response.token_ids, response.answer.finish) == expected, request.key
            assert response.answer.tokens == len(response.token_ids)
    endings = {found[request.key].answer.finish for request in asked if request.decoding.stop_loops}
    assert "loop" in endings
    assert len(endings) > 1


def test_drawn_answers_are_cut_at_their_loop_and_draw_with_the_same_noise():
    model = tiny.model("llama")
    asked = [
        Request(f"{item} {edit}", text, edit, Decoding(60, temperature=0.4, seed=3, stop_loops=2))
        for item, text in enumerate(prompts(3, seed=5))
        for edit in EDITS[:3]
    ]
    found = {response.key: response for response in TransformersEngine(model, 4).answer(asked)}
    endless = [replace(one, decoding=replace(one.decoding, stop_loops=0)) for one in asked]
    guesses = {response.key: response.token_ids for response in TransformersEngine(model, 4).answer(endless)}
    for request in endless:
        said = drawn(model, request.prompt, request.edit, request.decoding, guess=guesses[request.key])
        response = found[request.key]
        assert (response.token_ids, response.answer.finish) == cut(said, 2, 60), request.key
