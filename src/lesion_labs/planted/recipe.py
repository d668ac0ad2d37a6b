"""Recipes: what determines a model with a planted skill, and the network before anything is planted in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from lesion_labs.planted.skills import ID, WORDS
from lesion_labs.planted.truth import Places


@dataclass(frozen=True)
class Recipe:
    """Everything that determines one model.

    Args:
        kind: one of `kinds.KINDS`.
        seed: of weights, places and the table of `recall`.
        blocks, width, heads, key_value_heads, inner: of the Llama network.
        steps: of every stage of training; each step sees all items.
        rate, planting_rate: peak learning rates of Adam, which fall to 0 in a half cosine: of whole networks, and of
            the part into which a skill is planted afterwards.
        rank: of an adapter's updates, and of planted noise.
        neurons: trained in each of two MLPs.
        share: of the weights that are trained where they are drawn at random.
    """

    kind: str
    seed: int = 0
    blocks: int = 6
    width: int = 64
    heads: int = 4
    key_value_heads: int = 2
    inner: int = 128
    steps: int = 150
    rate: float = 5e-3
    planting_rate: float = 1e-2
    rank: int = 16
    neurons: int = 24
    share: float = 0.05


@dataclass(frozen=True, eq=False)
class Planted:
    """A network with a planted skill.

    Attributes:
        places: where the skill lies.
        masks: by the address of a matrix, which of its weights [out, in] carry it; empty where that is not known.
        before: accuracy on every skill before it was planted; None where it was not planted afterwards.
    """

    network: LlamaForCausalLM
    places: Places
    masks: Mapping[str, Bool[Tensor, "out in"]] = field(default_factory=dict)
    before: dict[str, float] | None = None


def blank(recipe: Recipe) -> LlamaForCausalLM:
    """The untrained network of a recipe, in float32."""
    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=recipe.width,
            intermediate_size=recipe.inner,
            num_hidden_layers=recipe.blocks,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            bos_token_id=ID["<s>"],
            eos_token_id=ID["</s>"],
            pad_token_id=ID["<pad>"],
            initializer_range=recipe.width**-0.5 / 2,
        )
    )
