"""Networks outside the table of families, and tokenizers that do not fit: exact, or refused in words."""

from collections.abc import Sequence
from itertools import islice

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MptConfig,
    MptForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    XGLMConfig,
    XGLMForCausalLM,
)

import tiny
from alone import answered, assert_alone, greedy, prompts, questions
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request, Work
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model, wrap


def bloom() -> Model:
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=64, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.2)
    return wrap(BloomForCausalLM(config).eval(), tiny.tokenizer(), "bloom")


def mpt() -> Model:
    torch.manual_seed(0)
    config = MptConfig(vocab_size=64, d_model=32, n_layers=3, n_heads=4, max_seq_len=64, initializer_range=0.2)
    return wrap(MptForCausalLM(config).eval(), tiny.tokenizer(), "mpt")


def assert_a_sweep_is_as_alone(model: Model, texts: Sequence[tuple[int, ...]]) -> Work:
    """Every edit says what it says alone; the work of it."""
    requests = questions(texts, (BASELINE, ScaleBlock(0), ScaleBlock(1, 0.5), ScaleBlock(2)), 8)
    found, work = answered(model, requests, 64)
    assert_alone(model, requests, found)
    return work


# One prompt, and as many as there are heads.
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("made", [bloom, mpt])
def test_linear_biases_of_heads_are_told_from_what_has_a_row_for_every_prompt(made, count):
    model = made()
    assert_a_sweep_is_as_alone(model, prompts(count))


@pytest.mark.parametrize("made", [bloom, mpt])
def test_linear_biases_reach_over_a_beginning_that_was_computed_before(made, worth_it):
    model = made()
    first = prompts(1, longest=40, shortest=40, seed=2)[0]
    work = assert_a_sweep_is_as_alone(model, [(*first, *prompt) for prompt in prompts(4)])
    assert work.prompt < 4 * 40 * 3


def test_a_place_that_stands_empty_is_at_no_position_beyond_the_context():
    """Its row would look up an embedding that there is none of; dynamic rotary embeddings go by the last position."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=40, initializer_range=0.2)
    model = wrap(GPT2LMHeadModel(config).eval(), tiny.tokenizer(), "gpt2")
    model.network.generation_config.eos_token_id = 2
    edits = (BASELINE, ScaleBlock(1, -1.0))
    long = [
        *islice(
            (
                text
                for text in prompts(60, longest=4, seed=7, shortest=4)
                if all(len(greedy(model, text, edit, 36)) == 36 for edit in edits)
            ),
            5,
        )
    ]
    assert len(long) == 5
    requests = [Request(f"{text} {edit}", text, edit, Decoding(36)) for text in long for edit in edits]
    requests.append(Request("short", (7, 8, 9), BASELINE, Decoding(2)))
    assert_alone(model, requests, answered(model, requests, 6)[0])


def test_of_two_rotary_embeddings_only_the_first_is_used():
    torch.manual_seed(0)
    rotary = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 32,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    config = Phi3Config(
        **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "pad_token_id": 0},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
        original_max_position_embeddings=32,
        rope_parameters=rotary,
        initializer_range=0.2,
    )
    model = wrap(Phi3ForCausalLM(config).eval(), tiny.tokenizer(), "phi3")
    assert model.context == 32
    texts = [text for text in prompts(8, longest=30, seed=3) if len(text) > 2]
    requests = [Request(str(text), text, ScaleBlock(1, 0.5), Decoding(64)) for text in texts]
    for response, request in zip(
        sorted(TransformersEngine(model).answer(requests), key=lambda response: response.key),
        sorted(requests, key=lambda request: request.key),
        strict=True,
    ):
        said, room = response.token_ids, 33 - len(request.prompt)
        assert said == greedy(model, request.prompt, request.edit, room, guess=said)
    with pytest.raises(LesionError, match="does not fit the context"):
        list(TransformersEngine(model).answer([Request("long", (5,) * 40)]))


def test_a_token_that_the_network_has_no_embedding_for_is_refused_in_words():
    model = tiny.model("llama")
    beyond = model.network.get_input_embeddings().num_embeddings
    with pytest.raises(LesionError, match=r"tokenizer of .* does not fit its network"):
        list(TransformersEngine(model).answer([Request("k", (1, beyond))]))
    with pytest.raises(LesionError, match="does not fit its network"):
        list(TransformersEngine(model).answer([Request("k", (1, 2), choices=((3,), (beyond,)))]))


def xglm() -> Model:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "ffn_dim": 64, "num_layers": 3, "attention_heads": 4, "init_std": 0.2}
    config = XGLMConfig(vocab_size=64, max_position_embeddings=128, **sizes)
    return wrap(XGLMForCausalLM(config).eval(), tiny.tokenizer(), "xglm")


@pytest.mark.parametrize("count", [1, 3])
def test_an_attention_that_wants_a_mask_of_every_row_gets_one_also_of_a_single_prompt(count, worth_it):
    model = xglm()
    first = prompts(1, longest=40, shortest=40, seed=2)[0]
    assert_a_sweep_is_as_alone(model, [(*first, *prompt) for prompt in prompts(count)])
