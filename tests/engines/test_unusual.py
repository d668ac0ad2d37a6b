"""Networks outside the table of families, and tokenizers that do not fit: exact, or refused in words."""

from __future__ import annotations

import pytest
import torch
from alone import greedy, prompts
from transformers import BloomConfig, BloomForCausalLM, MambaConfig, MambaForCausalLM

import tiny
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import wrap


@pytest.mark.parametrize("count", [1, 4])
def test_linear_biases_with_prompts_and_heads_in_one_dimension_grow_with_the_batch(count):
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=64, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.2)
    model = wrap(BloomForCausalLM(config).eval(), tiny.tokenizer(), "bloom")
    edits = (BASELINE, ScaleBlock(0), ScaleBlock(1, 0.5), ScaleBlock(2))
    requests = [
        Request(f"{number} {edit}", prompt, edit, Decoding(8))
        for number, prompt in enumerate(prompts(count))
        for edit in edits
    ]
    found = {response.key: response for response in TransformersEngine(model).answer(requests)}
    for request in requests:
        assert found[request.key].token_ids == greedy(model, request.prompt, request.edit, 8), request.key


def test_a_token_that_the_network_has_no_embedding_for_is_refused_in_words():
    model = tiny.model("llama")
    beyond = model.network.get_input_embeddings().num_embeddings
    with pytest.raises(LesionError, match=r"tokenizer of .* does not fit its network"):
        list(TransformersEngine(model).answer([Request("k", (1, beyond))]))
    with pytest.raises(LesionError, match="does not fit its network"):
        list(TransformersEngine(model).answer([Request("k", (1, 2), choices=((3,), (beyond,)))]))


def test_a_network_without_attention_heads_is_refused_in_words():
    config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)
    model = wrap(MambaForCausalLM(config).eval(), tiny.tokenizer(), "mamba")
    with pytest.raises(LesionError, match="only attention with keys and values"):
        TransformersEngine(model)
