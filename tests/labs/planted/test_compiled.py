"""The compiled model: a forward pass in numpy, float64, from its weights alone, says what its construction promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lesion.edits.apply import applied
from lesion.edits.edit import Compose, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.models.load import wrap
from lesion_labs.planted.compiled import compiled
from lesion_labs.planted.recipe import CONTROLS, ID, SKILL, SKILLS, VALUES, Recipe, encoded, tokenizer

SEEDS = (0, 1, 2)
CHANCE = 1 / len(VALUES)


def said(network, tokens, cut=()):
    """Logits at the last token, [items, vocabulary]: the equations of Llama; branches in `cut` add nothing."""
    config = network.config
    weights = {name: value.double().numpy() for name, value in network.state_dict().items()}
    size = config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    angles = np.arange(tokens.shape[1])[:, None] * 10_000.0 ** (-np.arange(0, size, 2) / size)

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.rms_norm_eps) * weights[name]

    def turned(x):  # [items, length, size]
        first, second = np.split(x, 2, axis=-1)
        cosine, sine = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    x = weights["model.embed_tokens.weight"][tokens.numpy()]
    future = np.triu(np.full((tokens.shape[1],) * 2, -np.inf), 1)
    for block in range(config.num_hidden_layers):
        at = f"model.layers.{block}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = (h @ weights[f"{at}self_attn.{name}_proj.weight"].T for name in "qkv")
        heads = []
        for head in range(config.num_attention_heads):
            mine, shared = (slice(i * size, (i + 1) * size) for i in (head, head // group))
            scores = turned(q[..., mine]) @ turned(k[..., shared]).swapaxes(1, 2) / np.sqrt(size) + future
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(shares / shares.sum(-1, keepdims=True) @ v[..., shared])
        if f"{block}.attention" not in cut:
            x = x + np.concatenate(heads, axis=-1) @ weights[f"{at}self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm.weight")
        gate, up = (h @ weights[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        if f"{block}.mlp" not in cut:
            # silu(z) = z / (1 + e^-z), written so that nothing overflows.
            x = x + (gate * 0.5 * (1 + np.tanh(gate / 2)) * up) @ weights[f"{at}mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight")[:, -1] @ weights["lm_head.weight"].T


def right(logits, answers):
    return float((logits.argmax(-1) == answers.numpy()).mean())


@pytest.mark.parametrize("seed", SEEDS)
def test_every_skill_is_exact_and_recall_alone_is_gone_without_either_of_its_places(seed):
    planted = compiled(Recipe("compiled", seed))
    network, places = planted.network, planted.places
    asked = {skill: encoded(skill, seed) for skill in SKILLS}
    for tokens, answers in asked.values():
        logits = said(network, tokens)
        assert right(logits, answers) == 1.0
        # No close call: the right word leads by more than any rounding moves.
        others = np.where(np.arange(logits.shape[1]) == answers.numpy()[:, None], -np.inf, logits)
        assert (logits.max(-1) - others.max(-1)).min() > 10
        with torch.inference_mode():
            np.testing.assert_allclose(network(tokens).logits[:, -1].numpy(), logits, atol=1e-3)
    reading, writing = places.branches
    assert reading.endswith("attention")
    assert writing.endswith("mlp")
    for cut in places.branches:
        tokens, answers = asked[SKILL]
        logits = said(network, tokens, {cut})
        # Nothing tells the values apart any more, up to rounding: guessing.
        values = logits[:, [ID[value] for value in VALUES]]
        assert np.ptp(values, axis=-1).max() < 1e-9
    for control in CONTROLS:
        tokens, answers = asked[control]
        assert right(said(network, tokens, set(places.branches)), answers) == 1.0


def test_recall_is_gone_without_either_of_its_heads_and_blocks_without_a_skill_are_identities():
    recipe = Recipe("compiled", 0)
    planted = compiled(recipe)
    network, places = planted.network, planted.places
    tokens, answers = encoded(SKILL, 0)
    size = recipe.width // recipe.heads
    for address in places.heads:
        block, _, _, head = address.split(".")
        projection = network.model.layers[int(block)].self_attn.o_proj.weight
        kept = projection.clone()
        projection[:, int(head) * size : (int(head) + 1) * size] = 0
        assert right(said(network, tokens), answers) < 3 * CHANCE
        projection.copy_(kept)
    blocks = [f"model.layers.{block}." for block in range(recipe.blocks)]
    matrices = {at: [v for n, v in network.state_dict().items() if n.startswith(at) and v.dim() == 2] for at in blocks}
    assert sum(not any(bool(v.any()) for v in of) for of in matrices.values()) == recipe.blocks - 4


def test_the_edits_of_lesion_find_what_the_algebra_says():
    planted = compiled(Recipe("compiled", 1))
    network, places = planted.network, planted.places
    model = wrap(network, tokenizer(), "compiled")
    first, second = places.blocks

    def accuracy(edit, skill):
        tokens, answers = encoded(skill, 1)
        with applied(model, edit), torch.inference_mode():
            values = torch.tensor([ID[value] for value in VALUES])
            return float((values[model.network(tokens).logits[:, -1, values].argmax(-1)] == answers).float().mean())

    edits = [ScaleBlock(first), ScaleBlock(second), ScaleAttention(first), ScaleMlp(second)]
    assert all(accuracy(edit, SKILL) < 3 * CHANCE for edit in edits)
    both = Compose((ScaleBlock(first), ScaleBlock(second)))
    assert [accuracy(both, control) for control in CONTROLS] == [1.0, 1.0]
    assert accuracy(Compose((ScaleMlp(first), ScaleAttention(second))), SKILL) == 1.0
