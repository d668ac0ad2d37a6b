"""The models of `engines.py`: one that exists or random weights of a known shape, as a folder all libraries read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lesion.models.load import Model, load, wrap
from lesion.models.quiet import quiet

QWEN: dict[str, Any] = {"num_key_value_heads": 2, "vocab_size": 151936}
SHAPES: dict[str, dict[str, Any]] = {
    "50m": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 10, "num_attention_heads": 8,
            "num_key_value_heads": 8, "vocab_size": 32000},
    "qwen2.5-0.5b": QWEN | {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                            "num_attention_heads": 14},
    "qwen2.5-1.5b": QWEN | {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
                            "num_attention_heads": 12},
}  # fmt: skip
"""50m is a Llama of 48.6 million parameters with heads of 64; the others have the shapes of the Qwen2.5 models."""


def prepared(name: str, dtype: str, device: str, folder: Path, gain: float) -> tuple[Model, Path]:
    """The model in `dtype` on the CPU, for its anatomy and its tokenizer, and the folder where its weights lie."""
    model = shaped(name, gain, device) if name in SHAPES else load(name, dtype=dtype, device="cpu")
    place = folder / "model"
    network = model.network.to(getattr(torch, dtype))
    with quiet():
        network.save_pretrained(place)
    model.tokenizer.save_pretrained(place)
    return model, place


def shaped(name: str, gain: float, device: str) -> Model:
    """Random weights of a known shape, with the tokenizer of the bundled models.

    Every matrix has a standard deviation of gain / √width. At gain 1 what a block adds is of the size of what it is
    given, so that answers vary with the prompt and with the edit. At the usual 0.02 most models of this kind repeat
    one token whatever is cut out of them, and answers that agree would show nothing.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    shape = SHAPES[name]
    tokenizer = load("bundled:llama-base").tokenizer
    common = {
        "initializer_range": gain * shape["hidden_size"] ** -0.5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(0)
    with torch.device(device):  # a large model is drawn faster where it will run
        network = (
            Qwen2ForCausalLM(Qwen2Config(**shape, **common))
            if name.startswith("qwen")
            else LlamaForCausalLM(LlamaConfig(**shape, **common))
        )
    return wrap(network.cpu(), tokenizer, f"random {name}")
