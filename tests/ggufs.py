"""Small GGUF files, written with the package gguf from tiny networks as llama.cpp's converter writes them."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType, GGUFWriter, quantize

VOCABULARY = [*string.ascii_lowercase, *string.digits, *".,?!:;+-=()", "ab", "Ġ", "Ċ", "<s>", "</s>"]
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TEMPLATE = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"


def llama(width: int = 32, seed: int = 0) -> hf.LlamaForCausalLM:
    """Two blocks with grouped queries, a tied head and seeded weights."""
    torch.manual_seed(seed)
    config = hf.LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=VOCABULARY.index("<s>"),
        eos_token_id=VOCABULARY.index("</s>"),
    )
    return hf.LlamaForCausalLM(config).eval().requires_grad_(False)


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a query or key projection in the order of GGUF, where the two halves of a head alternate."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(
    path: Path,
    network: hf.LlamaForCausalLM,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str = "llama",
    raw: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write a network as a GGUF file whose block matrices are stored in one kind.

    `raw` has bytes for tensors by their names in GGUF, in place of those that `quantize` makes.
    """
    config = network.config
    writer = GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([1] * (len(VOCABULARY) - 2) + [3, 3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied
        weight = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        part = name.split(".")[-2]
        if part in heads:
            weight = interleaved(weight, heads[part])
        gguf_name = _name(name)
        if weight.ndim == 1 or gguf_name == "token_embd.weight":
            writer.add_tensor(gguf_name, weight.astype(np.float32))
        elif raw is not None:
            writer.add_tensor(gguf_name, raw[gguf_name], raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name, quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name(name: str) -> str:
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in ends:
        return ends[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.{_NAMES[rest.removesuffix('.weight')]}.weight"
