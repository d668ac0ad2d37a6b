"""What a model says to one prompt alone under one edit: no batch, no padding, no gates of other rows, no cache."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding
from lesion.engines.sampling import TIE, noise_key
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
    """The tokens of the nucleus, most likely first, with their probability in it; token by token, in float64.

    The smallest set of most likely tokens that reaches `top_p`, with all that are as likely as its last one.
    """
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    inside: dict[int, float] = {}
    for token in sorted(range(len(logits)), key=lambda token: (-probabilities[token], token)):
        if sum(p for other, p in inside.items() if logits[other] > logits[token] + TIE) >= top_p:
            break
        inside[token] = probabilities[token]
    whole = sum(inside.values())
    return {token: probability / whole for token, probability in inside.items()}


def split_mix(state: int, count: int) -> int:
    """The last of the first `count` numbers of SplitMix64 (Steele, Lea and Flood 2014) from this state."""
    word = (1 << 64) - 1
    number = (state + count * 0x9E3779B97F4A7C15) & word
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & word
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & word
    return number ^ (number >> 31)


def noise(key: int, position: int, token: int) -> float:
    """The Gumbel noise of one token, from Python's whole numbers."""
    uniform = ((split_mix(split_mix(key, position + 1), token + 1) >> 12) + 0.5) / 2**52
    return -math.log(-math.log(uniform))


def drawn(model: Model, prompt: Sequence[int], edit: Edit, decoding: Decoding) -> tuple[int, ...]:
    """Sampled decoding with the noise of the prompt, the whole sequence anew at each step."""
    said: list[int] = []
    while len(said) < decoding.max_new_tokens:
        logits = forward(model, (*prompt, *said), edit)[0][-1].numpy()
        inside = nucleus(logits, decoding.temperature, decoding.top_p)
        key = noise_key(decoding.seed, prompt)
        said.append(max(inside, key=lambda token: math.log(inside[token]) + noise(key, len(said), token)))
        if said[-1] in ends(model):
            break
    return tuple(said)
