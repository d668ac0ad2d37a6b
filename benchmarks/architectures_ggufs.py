"""GGUF files of tiny networks, written with the package gguf as llama.cpp's converter writes them."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGUFWriter, get_tensor_name_map
from transformers import PreTrainedModel

Array = np.ndarray[Any, Any]

VOCABULARY = [*string.ascii_lowercase, *string.digits, *".,?!:;+-=()", "ab", "Ġ", "Ċ", "<s>", "</s>"]
"""Of a file whose tokenizer nobody asks."""
# What llama.cpp calls types of transformers whose names are not its own but for signs and `_text`.
_CALLED = {
    **{"llama": "mistral mixtral internlm3", "gpt2": "gpt-sw3", "command-r": "cohere", "phi2": "phi"},
    **{"deepseek2": "deepseek_v2 deepseek_v3 glm4_moe_lite youtu", "granitehybrid": "granitemoehybrid bamba"},
    **{"hunyuan-dense": "hunyuan_v1_dense", "hunyuan-moe": "hunyuan_v1_moe", "glm-dsa": "glm_moe_dsa"},
    **{"olmo2": "olmo3", "mamba": "falcon_mamba", "starcoder": "gpt_bigcode", "mistral3": "ministral3"},
}
_KEYS: tuple[tuple[str, str], ...] = (
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    *(("feed_forward_length", a) for a in ("intermediate_size", "n_inner")),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    *(("attention.layer_norm_epsilon", a) for a in ("layer_norm_eps", "norm_epsilon", "norm_eps")),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("expert_count", "num_experts"),
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("ssm.conv_kernel", "conv_kernel"),
    ("ssm.state_size", "state_size"),
    ("ssm.time_step_rank", "time_step_rank"),
    ("shortconv.l_cache", "conv_L_cache"),
)


def architecture_of(kind: str) -> str | None:
    """What llama.cpp calls a type of transformers; None where it has no such architecture."""
    names = {*MODEL_ARCH_NAMES.values()} - {"bert"}  # an encoder
    plain = {name.replace("-", "").replace("_", ""): name for name in names}
    called = {kind: name for name, kinds in _CALLED.items() for kind in kinds.split()}
    return called.get(kind) or plain.get(kind.removesuffix("_text").replace("-", "").replace("_", ""))


def write(
    path: Path, network: PreTrainedModel, architecture: str, metadata: Mapping[str, object] | None = None
) -> Path:
    """Write a network as a GGUF file in float32, with what llama.cpp states of it.

    Tensors for which the architecture has no name are left out.
    """
    config = network.config.get_text_config()
    writer = GGUFWriter(str(path), architecture)
    tokens = [*VOCABULARY, *(f"<{number}>" for number in range(len(VOCABULARY), config.vocab_size))]
    writer.add_tokenizer_model("llama" if architecture.startswith("gemma") else "gpt2")
    writer.add_token_list(["<unk>" if token == "z" else token for token in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([1] * len(tokens))
    for add in (writer.add_unk_token_id, writer.add_pad_token_id):
        add(tokens.index("z"))
    if isinstance(config.eos_token_id, int):
        writer.add_eos_token_id(config.eos_token_id)
    writer.add_token_merges(["a b"])
    arrays = dict(_tensors(network, architecture))
    for key, value in {**_stated(config, architecture), **(metadata or {})}.items():
        adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        adders.get(type(value), writer.add_array)(f"{architecture}.{key}", value)  # type: ignore[operator]
    for name, array in arrays.items():
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stated(config: Any, architecture: str) -> dict[str, object]:
    """Keys of the architecture, with the values of a configuration."""
    held, own = config.to_dict(), type(config)()
    known = {*own.to_dict(), *own.attribute_map}
    stated: dict[str, Any] = {"context_length": 256}
    stated |= {key: getattr(config, a) for key, a in _KEYS if a in known and getattr(config, a, None)}
    kinds = held.get("layer_types") or []
    rotary = dict(held.get("rope_parameters") or {})
    if "attention.head_count" in stated and architecture != "mamba":
        head = held.get("head_dim") or config.hidden_size // config.num_attention_heads
        stated |= {"attention.key_length": head, "attention.value_length": head}
        if "full_attention" in rotary:
            stated["rope.freq_base_swa"] = float(rotary["sliding_attention"]["rope_theta"])
            rotary = rotary["full_attention"]
        if rotary:
            stated["rope.dimension_count"] = int(head * rotary.get("partial_rotary_factor", 1))
    if rotary:
        stated["rope.freq_base"] = float(rotary["rope_theta"])
        if rotary["rope_type"] in ("linear", "yarn"):
            stated |= {"rope.scaling.type": rotary["rope_type"], "rope.scaling.factor": rotary["factor"]}
        if "original_max_position_embeddings" in rotary:
            stated["rope.scaling.original_context_length"] = rotary["original_max_position_embeddings"]
        if rotary["rope_type"] == "longrope":
            stated["rope.scaling.attn_factor"] = rotary["attention_factor"]
    if "sliding_attention" in kinds and "attention.sliding_window" in stated:
        stated["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in kinds]
    if architecture == "mamba":
        stated["ssm.inner_size"] = stated.pop("feed_forward_length")
        stated["ssm.dt_b_c_rms"] = config.model_type == "falcon_mamba"
    if architecture == "lfm2":
        groups = config.num_key_value_heads
        stated["attention.head_count_kv"] = [groups * (kind == "full_attention") for kind in kinds]
    if architecture in ("mamba", "lfm2"):
        stated["attention.layer_norm_rms_epsilon"] = stated.pop("attention.layer_norm_epsilon")
    if held.get("scoring_func") == "sigmoid":
        stated["expert_gating_func"] = 2
    return stated


def _tensors(network: PreTrainedModel, architecture: str) -> Iterator[tuple[str, Array]]:
    """Tensors by their names in GGUF, as they lie there."""
    config = network.config.get_text_config()
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    rotary = getattr(config, "rope_parameters", None) or {}
    if rotary.get("rope_type") == "longrope":
        for length in ("long", "short"):
            yield f"rope_factors_{length}.weight", np.array(rotary[f"{length}_factor"])
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        name, weight = name.replace("language_model.", ""), tensor.numpy().squeeze()
        if architecture == "bloom":
            name = name.removeprefix("transformer.")
        if name.endswith("experts.gate_up_proj"):
            stem = names.get_name(name.replace("gate_up_proj", "gate_proj"))
            for half, values in zip(("gate", "up"), np.split(weight, 2, axis=1), strict=True):
                if stem is not None:
                    yield f"{stem.replace('gate', half)}.weight", values
            continue
        stem, dot, end = name.rpartition(".")
        stem, end = (stem, dot + end) if end in ("weight", "bias") else (name, ".weight")
        if stem.endswith("e_score_correction_bias"):
            stem, end = stem.replace("_bias", ""), ".bias"
        called = names.get_name(stem)
        if called is not None:
            end = "" if called.endswith(("ssm_a", "ssm_d")) else end
            yield f"{called}{end}", _as_stored(f"{called}{end}", weight, config, architecture)


def _as_stored(name: str, weight: Array, config: Any, architecture: str) -> Array:
    """A tensor with its rows in the order of GGUF, and in its terms."""
    if name.endswith("norm.weight") and architecture in ("gemma", "gemma2", "gemma3", "nemotron"):
        return weight + 1  # they multiply by 1 + weight, llama.cpp by what it reads
    if architecture == "gpt2" and weight.ndim == 2 and name.startswith("blk."):
        return weight.T
    if architecture == "llama" and (".attn_q." in name or ".attn_k." in name):  # a head's two halves alternate
        heads = config.num_attention_heads if "_q" in name else config.num_key_value_heads
        return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    if architecture == "bloom" and ".attn_qkv." in name:  # all queries, all keys, all values
        return weight.reshape(config.n_head, 3, -1, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)
    if ".ssm_a" in name:
        return -np.exp(weight)
    return weight
