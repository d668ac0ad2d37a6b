"""Networks that share no batch: every answer is that of plain greedy decoding with a hook of our own."""

from collections.abc import Sequence

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import tiny
from alone import prompts
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine, needs_one_by_one, refuse_one_by_one
from lesion.errors import LesionError
from lesion.models.load import Model, wrap

SIZES = {
    **{"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    },
}
GPT = {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256}
GEMMA = {
    **{"head_dim": 16, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64, "num_kv_shared_layers": 2},
    **{"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 6},
}
LINEAR = {
    **{"head_dim": 16, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "shared_expert_intermediate_size": 16,
}
STATES = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8}
ARCHITECTURES = {
    "gemma4_text": {**GEMMA, "global_head_dim": 32},
    "gemma3n_text": {**GEMMA, "laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 4},
    "openai-gpt": {**GPT, "afn": "gelu"},
    "gpt_bigcode": {**GPT, "n_inner": 48},
    "llama4_text": {"head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": 8},
    "mamba": {},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8},
    "rwkv": {"attention_hidden_size": 32},
    "jamba": {"num_experts": 4, "mamba_dt_rank": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "falcon_h1": {**STATES, "mamba_d_ssm": 64},
    "granitemoehybrid": {**STATES, "layer_types": ["mamba", "attention"] * 2, "shared_intermediate_size": 48},
    "qwen3_next": LINEAR,
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "recurrent_gemma": {"lru_width": 32, "attention_window_size": 16, "head_dim": 8, "conv1d_width": 4},
}


def made(architecture: str) -> Model:
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **{**SIZES, **ARCHITECTURES[architecture]})
    network = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if parameter.dim() >= 2 and "A_log" not in name:
            parameter.copy_(torch.randn(parameter.shape) * 0.2)
    network.generation_config.eos_token_id = 2
    return wrap(network, tiny.tokenizer(), architecture)


@torch.inference_mode()
def logits(model: Model, tokens: Sequence[int], layer: int, factor: float) -> torch.Tensor:
    """Logits [length, vocabulary] with one block's contribution scaled by a hook."""

    def scale(module, args, kwargs, output):
        stream = args[0] if args else kwargs["hidden_states"]
        whole = output if isinstance(output, torch.Tensor) else output[0]
        scaled = stream + factor * (whole - stream) if factor else stream
        return scaled if whole is output else type(output)((scaled, *output[1:]))

    handle = model.anatomy.blocks[layer].module.register_forward_hook(scale, with_kwargs=True)
    try:
        return model.network(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]
    finally:
        handle.remove()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_answer_is_that_of_plain_decoding(architecture):
    model = made(architecture)
    edits = {BASELINE: (0, 1.0), ScaleBlock(0): (0, 0.0), ScaleBlock(1, 0.5): (1, 0.5), ScaleBlock(2): (2, 0.0)}
    texts = prompts(3, shortest=3)
    options = ((7,), (8, 9), (8, 10))
    requests = [Request(f"{t} {e}", t, e, Decoding(4)) for t in texts for e in edits]
    requests += [Request(f"{t} {e} of", t, e, choices=options) for t in texts[:1] for e in edits]
    responses = {response.key: response for response in TransformersEngine(model).answer(requests)}
    assert len(responses) == len(requests)
    for request in requests:
        response, (layer, factor) = responses[request.key], edits[request.edit]
        if request.choices:
            for choice, score in zip(options, response.answer.scores, strict=True):
                rows = logits(model, (*request.prompt, *choice), layer, factor)[-len(choice) - 1 : -1]
                expected = rows.double().log_softmax(-1)[range(len(choice)), list(choice)].sum()
                assert score == pytest.approx(float(expected), abs=1e-4)
            continue
        said: list[int] = []
        while len(said) < 4 and 2 not in said:
            said.append(int(logits(model, (*request.prompt, *said), layer, factor)[-1].argmax()))
        assert response.token_ids == tuple(said), request.key
    assert len({response.token_ids for response in responses.values()}) > 3


def test_a_network_that_shares_batches_goes_on_doing_so():
    assert not any(needs_one_by_one(tiny.model(family)) for family in ("llama", "gemma3", "unknown"))


def test_studies_that_need_shared_prompts_refuse_the_others():
    with pytest.raises(LesionError, match=r"mamba .* answers one item under one edit at a time"):
        refuse_one_by_one(made("mamba"), "patching")
