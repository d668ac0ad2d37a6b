"""An answer may fill the context: its last token needs no position, as in transformers' own `generate`."""

import pytest
import torch
import transformers as hf

import tiny
from alone import answered, drawn, generated, prompts
from lesion.edits.edit import BASELINE, Edit, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model, wrap

CONTEXT = 256
EDITS: tuple[Edit, ...] = (BASELINE, ScaleBlock(1, 0.99), ScaleMlp(2, 0.0), ScaleBlock(0))


def without_end(family: str) -> Model:
    model = tiny.model(family)
    model.network.generation_config.eos_token_id = model.tokenizer.eos_token = None
    return model


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "gemma2"])
def test_answers_end_where_those_of_generate_do_also_behind_drafts_and_shared_prefixes(family, worth_it):
    model = without_end(family)
    start = prompts(1, 100, 1, 100)[0]
    texts = [
        (*start, *prompts(1, length - 100, seed=length, shortest=length - 100)[0]) for length in (256, 255, 251, 246)
    ]
    requests = [Request(f"{len(text)} {edit}", text, edit, Decoding(100)) for text in texts for edit in EDITS]
    found, work = answered(model, requests, 7)
    for request in requests:
        room = CONTEXT - len(request.prompt) + 1
        expected = generated(model, request.prompt, request.edit, room)
        assert len(expected) == room
        assert found[request.key].token_ids == expected, request.key
        assert found[request.key].answer.finish == "length"
    assert work.drafted > 0
    assert work.prompt < sum(len(text) for text in texts) * len(EDITS) - 3 * 100  # a prefix was shared


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_token_limit_that_fits_exactly_is_met(family):
    model = without_end(family)
    text = prompts(1, 240, seed=5, shortest=240)[0]
    for limit, count in ((16, 16), (17, 17), (18, 17)):
        (response,) = TransformersEngine(model).answer([Request("it", text, decoding=Decoding(limit))])
        assert response.answer.tokens == count


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_sampled_answers_fill_the_context_too(family):
    model = without_end(family)
    text = prompts(1, 250, seed=6, shortest=250)[0]
    (response,) = TransformersEngine(model).answer([Request("it", text, decoding=Decoding(50, temperature=1.0))])
    said = response.token_ids
    assert said == drawn(model, text, BASELINE, Decoding(7, temperature=1.0), guess=said)


def test_a_model_whose_positions_prompt_and_answer_fill_says_all_of_its_answer():
    """An adder that was trained on sequences of 10 tokens reads 9 of them: 6 of the prompt, 3 of the answer's 4."""
    torch.manual_seed(0)
    config = hf.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=9, initializer_range=0.2)
    model = wrap(hf.GPT2LMHeadModel(config).eval(), tiny.tokenizer(), "adder")
    model.network.generation_config.eos_token_id = model.tokenizer.eos_token = None
    text = (6, 7, 40, 8, 9, 41)
    (response,) = TransformersEngine(model).answer([Request("sum", text, decoding=Decoding(4))])
    assert response.token_ids == generated(model, text, BASELINE, 4)
    assert len(response.token_ids) == 4


def test_a_prompt_that_fills_the_context_has_an_answer_of_one_token_and_a_longer_one_is_refused():
    model = without_end("gpt2")
    (response,) = TransformersEngine(model).answer([Request("full", (9,) * CONTEXT, decoding=Decoding(5))])
    assert response.token_ids == generated(model, (9,) * CONTEXT, BASELINE, 1)
    (response,) = TransformersEngine(model).answer([Request("full", (9,) * CONTEXT, tokens=(5, 6))])
    assert len(response.answer.ranks) == 2
    with pytest.raises(LesionError, match="257 tokens and does not fit the context of tiny:gpt2, 256 tokens"):
        list(TransformersEngine(model).answer([Request("long", (9,) * (CONTEXT + 1))]))
