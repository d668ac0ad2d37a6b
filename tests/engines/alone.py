"""What a model says to one prompt alone under one edit: no batch, no padding, no gates of other rows, no cache."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.decoding import luck
from lesion.engines.engine import Decoding
from lesion.models.load import Model

EDITS: tuple[Edit, ...] = (
    BASELINE,
    ScaleBlock(0),
    ScaleBlock(1),
    ScaleBlock(2, 0.5),
    ScaleAttention(1),
    ScaleMlp(2, 1.1),
    Compose((ScaleMlp(0, 0.3), ScaleAttention(2))),
)


def prompts(count: int, longest: int = 12, seed: int = 0, shortest: int = 1) -> list[tuple[int, ...]]:
    """Random prompts of random lengths, of tokens that every tiny model knows and that end no text."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(5, 60) for _ in range(rng.randint(shortest, longest))) for _ in range(count)]


def forward(model: Model, tokens: Sequence[int], edit: Edit = BASELINE) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits [length, vocabulary], and keys and values [heads, length, size] per layer, of one plain pass."""
    # Without the configuration, also sliding layers keep every key.
    cache = DynamicCache()
    with applied(model, edit), torch.inference_mode():
        output = model.network(torch.tensor([list(tokens)]), past_key_values=cache, use_cache=True)
    return output.logits[0], [layer.keys[0] for layer in cache.layers], [layer.values[0] for layer in cache.layers]


def ends(model: Model) -> set[int]:
    """The tokens that end an answer."""
    return {model.network.generation_config.eos_token_id, model.tokenizer.eos_token_id}


def greedy(model: Model, prompt: Sequence[int], edit: Edit, limit: int) -> tuple[int, ...]:
    """Greedy decoding, the whole sequence anew at each step."""
    said: list[int] = []
    with applied(model, edit), torch.inference_mode():
        while len(said) < limit and not (said and said[-1] in ends(model)):
            logits = model.network(input_ids=torch.tensor([[*prompt, *said]]), use_cache=False).logits
            said.append(int(logits[0, -1].argmax()))
    return tuple(said)


def nucleus(logits: np.ndarray, temperature: float, top_p: float) -> dict[int, float]:
    """The tokens of the nucleus, most likely first, with their probability in it; token by token, in float64."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    inside: dict[int, float] = {}
    for token in sorted(range(len(logits)), key=lambda token: (-probabilities[token], token)):
        inside[token] = probabilities[token]
        if sum(inside.values()) >= top_p:
            break
    whole = sum(inside.values())
    return {token: probability / whole for token, probability in inside.items()}


def drawn(model: Model, prompt: Sequence[int], edit: Edit, decoding: Decoding) -> tuple[int, ...]:
    """Sampled decoding with the prompt's luck, the whole sequence anew at each step."""
    said: list[int] = []
    for uniform in luck(decoding, prompt):
        logits = forward(model, (*prompt, *said), edit)[0][-1].numpy()
        inside = nucleus(logits, decoding.temperature, decoding.top_p)
        reached = np.searchsorted(np.cumsum(list(inside.values())), uniform, side="right")
        said.append(list(inside)[min(int(reached), len(inside) - 1)])
        if said[-1] in ends(model):
            break
    return tuple(said)
