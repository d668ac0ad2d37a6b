"""The models of `accelerator.py`: random weights in known shapes, made where they run, and what a step costs."""

from __future__ import annotations

from typing import Any

import torch

from lesion.models.load import Model, load, wrap

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 2048, "tie_word_embeddings": True},
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
"""0.5b and 7b have the shapes of Qwen2.5-0.5B and Qwen2.5-7B."""


def shaped(name: str, device: str, dtype: torch.dtype, gain: float = 1.0) -> Model:
    """Random weights of a known shape, with the tokenizer of the bundled models; nothing ends an answer.

    Every matrix has a standard deviation of gain / √width. At gain 1 what a block adds is of the size of what it is
    given, so that answers vary with the prompt and with the edit; a small gain lets most edits say the same.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = SHAPES[name]
    tokenizer = load("bundled:llama-base", device="cpu").tokenizer
    tokenizer.eos_token = None
    config = Qwen2Config(
        **shape,
        initializer_range=gain * shape["hidden_size"] ** -0.5,
        max_position_embeddings=1024,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            network = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    network.generation_config.eos_token_id = None
    return wrap(network, tokenizer, f"random {name}")


def prompts(model: Model, count: int, length: int, shared: int = 0) -> list[tuple[int, ...]]:
    """Random tokens; the first `shared` are the same in all prompts."""
    drawn = torch.Generator().manual_seed(1)
    vocabulary = model.network.config.vocab_size
    first = torch.randint(3, vocabulary, (shared,), generator=drawn).tolist()
    rest = torch.randint(3, vocabulary, (count, length - shared), generator=drawn).tolist()
    return [(*first, *row) for row in rest]


def floor(model: Model, rows: int, held: float, ceilings: dict[str, float]) -> dict[str, float]:
    """Seconds that a step cannot go below: bytes over the bandwidth, operations over the rate, the larger of both.

    Args:
        held: tokens that a row holds on average.
        ceilings: measured `bytes` and `operations` a second.
    """
    config, width = model.network.config, model.dtype.itemsize
    blocks = sum(p.numel() for block in model.anatomy.blocks for p in block.module.parameters())
    weights = blocks + config.vocab_size * config.hidden_size  # every row's embedding is a row of its own: nothing
    size = config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * size * width
    read = weights * width + rows * held * per_token
    operations = 2 * weights * rows + 4 * rows * held * config.num_hidden_layers * config.hidden_size
    seconds = {"bytes": read / ceilings["bytes"], "operations": operations / ceilings["operations"]}
    return {**seconds, "floor": max(seconds.values()), "weight_bytes": float(weights * width), "token_bytes": per_token}
