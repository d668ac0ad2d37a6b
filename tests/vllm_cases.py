"""What the tests of vLLM share: requests, the comparison of engines, small models with heads that vLLM takes."""

import random
from collections.abc import Iterable, Sequence

import pytest
import torch
import transformers as hf

import tiny
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.edits.units import ScaleExpert, ScaleGroup, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.engines.engine import Decoding, Engine, Request, Response
from lesion.models.load import Model, load, wrap

NEEDED = "vLLM is not installed: pip install 'lesion[vllm]' on a machine with a GPU, `make test-vllm` on any"
TWELVE = Decoding(12)
STORIES = (
    "Tom has 3 apples and buys 4 more. How many apples does he have in the end?\nAnswer:",
    "Ida has 12 cards. She gives 5 of them away. How many cards are left?\nAnswer:",
    "There are 7 birds in a tree and 8 on the roof. How many birds are there?\nAnswer:",
)


def prompts(model: Model, lengths: Sequence[int] = (2, 200)) -> list[tuple[int, ...]]:
    """Three stories, and random tokens in these lengths: longer ones span several blocks of vLLM's cache."""
    rng = random.Random(0)
    some = [tuple(rng.randrange(10, 2000) for _ in range(length)) for length in lengths]
    return [tuple(model.tokenizer(text).input_ids) for text in STORIES] + some


def places(model: Model) -> list[Edit]:
    """The baseline, every block ablated, and edits of all units with other factors."""
    blocks = [ScaleBlock(layer, 0.0) for layer in range(len(model.anatomy.blocks))]
    return [
        BASELINE, *blocks, ScaleBlock(2, 0.5), ScaleBlock(1, -1.5), ScaleAttention(1), ScaleMlp(2, 1.1),
        Compose((ScaleMlp(0, 0.3), ScaleAttention(2))),
    ]  # fmt: skip


def units(model: Model) -> list[Edit]:
    """Edits of heads, key-value groups, neurons or experts, and matrices: first and last ones, alone and together."""
    heads, (attention, mlp) = model.anatomy.heads(1), model.anatomy.block(1).branches
    first, *_, output = attention.matrices
    mixture = mlp.experts is not None
    part, last = (ScaleExpert, 3) if mixture else (ScaleNeuron, model.anatomy.neurons(1).count - 1)
    matrix = ScaleMatrix(0, f"attention.{first}", 0.5)
    return [
        ScaleHead(1, 0),
        ScaleHead(1, heads.count - 1, -1.5),
        ScaleGroup(2, heads.groups - 1, 0.5),
        part(1, 0, -20.0),
        part(1, last, 20.0),
        matrix,
        ScaleMatrix(1, f"attention.{output}", -1.0),
        Compose((ScaleHead(1, 1, 0.5), ScaleHead(1, 1, 3.0), part(1, 2, 0.0), part(1, 1, 9.0), ScaleMlp(2), matrix)),
    ]


def generations(texts: Iterable[tuple[int, ...]], edits: Iterable[Edit], decoding: Decoding = TWELVE) -> list[Request]:
    """Every prompt under every edit."""
    edits = list(edits)
    return [
        Request(f"{index} {edit} {decoding}", text, edit, decoding)
        for index, text in enumerate(texts)
        for edit in edits
    ]


def answers(engine: Engine, requests: Iterable[Request]) -> dict[str, Response]:
    """Responses by key; every request has exactly one."""
    requests = list(requests)
    responses = list(engine.answer(requests))
    assert sorted(response.key for response in responses) == sorted(request.key for request in requests)
    return {response.key: response for response in responses}


def assert_same(some: dict[str, Response], others: dict[str, Response], within: float = 1e-4) -> None:
    """Texts, tokens and endings are equal; log-probabilities differ by less than `within`.

    Ranks differ by at most 2: among thousands of tokens of a random network some lie within rounding of each other.
    """
    assert some.keys() == others.keys()
    for key, one in some.items():
        other = others[key]
        assert one.token_ids == other.token_ids, key
        for name in ("text", "tokens", "finish", "greedy"):
            assert getattr(one.answer, name) == getattr(other.answer, name), (key, name)
        assert one.answer.ranks == pytest.approx(other.answer.ranks, abs=2), key
        assert one.answer.scores == pytest.approx(other.answer.scores, abs=within, nan_ok=True), key


_SMALL = {
    "vocab_size": 2048, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
    "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "tie_word_embeddings": False,
}  # fmt: skip
_GATED = {**_SMALL, "num_key_value_heads": 1, "intermediate_size": 96}
_GEMMA = {**_GATED, "tie_word_embeddings": True, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 20}


def _network(family: str) -> hf.PreTrainedModel:
    if family == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**_GATED, attention_bias=True))
    if family == "mistral":
        return hf.MistralForCausalLM(hf.MistralConfig(**_GATED, head_dim=32, sliding_window=20))
    if family == "qwen3":
        return hf.Qwen3ForCausalLM(hf.Qwen3Config(**_GATED, head_dim=32))
    if family == "phi3":
        return hf.Phi3ForCausalLM(hf.Phi3Config(**_GATED, original_max_position_embeddings=512, sliding_window=None))
    if family == "gemma2":
        # Of transformers' attentions only the eager one caps logits, as Gemma 2 does and vLLM too.
        return hf.Gemma2ForCausalLM._from_config(hf.Gemma2Config(**_GEMMA), attn_implementation="eager")
    if family == "gemma3":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**_GEMMA, layer_types=kinds))
    if family == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(**{**_SMALL, "tie_word_embeddings": True}, n_inner=96))
    if family == "opt":
        tied = {**_SMALL, "tie_word_embeddings": True}
        return hf.OPTForCausalLM(hf.OPTConfig(**tied, ffn_dim=96, word_embed_proj_dim=64))
    if family == "gpt_neox":
        rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
        return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**_SMALL, intermediate_size=96, rope_parameters=rope))
    if family == "olmo2":
        return hf.Olmo2ForCausalLM(hf.Olmo2Config(**_GATED))
    if family == "mixtral":
        return hf.MixtralForCausalLM(hf.MixtralConfig(**_GATED, num_local_experts=4, num_experts_per_tok=2))
    raise KeyError(family)


def small(family: str) -> Model:
    """A random network of 3 blocks and heads of 32, the same weights every time, with the bundled tokenizer."""
    torch.manual_seed(0)
    network = tiny._scaled_up(_network(family))
    return wrap(network, load("bundled:llama-base").tokenizer, f"small:{family}")
