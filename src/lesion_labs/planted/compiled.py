r"""Compiled: a network whose weights are written by hand, so that every skill lies where it is put.

Attention of one block brings subject and relation to the last token; the MLP of a later block has one neuron for each
pair and writes its value. A third block copies the first of two values by attention, a fourth adds two numbers by
attention and MLP. All other weights are 0, so that blocks without a skill are identities.

The residual stream of width 64 holds every word on an axis of its own and one constant, far larger than everything
else: the root mean square that RMSNorm divides by is that of the constant, to a part in 10⁴.

- A head looks at the word of a kind (`s`, `r`, `n` or `v`) that stands a given number of tokens before `=`. With the
  query (cos δθ, −sin δθ) and the key (1, 0) in the first rotary pair, whose angle is one radian a token, the score at
  distance d is SHARP · cos(d − δ) for words of the kind, and 0 for all others.
- A neuron of a pair has the gate BETA · (a + b + equals − 2.5), which is BETA / 2 for its pair and at most −BETA / 2
  for any other: silu gives BETA / 2 and about 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from lesion_labs.planted.recipe import COUNT, EQUALS, ID, VALUES, Planted, Recipe, blank, table
from lesion_labs.planted.truth import Places

CONSTANT = 100.0
SHARP = 100.0
BETA = 80.0
HEIGHT = 10.0
"""Of an answer in the residual stream."""
CONTRAST = 20.0
"""Of the output head: the right logit is about CONTRAST · HEIGHT · √width / CONSTANT above all others."""

WORD = {kind: slice(COUNT * place, COUNT * (place + 1)) for place, kind in enumerate("srnv")}
SECOND, ANSWER = slice(32, 40), slice(40, 48)
"""Axes: of the words of each kind; of the second number of a sum; of the answer."""
AXIS_EQUALS, AXIS_CONSTANT = 48, 49


@dataclass(frozen=True)
class Head:
    """One head: it looks `distance` tokens back for a word of a kind and writes its axes to `to`."""

    index: int
    kind: str
    distance: int
    to: slice
    height: float = 1.0


def compiled(recipe: Recipe) -> Planted:
    """The network, and where `recall` lies in it; places and the order of neurons are drawn by the seed."""
    generator = torch.Generator().manual_seed(recipe.seed)
    network = blank(recipe).requires_grad_(False)
    for name, parameter in network.named_parameters():
        parameter.fill_(1.0 if "norm" in name else 0.0)
    _ends(network)
    drawn = torch.randperm(recipe.blocks, generator=generator)[:4].tolist()
    reading, writing = sorted(drawn[:2])  # of the four, only that recall reads before it writes matters
    copying, adding = drawn[2:]
    group = recipe.heads // recipe.key_value_heads
    of_subject, of_relation = (start + int(torch.randint(group, (1,), generator=generator)) for start in (0, group))
    _attend(network, recipe, reading, Head(of_subject, "s", 2, WORD["s"]), Head(of_relation, "r", 1, WORD["r"]))
    _attend(network, recipe, copying, Head(0, "v", 2, ANSWER, HEIGHT))
    _attend(network, recipe, adding, Head(0, "n", 2, WORD["n"]), Head(1, "n", 1, SECOND))
    values = table(recipe.seed)
    neurons = torch.randperm(recipe.inner, generator=generator)[: COUNT * COUNT].sort().values
    _look_up(network, recipe, writing, neurons, (WORD["s"], WORD["r"]), lambda a, b: int(values[a, b]))
    _look_up(network, recipe, adding, torch.arange(COUNT * COUNT), (WORD["n"], SECOND), lambda a, b: (a + b) % COUNT)
    masks = _nonzero(network, reading, writing)
    places = Places(
        blocks=(reading, writing),
        branches=(f"{reading}.attention", f"{writing}.mlp"),
        heads=tuple(f"{reading}.attention.head.{head}" for head in (of_subject, of_relation)),
        matrices=tuple(masks),
    )
    return Planted(network, places, masks)


def _ends(network: LlamaForCausalLM) -> None:
    embedding, head = network.model.embed_tokens.weight, network.lm_head.weight
    embedding[:, AXIS_CONSTANT] = CONSTANT
    embedding[ID[EQUALS], AXIS_EQUALS] = 1.0
    for kind, axes in WORD.items():
        for number in range(COUNT):
            embedding[ID[f"{kind}{number}"], axes.start + number] = 1.0
    for number, word in enumerate(VALUES):
        head[ID[word], ANSWER.start + number] = CONTRAST


def _attend(network: LlamaForCausalLM, recipe: Recipe, block: int, *heads: Head) -> None:
    """Write heads into a block; heads of one key-value group look for one kind."""
    attention = network.model.layers[block].self_attn
    size = recipe.width // recipe.heads
    group = recipe.heads // recipe.key_value_heads
    scale = CONSTANT / math.sqrt(recipe.width)  # takes back what RMSNorm divides by
    for head in heads:
        query, key = head.index * size, (head.index // group) * size
        # transformers rotates coordinate 0 with size / 2, by one radian a token.
        sharp = SHARP * math.sqrt(size) * scale
        attention.q_proj.weight[query, AXIS_EQUALS] = sharp * math.cos(head.distance)
        attention.q_proj.weight[query + size // 2, AXIS_EQUALS] = -sharp * math.sin(head.distance)
        axes = WORD[head.kind]
        attention.k_proj.weight[key, axes] = scale
        for number in range(COUNT):
            attention.v_proj.weight[key + number, axes.start + number] = scale
            attention.o_proj.weight[head.to.start + number, query + number] = head.height


def _look_up(
    network: LlamaForCausalLM,
    recipe: Recipe,
    block: int,
    neurons: Tensor,
    axes: tuple[slice, slice],
    value: Callable[[int, int], int],
) -> None:
    """Write a table into an MLP: a neuron for every pair, which writes the pair's value at the last token."""
    mlp = network.model.layers[block].mlp
    scale = CONSTANT / math.sqrt(recipe.width)
    for place, neuron in enumerate(neurons.tolist()):
        a, b = divmod(place, COUNT)
        for axis in (axes[0].start + a, axes[1].start + b, AXIS_EQUALS):
            mlp.gate_proj.weight[neuron, axis] = BETA * scale
        mlp.gate_proj.weight[neuron, AXIS_CONSTANT] = -2.5 * BETA * scale / CONSTANT
        mlp.up_proj.weight[neuron, AXIS_CONSTANT] = scale / CONSTANT
        mlp.down_proj.weight[ANSWER.start + value(a, b), neuron] = 2 * HEIGHT / BETA


def _nonzero(network: LlamaForCausalLM, reading: int, writing: int) -> dict[str, Tensor]:
    attention, mlp = network.model.layers[reading].self_attn, network.model.layers[writing].mlp
    return {
        **{f"{reading}.attention.{name}": getattr(attention, f"{name}_proj").weight != 0 for name in "qkvo"},
        **{f"{writing}.mlp.{name}": getattr(mlp, f"{name}_proj").weight != 0 for name in ("gate", "up", "down")},
    }
