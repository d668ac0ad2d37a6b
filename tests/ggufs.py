"""Small GGUF files, written with the package gguf from tiny networks as llama.cpp's converter writes them."""

import string
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFReader, GGUFWriter, get_tensor_name_map, quantize

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


def write_as(
    path: Path, network: hf.PreTrainedModel, architecture: str, metadata: Mapping[str, object] | None = None
) -> Path:
    """Write a network of any architecture that needs no turning of its matrices, with what llama.cpp states of it."""
    config = network.config
    blocks = config.num_hidden_layers
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(arch, blocks)
    writer = GGUFWriter(str(path), architecture)
    writer.add_tokenizer_model("llama" if architecture.startswith("gemma") else "gpt2")
    writer.add_token_list(["<unk>" if token == "z" else token for token in VOCABULARY])
    writer.add_token_scores([0.0] * len(VOCABULARY))
    writer.add_token_types([1] * len(VOCABULARY))
    for add in (writer.add_unk_token_id, writer.add_pad_token_id):
        add(VOCABULARY.index("z"))
    writer.add_token_merges(["a b"])
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    own = getattr(config, "rope_parameters", None) or {}
    rotary = own.get("full_attention", own)
    stated: dict[str, object] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": blocks,
        "attention.head_count": config.num_attention_heads,
        "attention.key_length": head,
        "attention.value_length": head,
    }
    for key, attribute in (
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        *(("attention.layer_norm_epsilon", a) for a in ("layer_norm_eps", "norm_epsilon", "norm_eps")),
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        ("attention.sliding_window", "sliding_window"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ):
        if getattr(config, attribute, None):
            stated[key] = getattr(config, attribute)
    if rotary:
        stated["rope.freq_base"] = float(rotary["rope_theta"])
        stated["rope.dimension_count"] = int(head * rotary.get("partial_rotary_factor", 1))
        if rotary["rope_type"] in ("linear", "yarn"):
            stated |= {"rope.scaling.type": rotary["rope_type"], "rope.scaling.factor": rotary["factor"]}
        if "original_max_position_embeddings" in rotary:
            stated["rope.scaling.original_context_length"] = rotary["original_max_position_embeddings"]
        if rotary["rope_type"] == "longrope":
            stated["rope.scaling.attn_factor"] = rotary["attention_factor"]
            writer.add_tensor("rope_factors_long.weight", np.array(rotary["long_factor"], np.float32))
            writer.add_tensor("rope_factors_short.weight", np.array(rotary["short_factor"], np.float32))
    _state(writer, {f"{architecture}.{key}": value for key, value in (stated | dict(metadata or {})).items()})
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = tensor.numpy()
        if "norm" in name and name.endswith("weight") and architecture in ("gemma2", "gemma3", "nemotron"):
            weight = weight + 1  # they multiply by 1 + weight, llama.cpp by what it reads
        if architecture == "gpt2" and weight.ndim == 2 and ".h." in name:
            weight = weight.T
        if name.endswith("experts.gate_up_proj"):
            block = name.split(".")[2]
            gate, up = np.split(weight, 2, axis=1)
            writer.add_tensor(f"blk.{block}.ffn_gate_exps.weight", np.ascontiguousarray(gate))
            writer.add_tensor(f"blk.{block}.ffn_up_exps.weight", np.ascontiguousarray(up))
            continue
        stem, dot, end = name.rpartition(".")
        stem, end = (stem, dot + end) if end in ("weight", "bias") else (name, ".weight")
        writer.add_tensor(f"{names.get_name(stem)}{end}", np.ascontiguousarray(weight, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
