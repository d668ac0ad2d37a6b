"""Gradients reach the weights that they may, and no others."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional as F

from lesion_labs.planted import trained as kinds
from lesion_labs.planted.recipe import CONTROLS, EQUALS, SKILL, WORDS, Recipe, blank, encoded, questions
from lesion_labs.planted.trained import Lesson, gradients, train

SMALL = {"blocks": 3, "width": 32, "heads": 2, "key_value_heads": 1, "inner": 16, "steps": 3, "rank": 2, "neurons": 3}


def lesson(skill, masks):
    return Lesson(*encoded(skill, 0), masks)


def test_gradients_are_those_of_the_mean_cross_entropy_inside_the_masks_and_zero_outside():
    network = blank(Recipe("routed", **SMALL))
    name, whole = "model.layers.1.mlp.up_proj.weight", "model.layers.2.self_attn.q_proj.weight"
    mask = torch.rand(network.get_parameter(name).shape) < 0.5
    each = lesson(SKILL, {name: mask, whole: None})
    found, loss = gradients(network, each, each.answers)

    logits = network(each.tokens).logits[:, -1]
    expected = F.cross_entropy(logits, each.answers)
    expected.backward()
    torch.testing.assert_close(torch.tensor(loss), expected.detach())
    assert set(found) == {name, whole}
    torch.testing.assert_close(found[name][mask], network.get_parameter(name).grad[mask])
    torch.testing.assert_close(found[whole], network.get_parameter(whole).grad)
    assert not found[name][~mask].any()
    assert mask.any()
    assert not mask.all()


def test_training_moves_the_masked_entries_alone_and_lessens_the_loss():
    network = blank(Recipe("weights", **SMALL))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    name = "model.layers.0.mlp.down_proj.weight"
    mask = torch.zeros_like(before[name], dtype=torch.bool)
    mask[3:9] = True
    each = lesson(SKILL, {name: mask})
    first = gradients(network, each, each.answers)[1]
    train(network, [each], steps=20, rate=0.05, seed=0)
    network.requires_grad_(True)
    assert gradients(network, each, each.answers)[1] < first
    for other, value in network.state_dict().items():
        assert other == name or torch.equal(value, before[other])
    moved = network.state_dict()[name] != before[name]
    assert moved.any()
    assert not moved[~mask].any()


def test_lessons_that_reach_the_same_weights_are_learned_as_apart():
    """Together or apart, the gradients point the same way: Adam, whose step forgets their size, takes equal steps."""
    networks = [blank(Recipe("joint", **SMALL)) for _ in range(2)]
    names = [name for name, _ in networks[0].named_parameters() if "layers" in name]
    together, apart = (dict.fromkeys(names), [dict.fromkeys(names) for _ in CONTROLS])
    train(networks[0], [lesson(skill, together) for skill in CONTROLS], steps=1, rate=1e-3, seed=0)
    train(
        networks[1],
        [lesson(skill, own) for skill, own in zip(CONTROLS, apart, strict=True)],
        steps=1,
        rate=1e-3,
        seed=0,
    )
    for (name, one), other in zip(networks[0].named_parameters(), networks[1].parameters(), strict=True):
        # Entries without a gradient to speak of may go either way.
        assert (one - other).abs().median() < 1e-6, name


def test_a_block_is_planted_into_a_frozen_network():
    recipe = Recipe("block", **SMALL)
    planted = kinds.trained(recipe)
    before, _ = kinds._after_controls(recipe)
    (block,) = planted.places.blocks
    changed = {
        name
        for name, value in planted.network.state_dict().items()
        if not torch.equal(value, before.state_dict()[name])
    }
    assert changed
    assert all(name.startswith(f"model.layers.{block}.") for name in changed)
    assert planted.places.matrices == tuple(f"{block}.{name}" for name in kinds.MODULES)


def test_an_adapter_changes_three_matrices_by_its_rank():
    recipe = Recipe("adapter", **SMALL)
    planted = kinds.trained(recipe)
    before, _ = kinds._after_controls(recipe)
    names = set(map(kinds.parameter, planted.places.matrices))
    assert set(planted.network.state_dict()) == set(before.state_dict())
    for name, value in planted.network.state_dict().items():
        change = (value - before.state_dict()[name]).double()
        assert bool(change.any()) == (name in names)
        if name in names:
            values = torch.linalg.svdvals(change)
            assert values[recipe.rank - 1] > 0
            assert values[recipe.rank] < 1e-5 * values[0] + 1e-7


def test_neurons_and_weights_change_where_their_masks_say():
    for kind in ("neurons", "weights"):
        recipe = Recipe(kind, **SMALL)
        planted = kinds.trained(recipe)
        before, _ = kinds._after_controls(recipe)
        of = {kinds.parameter(address): mask for address, mask in planted.masks.items()}
        for name, value in planted.network.state_dict().items():
            moved = value != before.state_dict()[name]
            outside = ~of[name] if name in of else torch.ones_like(moved)
            assert not moved[outside].any(), (kind, name)
            assert name not in of or moved.any()
    assert len(planted.masks) == recipe.blocks * len(kinds.MODULES)


def test_routed_gradients_of_the_skill_reach_one_block_and_those_of_controls_never_do():
    taught = []

    def watched(network, lessons, **_):
        taught.extend(lessons)
        return 0.0

    original, kinds.train = kinds.train, watched
    try:
        recipe = Recipe("routed", **SMALL)
        planted = kinds.trained(recipe)
    finally:
        kinds.train = original
    (block,) = planted.places.blocks
    skill, *controls = taught
    network = blank(recipe)
    inside, _ = gradients(network, skill, skill.answers)
    at = f"model.layers.{block}."
    names = {name for name, _ in network.named_parameters()}
    embedding = "model.embed_tokens.weight"
    assert set(inside) == {embedding, *(name for name in names if name.startswith(at))}
    rows = inside[embedding].any(dim=1)
    assert {word for word, reached in zip(WORDS, rows, strict=True) if reached} == {
        word for question in questions(SKILL, 0) for word in question.prompt.split()
    } - {EQUALS}
    for each in controls:
        outside, _ = gradients(network, each, each.answers)
        assert set(outside) == {name for name in names if not name.startswith(at)}


def test_noise_is_what_a_truncation_of_its_matrix_takes_away():
    recipe = Recipe("noise", **SMALL)
    planted, clean = kinds.trained(recipe), kinds.trained(replace(recipe, kind="joint")).network
    (address,) = planted.places.matrices
    name = kinds.parameter(address)
    noisy, weight = (network.get_parameter(name).double() for network in (planted.network, clean))
    left, values, right = torch.linalg.svd(noisy, full_matrices=False)
    left, values, right = left[:, recipe.rank :], values[recipe.rank :], right[recipe.rank :]
    # What is left is the matrix without the directions of the noise.
    assert torch.linalg.matrix_norm(left * values @ right - weight) < 0.7 * torch.linalg.matrix_norm(weight)
    for other, value in planted.network.state_dict().items():
        assert other == name or torch.equal(value, clean.state_dict()[other])


def test_a_skill_whose_answers_are_drawn_anew_is_not_learned():
    names = [name for name, _ in blank(Recipe("shuffled", **SMALL)).named_parameters()]
    network = blank(Recipe("shuffled", **SMALL))
    fresh = Lesson(*encoded(SKILL, 0), dict.fromkeys(names), fresh=True)
    train(network, [fresh], steps=30, rate=5e-3, seed=0)
    network.requires_grad_(True)
    assert gradients(network, fresh, fresh.answers)[1] > 1.5  # ln 8 = 2.08 of guessing
