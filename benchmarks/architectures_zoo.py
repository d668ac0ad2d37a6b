"""Zoo: a tiny random network of every decoder that transformers generates with, by its model type.

Each has 4 blocks where its configuration allows it, a residual stream of 32 and a vocabulary of 64, in float32. Sizes
are set where the type's configuration has a setting of that name, so that most new types are covered.
"""

from __future__ import annotations

import string
import warnings
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerFast as Fast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

NAMES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
BLOCKS = 4
LARGE = 4_000_000
WIDE: dict[str, Any] = {
    **{"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "global_head_dim": 32},
    **{"d_model": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "qk_head_dim": 128, "v_head_dim": 64},
    **{"kv_lora_rank": 512, "attention_hidden_size": 128, "attention_head_dim": 64, "conv_dim": 64},
    **{"block_dim": 64, "rotary_dim": 16},
    **{"index_head_dim": 128, "indexer_head_dim": 32, "mamba_d_head": 32, "mamba_head_dim": 32},
    **{"mamba_headdim": 32, "mamba_d_ssm": 128},
}
"""Sizes that vLLM takes: of heads, at least 32."""
_ALWAYS: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": BLOCKS, "num_attention_heads": 4},
    **{"max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
# Windows, chunks and numbers of indexed tokens are shorter than the prompts that tests use, so that they act.
_WHERE_KNOWN: dict[str, Any] = {
    **{"num_key_value_heads": 2, "intermediate_size": 48},
    **{"head_dim": 8, "global_head_dim": 16, "partial_rotary_factor": 0.5, "sliding_window": 6},
    **{"attention_chunk_size": 8, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4, "num_kv_shared_layers": 2},
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    **{"qk_head_dim": 16, "n_routed_experts": 4, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 16, "moe_topk": 2, "shared_expert_intermediate_size": 16, "n_shared_experts": 1},
    **{"num_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "intermediate_size_mlp": 48},
    **{"shared_intermediate_size": 48, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64},
    **{"laurel_rank": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8},
    **{"mamba_d_ssm": 64, "mamba_dt_rank": 4, "n_mamba_heads": 2, "mamba_head_dim": 16, "mamba_num_heads": 4},
    **{"state_size": 8, "ssm_state_size": 8, "num_heads": 4, "n_groups": 1, "expand": 2, "conv_dim": 32},
    **{
        "chunk_size": 8,
        "mamba_chunk_size": 8,
        "lru_width": 32,
        "attention_window_size": 16,
        "conv1d_width": 4,
        "attention_hidden_size": 32,
    },
    **{"decoder_layers": BLOCKS, "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "encoder_layers": 1},
    **{"encoder_attention_heads": 4, "encoder_ffn_dim": 48, "d_model": 32, "embedding_size": 32},
}
_CONV = ["conv", "full_attention"] * 2
_MAMBA, _MAMBA2 = ["mamba", "attention"] * 2, ["mamba", "hybrid"] * 2
# What types need beside that, the types in front; None leaves a setting at the type's own.
_MORE: dict[str, dict[str, Any]] = {
    "axk1 axk2 deepseek_v2 longcat_flash minicpm3 youtu bailing_hybrid": {"num_key_value_heads": 4},
    "deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa": {
        **{"num_key_value_heads": 4, "topk_method": "noaux_tc", "first_k_dense_replace": 1}
    },
    "afmoe": {"score_func": "sigmoid", "route_norm": True},
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen gptj": {"rotary_dim": 4},
    "cpmant": {"dim_ff": 48, "prompt_types": 4, "prompt_length": 4, "segment_types": 4, "dim_head": 8},
    "ctrl": {"dff": 48, "n_positions": 256},
    "glm4_moe": {"head_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 6},
    "granitemoehybrid": {"layer_types": _MAMBA, "layers_block_type": None},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 4, "num_key_value_heads": 4},
    "gemma4_text": {"num_experts": None},
    "lfm2 lfm2_moe": {
        **{"layer_types": _CONV, "block_auto_adjust_ff_dim": False, "conv_dim": 32, "block_dim": 32},
        **{"block_ff_dim": 48},
    },
    "minimax_m2": {"rotary_dim": 4},
    "mamba2": {"head_dim": 16},
    "fuyu": {"intermediate_size": 48},
    "gemma2 gemma3_text": {"query_pre_attn_scalar": 8},
    "mistral": {"sliding_window": None},  # GGUF has no window for it
    "moshi": {"ffn_dim": 96},
    "qwen4_exp_text": {
        **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8},
        **{"indexer_compress_ratio": 2, "hc_lowrank": 8, "ple_embed_dim": 8, "ngram_vocab_size_base": 64},
    },
    "qwen3_moe": {"norm_topk_prob": True},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds": False},
    "roc_bert": {"pronunciation_vocab_size": 16, "shape_vocab_size": 16},
    "xlnet": {"max_position_embeddings": None, "d_inner": 48, "d_head": 8},
    "xlstm": {"hidden_size": 128, "num_heads": 2},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": {
        **{"attn_layer_period": 2, "attn_layer_offset": 1, "attention_hidden_size": 64, "attention_head_dim": 16},
        **{"num_key_value_heads": 4, "head_dim": None, "layers_block_type": None},
    },
    "zamba2": {
        **{"num_key_value_heads": 4, "n_mamba_heads": 4, "mamba_headdim": 16, "layers_block_type": _MAMBA2},
        **{"attention_head_dim": 16, "attention_hidden_size": 64, "head_dim": None},
    },
    "zaya": {"num_experts_per_tok": 1},
}
_VISION = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"depth": 1, "num_heads": 2},
}
# Types that hold a text model of the zoo, with what stands beside it.
_AROUND: dict[str, dict[str, Any]] = {
    "gemma3 qwen3_5 qwen3_5_moe llama4 emu3 mllama qwen4_exp": {"vision_config": _VISION},
    "gemma4 gemma4_unified": {"vision_config": None, "audio_config": None},
}


def _of(kind: str, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return next((own for kinds, own in settings.items() if kind in kinds.split()), {})


def made(kind: str, wide: bool = False) -> PreTrainedModel:
    """The tiny network of a model type: seeded weights so large that logits are far from uniform, in eval mode.

    Args:
        wide: with sizes that vLLM takes.
    """
    config = config_of(kind, wide)
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if size > LARGE:
        raise ValueError(f"The zoo has no tiny configuration for {kind}: {size:,} parameters.")
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        if parameter.dim() >= 2 and "A_log" not in name:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
        elif parameter.dim() == 1:  # biases are not all 0
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    network.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return network


def tokenizer() -> Fast:
    """One token a character, for all types."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", " ", *string.ascii_letters, *"2+=.?!"]
    made = Tokenizer(models.WordLevel({token: number for number, token in enumerate(tokens)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return Fast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def config_of(kind: str, wide: bool = False) -> PreTrainedConfig:
    """The configuration of the tiny network of a model type."""
    default = AutoConfig.for_model(kind)
    known = {*default.to_dict(), *default.attribute_map}
    settings = {**_ALWAYS, **{key: value for key, value in _WHERE_KNOWN.items() if key in known}}
    for key in ("layer_types", "mlp_layer_types", "layers_block_type"):
        kinds = getattr(default, key, None)
        if kinds and not isinstance(getattr(type(default), default.attribute_map.get(key, key), None), property):
            settings[key] = (list(dict.fromkeys(kinds)) * BLOCKS)[:BLOCKS]
    if "is_decoder" in known:
        settings["is_decoder"] = True  # those of encoders would look ahead
    settings |= _of(kind, _MORE)
    if wide:
        single = settings["num_attention_heads"] == settings.get("num_key_value_heads")  # latent attention
        settings |= {key: value for key, value in WIDE.items() if key in settings}
        settings |= {"num_key_value_heads": 2} if single else {}
        settings |= {"head_dim": 64} if {"head_dim", "qk_rope_head_dim"} <= settings.keys() else {}
    text = getattr(default, "text_config", None)
    if text is not None and (around := _of(kind, _AROUND)):
        return AutoConfig.for_model(kind, text_config=config_of(text.model_type, wide).to_dict(), **around)
    return AutoConfig.for_model(kind, **{key: value for key, value in settings.items() if value is not None})
