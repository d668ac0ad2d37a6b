"""The models and texts of the isolation benchmark, the same in every process that it starts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lesion.activations.calibration import Calibration, calibration
from lesion.models.load import Model, load, wrap
from lesion.tasks.catalogue import find

# The published grid (Christ et al. 2024): 8 shares × 5 repeats × 2 control sets, 500 texts a draw.
SHARES = (1e-4, 1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.15)
REPEATS, SAMPLES = 5, 500
TASKS = ("primer:arithmetic", "primer:atlas", "primer:reading")  # the skill, and two control sets
VOCABULARY = 32_000  # of the random model; 151,936 in the original, whose embedding takes no part in an isolation


def qwen(dtype: torch.dtype, device: str) -> Model:
    """A randomly initialised model of the shape of Qwen2.5-0.5B, with the bundled tokenizer and fewer tokens."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = load("bundled:llama-base", device="cpu").tokenizer
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=VOCABULARY, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.device(device):
        network = Qwen2ForCausalLM(config)
    return wrap(network.to(dtype).eval(), tokenizer, "random Qwen2.5-0.5B")


def chosen(name: str, dtype: str, device: str) -> Model:
    """The model that a name stands for: `bundled:llama-base`, `qwen2.5-0.5b`, or whatever `lesion` loads."""
    shapes: dict[str, Callable[[torch.dtype, str], Model]] = {"qwen2.5-0.5b": qwen}
    if name in shapes:
        return shapes[name](getattr(torch, dtype), device)
    return load(name, dtype=dtype, device=device)


def calibrations(model: Model, samples: int, repeats: int) -> list[Calibration]:
    """Calibration texts of the skill and of both control sets."""
    return [calibration(model, find(task), samples, repeats=repeats, style="plain") for task in TASKS]
