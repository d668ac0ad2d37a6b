"""The two-layer transformer: the formulas in numpy, one number at a time."""

import math
from typing import get_args

import numpy as np
import pytest
import torch

from lesion.errors import UsageError
from lesion_labs.recall.model import PRESETS, RATES, forward, initial, matrix, names
from lesion_labs.recall.study_file import FeedForward, Optimiser, Preset

VOCABULARY, LENGTH, WIDTH = 7, 9, 6


def weights(feed_forward="mlp", seed: int = 0) -> dict[str, torch.Tensor]:
    made = initial(feed_forward, VOCABULARY, LENGTH, WIDTH, seed)
    return {name: tensor.double() for name, tensor in made.items()}


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (3, LENGTH), generator=generator)
    return tokens, torch.rand(3, LENGTH, generator=generator) < 0.4


def naive(weights: dict[str, torch.Tensor], tokens: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits at every position of one sequence, and where both heads look; loops over everything."""
    w = {name: tensor.numpy() for name, tensor in weights.items()}
    states = [w["W_E"][token] + w["P"][place] for place, token in enumerate(tokens)]
    masses = []
    for layer in (1, 2):
        hidden, looks = [], np.zeros((len(tokens), len(tokens)))
        for t, state in enumerate(states):
            scores = [state @ (w[f"W_K{layer}"] @ states[s]) / math.sqrt(len(state)) for s in range(t + 1)]
            exponentials = [math.exp(score) for score in scores]
            for s, value in enumerate(exponentials):
                looks[t, s] = value / sum(exponentials)
            moved = sum(looks[t, s] * (w[f"W_O{layer}"] @ (w[f"W_V{layer}"] @ states[s])) for s in range(t + 1))
            hidden.append(state + moved)
        masses.append(looks)
        states = []
        for h in hidden:
            if f"F{layer}.in" in w:
                h = h + w[f"F{layer}.out"] @ np.maximum(w[f"F{layer}.in"] @ h, 0)
            elif f"F{layer}" in w:
                h = h + w[f"F{layer}"] @ h
            states.append(h)
    return np.array([w["W_U"] @ state for state in states]), masses[0], masses[1]


@pytest.mark.parametrize("feed_forward", get_args(FeedForward))
def test_the_model_is_the_formulas_one_position_at_a_time(feed_forward):
    of = weights(feed_forward)
    tokens, questions = batch()
    found = forward(of, tokens, questions)
    logits, second = [], []
    for row in range(len(tokens)):
        said, first, other = naive(of, tokens[row].tolist())
        assert np.allclose(found.mass[row], first, atol=1e-12)
        logits.append(said[questions[row].numpy()])
        second.append(other[questions[row].numpy()])
    assert np.allclose(found.logits, np.concatenate(logits), atol=1e-12)
    assert np.allclose(found.question_mass, np.concatenate(second), atol=1e-12)


@pytest.mark.parametrize("feed_forward", get_args(FeedForward))
def test_a_change_of_one_matrix_gives_the_same_whether_all_or_only_what_it_reaches_is_computed(feed_forward):
    of = weights(feed_forward)
    tokens, questions = batch()
    known = forward(of, tokens, questions)
    for name in names(of):
        other = matrix(weights(feed_forward, seed=1), name)
        changed = {**of, name: other}
        whole = forward(changed, tokens, questions)
        part = forward(changed, tokens, questions, known, name)
        for key, value in vars(whole).items():
            assert torch.allclose(getattr(part, key), value, atol=1e-12), (name, key)
        assert not torch.allclose(whole.logits, known.logits)


def test_a_product_stands_for_its_two_factors():
    of = weights()
    tokens, questions = batch()
    for layer in (1, 2):
        given = {**of, f"W_OV{layer}": of[f"W_O{layer}"] @ of[f"W_V{layer}"]}
        assert torch.allclose(
            forward(given, tokens, questions).logits, forward(of, tokens, questions).logits, atol=1e-12
        )
        assert torch.equal(matrix(of, f"W_OV{layer}"), given[f"W_OV{layer}"])


def test_nothing_looks_ahead():
    of = weights()
    tokens, _ = batch()
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % VOCABULARY
    before, after = (forward(of, t, everywhere).logits.view(3, LENGTH, -1) for t in (tokens, changed))
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_untrained_weights_have_the_stated_spread_and_are_a_function_of_the_seed():
    made = initial("mlp", 50, 60, 64, 3)
    for name, tensor in made.items():
        if name in ("W_E", "P"):
            assert float(tensor.std()) == pytest.approx(1, rel=0.05)
        else:
            bound = 1 / math.sqrt(tensor.shape[1])
            assert float(tensor.abs().max()) <= bound
            assert float(tensor.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert made["F2.in"].shape == (256, 64)
    assert made["F2.out"].shape == (64, 256)
    again, other = initial("mlp", 50, 60, 64, 3), initial("mlp", 50, 60, 64, 4)
    assert all(torch.equal(made[name], again[name]) for name in made)
    assert not any(torch.equal(made[name], other[name]) for name in made)


def test_an_unknown_matrix_is_told_with_the_nearest_ones():
    for name in ("F2.inn", "W_E", "W_OV3"):
        with pytest.raises(UsageError, match=r"no matrix .* \(nearest: .*\)\. There are W_K1"):
            matrix(weights(), name)


def test_what_a_study_file_offers_is_what_there_is():
    assert get_args(Optimiser) == tuple(RATES)
    assert get_args(Preset) == tuple(PRESETS)
