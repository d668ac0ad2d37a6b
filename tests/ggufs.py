"""Small GGUF files of tiny Llamas, written with the package gguf as llama.cpp's converter writes them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quantize

from architectures_ggufs import VOCABULARY

_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
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
    metadata: Mapping[str, object] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    general: Mapping[str, object] | None = None,
) -> Path:
    """Write a network as a GGUF file whose block matrices are stored in one kind.

    `raw` has bytes for tensors by their names in GGUF, in place of those that `quantize` makes. `metadata` are further
    keys of the architecture (floats, whole numbers, flags, texts or lists), `general` those that are not of
    it, `tensors` further tensors.
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
    if "rope.freq_base" not in (metadata or {}):
        writer.add_rope_freq_base(10000.0)
    _state(writer, {f"{architecture}.{key}": value for key, value in (metadata or {}).items()} | dict(general or {}))
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values.astype(np.float32))
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
        if part in heads and weight.ndim == 2 and architecture == "llama":
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


def _state(writer: GGUFWriter, values: Mapping[str, object]) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in values.items():
        adders.get(type(value), writer.add_array)(key, value)


def _name(name: str) -> str:
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in ends:
        return ends[name]
    _, _, block, rest = name.split(".", 3)
    return f"blk.{block}.{_NAMES[rest.removesuffix('.weight')]}.weight"


def computed(path: Path, ids: list[int], rotary: Callable[[int], np.ndarray], scale: float = 1.0) -> np.ndarray:
    """Logits [length, vocabulary] of a file of the architecture llama, in float64 from its tensors as they lie in it.

    `rotary` gives the angles of a position, one for each pair of neighbours in a head; `scale` multiplies their sine
    and cosine.
    """
    reader = GGUFReader(path)
    tensors = {tensor.name: tensor.data.astype(np.float64) for tensor in reader.tensors}

    def number(key: str) -> float:
        return float(reader.fields[f"llama.{key}"].contents())

    heads, groups = int(number("attention.head_count")), int(number("attention.head_count_kv"))
    epsilon = number("attention.layer_norm_rms_epsilon")

    def norm(stream: np.ndarray, name: str) -> np.ndarray:
        return stream / np.sqrt((stream**2).mean(-1, keepdims=True) + epsilon) * tensors[f"{name}.weight"]

    def linear(stream: np.ndarray, name: str) -> np.ndarray:
        return stream @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0)

    def turned(vectors: np.ndarray) -> np.ndarray:
        """Each head of [length, heads, size] with its pairs turned by the angles of its position."""
        out = vectors.copy()
        for position in range(len(vectors)):
            angles = rotary(position)
            for pair, angle in enumerate(angles):
                first, second = vectors[position, :, 2 * pair], vectors[position, :, 2 * pair + 1]
                cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
                out[position, :, 2 * pair] = first * cosine - second * sine
                out[position, :, 2 * pair + 1] = first * sine + second * cosine
        return out

    stream = tensors["token_embd.weight"][ids]
    length = len(ids)
    for block in range(int(number("block_count"))):
        normed = norm(stream, f"blk.{block}.attn_norm")
        query = turned(linear(normed, f"blk.{block}.attn_q").reshape(length, heads, -1))
        key = turned(linear(normed, f"blk.{block}.attn_k").reshape(length, groups, -1))
        value = linear(normed, f"blk.{block}.attn_v").reshape(length, groups, -1)
        mixed = np.zeros_like(query)
        for head in range(heads):
            group = head // (heads // groups)
            for position in range(length):
                scores = key[: position + 1, group] @ query[position, head] / np.sqrt(query.shape[-1])
                shares = np.exp(scores - scores.max())
                mixed[position, head] = shares / shares.sum() @ value[: position + 1, group]
        stream = stream + linear(mixed.reshape(length, -1), f"blk.{block}.attn_output")
        normed = norm(stream, f"blk.{block}.ffn_norm")
        gate = linear(normed, f"blk.{block}.ffn_gate")
        gated = gate / (1 + np.exp(-gate)) * linear(normed, f"blk.{block}.ffn_up")
        stream = stream + linear(gated, f"blk.{block}.ffn_down")
    return norm(stream, "output_norm") @ tensors["token_embd.weight"].T
