"""Training in the recall laboratory: interrupted without a trace, refused for another recipe, measured when due."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import LesionError
from lesion.progress import Silent
from lesion_labs.recall import run
from lesion_labs.recall.data import Source, generated
from lesion_labs.recall.model import FROZEN, forward, initial, preset
from lesion_labs.recall.run import STATE, loss, measured_steps, train
from runs import altered

RECIPE = preset("quick", vocabulary=8, length=16, width=10, measured=10, batch=6, steps=12, noise=0.5)
LANGUAGE = generated(8, 0)


class Impatient(Silent):
    """Interrupts after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left, self.began = steps, []

    def begin(self, model, total, stored, what="answers"):
        self.began.append((total, stored, what))

    def answered(self, count):
        self.left -= count
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("saved_every", [0.0, 1e9])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, monkeypatch, optimiser, saved_every):
    monkeypatch.setattr(run, "SAVED_EVERY", saved_every)
    recipe = altered(RECIPE, optimiser=optimiser)
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    weights, curve, _ = train(recipe, LANGUAGE, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, LANGUAGE, tmp_path / "broken", watcher=Impatient(8))
    watcher = Impatient(99)
    resumed, same_curve, _ = train(recipe, LANGUAGE, tmp_path / "broken", watcher=watcher)
    assert watcher.began == [(12, 7 if saved_every == 0 else 0, "steps")]
    assert all(torch.equal(resumed[name], weights[name]) for name in weights)
    assert same_curve == curve
    assert (tmp_path / "broken" / STATE).read_bytes() == (tmp_path / "whole" / STATE).read_bytes()


def test_training_moves_every_trained_matrix_and_leaves_the_frozen_ones(tmp_path):
    weights, _, _ = train(RECIPE, LANGUAGE, tmp_path)
    before = initial("mlp", 8, 16, 10, 0)
    assert {name for name in weights if torch.equal(weights[name], before[name])} == set(FROZEN)


def test_training_lowers_the_loss_and_is_sgd_with_momentum_and_decay_by_hand(tmp_path):
    recipe = altered(RECIPE, steps=3, falls=False)
    weights, _, _ = train(recipe, LANGUAGE, tmp_path)
    by_hand = {name: tensor.clone() for name, tensor in initial("mlp", 8, 16, 10, 0).items()}
    speed: dict[str, torch.Tensor] = {}
    for batch in Source(recipe, LANGUAGE).batches("training", 0, 3, 6):
        trained = {name: tensor.requires_grad_() for name, tensor in by_hand.items() if name not in FROZEN}
        gradients = torch.autograd.grad(loss(by_hand, batch), list(trained.values()))
        for (name, tensor), gradient in zip(trained.items(), gradients, strict=True):
            step = gradient + 1e-4 * tensor.detach()
            speed[name] = 0.9 * speed[name] + step if name in speed else step
            by_hand[name] = (tensor - 0.03 * speed[name]).detach()
    assert all(torch.allclose(weights[name], by_hand[name], atol=1e-6) for name in weights)


def test_the_loss_is_the_mean_surprise_at_the_questions():
    weights = initial("mlp", 8, 16, 10, 0)
    batch = Source(RECIPE, LANGUAGE).sequences("any", 9)
    logits = forward(weights, batch.tokens, batch.questions).logits.double().numpy()
    places = batch.questions.nonzero().tolist()
    surprise = [
        np.log(np.exp(row).sum()) - row[int(batch.targets[i, t])] for row, (i, t) in zip(logits, places, strict=True)
    ]
    assert float(loss(weights, batch)) == pytest.approx(np.mean(surprise), rel=1e-5)


def test_a_batch_that_asks_nothing_costs_nothing():
    batch = Source(RECIPE, LANGUAGE).sequences("any", 3)
    assert float(loss(initial("mlp", 8, 16, 10, 0), replace(batch, questions=torch.zeros_like(batch.questions)))) == 0


def test_a_state_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / STATE).write_bytes(b"nothing of the kind")
    with pytest.raises(LesionError, match=r"training.safetensors holds no state .* delete the file"):
        train(RECIPE, LANGUAGE, tmp_path)


def test_a_loss_that_is_no_number_ends_the_training(tmp_path):
    with pytest.raises(LesionError, match="not a number any more; train again with a smaller learning rate"):
        train(altered(RECIPE, learning_rate=1e6, steps=40), LANGUAGE, tmp_path)


@given(st.integers(0, 100_000))
def test_measured_steps_hold_the_ends_and_grow_slowly(steps):
    found = measured_steps(steps)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0, steps)
    assert len(found) <= 70
    assert max((later - before for before, later in itertools.pairwise(found)), default=0) <= steps / 20 + 1


def test_the_learning_rate_stays_and_then_falls_to_nothing():
    rates = [altered(RECIPE, steps=100).rate(step) for step in range(100)]
    assert rates[:51] == [0.03] * 51
    assert np.allclose(np.diff(rates[50:]), -0.03 / 50)
    assert rates[-1] == pytest.approx(0.03 / 50)
    assert {altered(RECIPE, steps=100, falls=False).rate(step) for step in range(100)} == {0.03}


def test_the_state_is_json_and_tensors_alone(tmp_path):
    from safetensors import safe_open

    train(RECIPE, LANGUAGE, tmp_path)
    with safe_open(tmp_path / STATE, "pt") as file:
        state = json.loads(file.metadata()["state"])
    assert state["step"] == 12
    assert [point["step"] for point in state["points"]] == measured_steps(12)
