"""Settings of GGUF files: what a file states is computed, as by a forward pass of our own in float64, or refused."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import architectures_ggufs as ggufs
from ggufs import VOCABULARY, computed, llama, write
from lesion.errors import LesionError
from lesion.models.load import load

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4]
SIZE = 32
PAIRS = SIZE // 2
BASE = 10000.0 ** (-np.arange(PAIRS) / PAIRS)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LESION_CACHE", str(tmp_path / "cache"))


def network():
    """Heads of 32, so that there are 16 frequencies, and weights large enough for positions to matter."""
    made = llama(4 * SIZE)
    for parameter in made.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)
    return made


def assert_computes(path: Path, frequencies: np.ndarray, scale: float = 1.0) -> None:
    """That the loaded file gives what its definition gives, and that this is not what plain rotations give."""
    expected = computed(path, IDS, lambda position: position * frequencies, scale)
    plain = computed(path, IDS, lambda position: position * BASE)
    assert np.abs(expected - plain).max() > 0.1 or (frequencies is BASE and scale == 1)
    logits = load(path).network(torch.tensor([IDS])).logits[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3)


def yarn(factor: float, original: int, fast: float = 32.0, slow: float = 1.0) -> np.ndarray:
    """YaRN (Peng et al. 2023, section 3.2), pair by pair: turns within the trained context decide."""
    frequencies = []
    ends = [PAIRS * math.log(original / (turns * 2 * math.pi)) / math.log(10000.0) for turns in (fast, slow)]
    low, high = max(0, math.floor(ends[0])), min(SIZE - 1, math.ceil(ends[1]))
    for pair, frequency in enumerate(BASE):
        interpolated = min(1.0, max(0.0, (pair - low) / max(0.001, high - low)))
        frequencies.append(frequency * (1 - interpolated) + frequency / factor * interpolated)
    return np.array(frequencies)


@pytest.mark.parametrize(
    ("metadata", "frequencies", "scale"),
    [
        ({}, BASE, 1.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 8.0}, BASE, 1.0),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, BASE / 4, 1.0),
        ({"rope.scaling.factor": 4.0}, BASE / 4, 1.0),  # linear is the default
        ({"rope.scale_linear": 2.0}, BASE / 2, 1.0),  # as older files call it
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 1.5}, BASE / 4, 1.5),
        (
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16},
            yarn(4, 16),
            1 + 0.1 * math.log(4),
        ),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 8.0,
                "rope.scaling.yarn_beta_fast": 4.0,
                "rope.scaling.yarn_beta_slow": 0.5,
                "rope.scaling.attn_factor": 0.5,
                "rope.scaling.yarn_attn_factor": 1.5,
            },
            yarn(8, 64, 4, 0.5),
            0.75 * (1 + 0.1 * math.log(8)),
        ),
        ({"rope.freq_base": 500.0}, 500.0 ** (-np.arange(PAIRS) / PAIRS), 1.0),
        ({"rope.dimension_count": SIZE, "attention.key_length": SIZE, "attention.value_length": SIZE}, BASE, 1.0),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_rotary_embeddings_are_scaled_as_the_file_states(metadata, frequencies, scale, tmp_path):
    assert_computes(write(tmp_path / "tiny.gguf", network(), metadata=metadata), frequencies, scale)


def test_frequencies_of_llama_3_1_are_divided_by_the_factors_of_the_file(tmp_path):
    factors = np.geomspace(1, 8, PAIRS).astype(np.float32)
    path = write(tmp_path / "tiny.gguf", network(), tensors={"rope_freqs.weight": factors})
    assert_computes(path, BASE / factors)
    assert load(path).context == 64


def test_of_two_sets_of_factors_the_one_for_the_trained_context_counts(tmp_path):
    short, long = np.linspace(1, 3, PAIRS), np.linspace(2, 60, PAIRS)
    path = write(
        tmp_path / "tiny.gguf",
        network(),
        metadata={"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.2},
        tensors={"rope_factors_long.weight": long, "rope_factors_short.weight": short},
    )
    assert_computes(path, BASE / short.astype(np.float32), 1.2)
    assert load(path).context == 32


def test_biases_of_the_file_are_computed(tmp_path):
    generator = np.random.default_rng(5)
    widths = {"attn_q": 128, "attn_k": 64, "attn_v": 64, "attn_output": 128}
    biases = {f"blk.{b}.{name}.bias": generator.normal(size=w) for b in range(2) for name, w in widths.items()}
    path = write(tmp_path / "tiny.gguf", network(), tensors=biases)
    expected = computed(path, IDS, lambda position: position * BASE)
    logits = load(path).network(torch.tensor([IDS])).logits[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"rope.scaling.type": "dynamic"}, "rope.scaling.type = dynamic"),
        ({"rope.scaling.type": "llama3", "rope.scaling.factor": 8.0}, "rope.scaling.type = llama3"),
        ({"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 0.5}, "rope.scaling.yarn_ext_factor = 0.5"),
        ({"rope.scaling.yarn_log_multiplier": 0.1}, "rope.scaling.yarn_log_multiplier"),
        ({"rope.dimension_count": 16}, "rope.dimension_count = 16"),
        ({"rope.dimension_sections": [4, 6, 6, 0]}, "rope.dimension_sections"),
        ({"rope.freq_base_swa": 500.0}, "rope.freq_base_swa"),
        ({"logit_scale": 0.25}, "logit_scale = 0.25"),
        ({"residual_scale": 0.5}, "residual_scale = 0.5"),
        ({"embedding_scale": 12.0}, "embedding_scale = 12"),
        ({"attention.scale": 0.5}, "attention.scale = 0.5"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30"),
        ({"attention.sliding_window": 8}, "attention.sliding_window = 8"),
        ({"attention.clamp_kqv": 8.0}, "attention.clamp_kqv = 8"),
        ({"attention.max_alibi_bias": 8.0}, "attention.max_alibi_bias = 8"),
        ({"attention.causal": False}, "attention.causal = False"),
        ({"attention.value_length": 16}, "attention.value_length = 16"),
        ({"use_parallel_residual": True}, "use_parallel_residual = True"),
        ({"expert_count": 4, "expert_used_count": 2}, "expert_count = 4"),
        ({"attention.head_count_kv_of_another": 3}, "attention.head_count_kv_of_another = 3"),
        ({"attention.head_count_kv_by_block": [1, 2]}, "head_count_kv_by_block = (1, 2)"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_a_key_that_the_network_cannot_compute_is_refused_by_name(metadata, key, tmp_path):
    path = write(tmp_path / "tiny.gguf", network(), metadata=metadata)
    with pytest.raises(LesionError) as raised:
        load(path)
    assert f"llama.{key}" in str(raised.value) or key in str(raised.value)
    assert "safetensors" in str(raised.value)
    assert not list((tmp_path / "cache").glob("gguf/[!.]*"))


@pytest.mark.parametrize(
    "metadata",
    [
        {"tensor_data_layout": "Meta AI original pth", "rope.scaling.finetuned": True},
        {"logit_scale": 1.0, "residual_scale": 1.0, "attention.scale": SIZE**-0.5, "attention.clamp_kqv": 0.0},
        {"attention.sliding_window": 64, "expert_count": 0, "expert_used_count": 0, "attention.causal": True},
        {"attn_logit_softcapping": 0.0, "rope.scaling.factor": 0.0, "rope.dimension_sections": [0, 0, 0, 0]},
        {"rope.scaling.yarn_ext_factor": 1.0, "rope.freq_base_swa": 10000.0, "leading_dense_block_count": 0},
    ],
    ids=lambda metadata: " ".join(metadata),
)
def test_keys_that_change_nothing_are_no_reason_to_refuse(metadata, tmp_path):
    assert_computes(write(tmp_path / "tiny.gguf", network(), metadata=metadata), BASE)


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.weight", "blk.1.attn_q.bias", "blk.0.ffn_gate_exps.weight", "cls"])
def test_a_tensor_that_the_network_has_no_place_for_is_refused_by_name(name, tmp_path):
    path = write(tmp_path / "tiny.gguf", network(), tensors={name: np.ones(128)})
    with pytest.raises(LesionError, match=f"no place for: {name}"):
        load(path)


def test_of_two_sets_of_factors_one_alone_is_refused(tmp_path):
    path = write(tmp_path / "tiny.gguf", network(), tensors={"rope_factors_long.weight": np.ones(PAIRS)})
    with pytest.raises(LesionError, match=r"it has rope_factors_long\.weight of"):
        load(path)
    path = write(tmp_path / "other.gguf", network(), metadata={"rope.scaling.type": "longrope"})
    with pytest.raises(LesionError, match="it has none of"):
        load(path)


SIZES = {
    **{"vocab_size": len(VOCABULARY), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4},
    **{
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    **{"pad_token_id": None, "tie_word_embeddings": True},
}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    **{"rope_type": "longrope", "rope_theta": 500.0, "original_max_position_embeddings": 32, "attention_factor": 1.3},
    **{"short_factor": [1.0 + i / 4 for i in range(12)], "long_factor": [2.0 + i for i in range(12)]},
    "partial_rotary_factor": 0.75,
}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 6, "attn_logit_softcapping": 3.0}


@pytest.mark.parametrize(
    ("architecture", "kind", "settings", "metadata"),
    [
        ("qwen2", hf.Qwen2ForCausalLM, {"rope_parameters": YARN}, {}),
        ("qwen3", hf.Qwen3ForCausalLM, {"head_dim": 16}, {}),
        ("phi3", hf.Phi3ForCausalLM, {"rope_parameters": LONG, "original_max_position_embeddings": 32}, {}),
        ("phi3", hf.Phi3ForCausalLM, {"sliding_window": 6, "original_max_position_embeddings": 64}, {}),
        ("gemma2", hf.Gemma2ForCausalLM, {**GEMMA, "final_logit_softcapping": 2.0}, {}),
        (
            "gemma3",
            hf.Gemma3ForCausalLM,
            {
                **{"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 6, "num_hidden_layers": 7},
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
            {},
        ),
        ("starcoder2", hf.Starcoder2ForCausalLM, {"rope_parameters": {"rope_type": "default", "rope_theta": 70.0}}, {}),
        ("starcoder2", hf.Starcoder2ForCausalLM, {"sliding_window": 6}, {}),
        (
            "stablelm",
            hf.StableLmForCausalLM,
            {
                "rope_parameters": {"rope_type": "default", "rope_theta": 70.0, "partial_rotary_factor": 0.5},
                **{"use_qkv_bias": True, "tie_word_embeddings": False, "use_parallel_residual": True},
            },
            {},
        ),
        (
            "nemotron",
            hf.NemotronForCausalLM,
            {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 2.0,
                    "rope_theta": 70.0,
                    "partial_rotary_factor": 1.0,
                }
            },
            {},
        ),
        (
            "qwen3moe",
            hf.Qwen3MoeForCausalLM,
            {
                **{"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
                **{"norm_topk_prob": True, "intermediate_size": 24},
            },
            {"expert_weights_norm": True, "expert_gating_func": 1},
        ),
        ("gpt2", hf.GPT2LMHeadModel, {"num_key_value_heads": 2, "n_inner": 96}, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_architectures_compute_what_the_network_computes_that_the_file_was_made_of(
    architecture, kind, settings, metadata, tmp_path
):
    torch.manual_seed(0)
    made = kind(kind.config_class(**{**SIZES, **settings})).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.3 if parameter.dim() > 1 else 1 + torch.rand_like(parameter))
    ids = torch.tensor([IDS])
    path = ggufs.write(tmp_path / "tiny.gguf", made, architecture, metadata)
    torch.testing.assert_close(load(path).network(ids).logits, made(ids).logits, rtol=1e-3, atol=1e-3)
