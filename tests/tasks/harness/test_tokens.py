"""Token ids are those that the harness's own Hugging Face model sends, for every text and tokenizer."""

import copy
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from lesion.tasks.harness.tokens import HarnessTokens

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'lesion[harness]'")
pytestmark = pytest.mark.filterwarnings("ignore")

MODELS = ("bundled:llama-base", "bundled:qwen2-base", "bundled:llama-instruct")
PIECES = [*" \n\tabAB.,:é中🙂", "the", " town", "Question:", "<s>", "</s>", "  "]
words = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
quick = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])


@lru_cache
def theirs(name: str):
    from lm_eval.models.huggingface import HFLM

    model = load(name)
    return HFLM(pretrained=model.network, tokenizer=copy.deepcopy(model.tokenizer))


@lru_cache
def ours(name: str) -> HarnessTokens:
    model = load(name)
    return HarnessTokens(model.tokenizer, model.context, name)


@pytest.mark.parametrize("name", MODELS)
@quick
@given(context=words, continuation=words)
@example(context="Answer: \n ", continuation=" town")
@example(context="", continuation="<s>town")
@example(context="<s>Question:", continuation=" town")
def test_a_context_and_what_follows_it_come_apart_as_in_the_harness(name, context, continuation):
    lm = theirs(name)
    if context:
        assert ours(name).pair(context, continuation) == lm._encode_pair(context, continuation)
        return
    sent = []
    lm._loglikelihood_tokens = lambda requests, **_: sent.extend(requests)
    try:
        request = type("Asked", (), {"args": (context, continuation)})()
        if continuation:
            lm.loglikelihood([request], disable_tqdm=True)
    finally:
        del lm._loglikelihood_tokens
    assert [ours(name).pair(context, continuation)] * len(sent) == [(one[1], one[2]) for one in sent]


@pytest.mark.parametrize("name", MODELS)
@quick
@given(text=words, limit=st.integers(1, 511))
@example(text="the town " * 300, limit=100)
def test_the_prompt_of_an_answer_is_cut_as_in_the_harness(name, text, limit):
    ids, _ = theirs(name).tok_batch_encode([text], left_truncate_len=512 - limit)
    part = ours(name).generation(text, limit)
    assert part.prompt == tuple(int(one) for one in ids[0])
    assert part.cut + len(part.prompt) == len(theirs(name).tok_batch_encode([text])[0][0])


@pytest.mark.parametrize("name", MODELS[:2])
@pytest.mark.parametrize("context", [5, 16])
@quick
@given(text=words)
@example(text="the town " * 30)
def test_the_windows_of_a_text_are_those_of_the_harness(name, context, text):
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    lm = theirs(name)
    windows = get_rolling_token_windows(lm.tok_encode(text), lm.prefix_token_id, context, 1)
    parts = replace(ours(name), context=context).rolling(text)
    assert [(list(part.prompt), list(part.choices[0])) for part in parts] == list(map(make_disjoint_window, windows))


@quick
@given(context=words, continuation=words, limit=st.integers(1, 400))
def test_a_tokenizer_that_puts_a_mark_before_every_text_is_used_as_in_the_harness(shared, context, continuation, limit):
    name = str(shared / "models" / "stories260K")
    if context:
        assert ours(name).pair(context, continuation) == theirs(name)._encode_pair(context, continuation)
    ids, _ = theirs(name).tok_batch_encode([context], left_truncate_len=512 - limit)
    assert ours(name).generation(context, limit).prompt == tuple(int(one) for one in ids[0])


def test_choices_behind_one_prompt_are_one_part_and_those_behind_several_are_several():
    tokens = ours(MODELS[0])
    (together,) = tokens.likelihood([("Answer:", " red"), ("Answer:", " green")])
    alone = tokens.likelihood([("Answer:", " green")])[0]
    assert together.choices[1] == alone.choices[0]
    assert together.prompt == alone.prompt
    apart = tokens.likelihood([("red is", " it"), ("green is", " it")])
    assert [part.choices for part in apart] == [alone_of(tokens, "red is"), alone_of(tokens, "green is")]


def alone_of(tokens: HarnessTokens, context: str):
    return tokens.likelihood([(context, " it")])[0].choices


def test_of_a_context_that_is_too_long_the_beginning_goes_and_one_token_more_than_the_context_stays():
    tokens = replace(ours(MODELS[0]), context=10)
    before, ids = tokens.pair("the town " * 20, "of red")
    (part,) = tokens.likelihood([("the town " * 20, "of red")])
    assert [*part.prompt, *part.choices[0]] == [*before, *ids][-11:]
    assert part.cut == len(before) + len(ids) - 11


def test_what_cannot_be_asked_is_said():
    tokens = ours(MODELS[0])
    with pytest.raises(UsageError, match=r"up to 512 tokens do not fit .* --max-new-tokens 256"):
        tokens.generation("Question:", 512)
    with pytest.raises(LesionError, match="has no tokens of its own"):
        tokens.likelihood([("Question:", "")])
    with pytest.raises(LesionError, match=r"does not fit the context .* 4 tokens"):
        replace(tokens, context=4).likelihood([("Question:", " the town of the red town")])


def test_the_beginning_can_be_asked_for_and_left_out():
    plain = replace(ours(MODELS[0]), add_bos=False).encode("the town")
    begun = replace(ours(MODELS[0]), add_bos=True).encode("the town")
    assert begun == [ours(MODELS[0]).tokenizer.bos_token_id, *plain]
