"""The first gradient step: against every sequence there is, against autograd, and the slopes of known powers."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lesion_labs.memory import theory
from lesion_labs.memory.theory import NOISE, TRIGGER, TRIGGERS, Setting, exact, levels, sampled, sequences


def by_enumeration(setting):
    """The gradients by going through every sequence, every ȳ and every label, each with its probability."""
    size, length = setting.vocabulary, setting.length
    forward, value = np.zeros(size), np.zeros((size, size))
    total = 0.0
    for recalled in range(2, size):
        for tokens in itertools.product(range(size), repeat=length - 1):
            chance = 1 / (size - 2)
            for t, token in enumerate(tokens):
                if t and tokens[t - 1] == TRIGGER:
                    chance *= {recalled: 1 - setting.noise, NOISE: setting.noise}.get(token, 0.0)
                else:
                    chance *= setting.unigram[token]
            counts = np.bincount([*tokens, TRIGGER], minlength=size)
            for label, of_label in ((recalled, 1 - setting.noise), (NOISE, setting.noise)):
                error = -np.ones(size) / size
                error[label] += 1
                total += chance * of_label
                forward += chance * of_label * error
                value += chance * of_label * np.outer(error, counts / length)
    assert total == pytest.approx(1)
    return forward, value


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(("size", "length"), [(4, 6), (5, 4)])
def test_the_exact_gradients_are_the_mean_over_every_sequence(trigger, size, length):
    setting = Setting(size, 0.3, length, trigger)
    forward, value = by_enumeration(setting)
    found = exact(setting)
    np.testing.assert_allclose(found.feed_forward, forward, atol=1e-12)
    np.testing.assert_allclose(found.value, value, atol=1e-12)


def test_the_gradients_on_a_batch_are_those_of_autograd():
    setting, batch, width, seed = Setting(7, 0.4, 9, "zipf"), 30, 5, 11
    found = sampled(setting, batch, width, seed)
    # The same draws, in the same order; then a network that knows nothing of counts.
    random = np.random.default_rng([seed, setting.vocabulary, TRIGGERS.index("zipf")])
    w_u = torch.tensor(random.standard_normal((7, width)) / width**0.5)
    w_e = torch.tensor(random.standard_normal((7, width)) / width**0.5)
    tokens, labels = sequences(setting, batch, random)
    forward = torch.zeros(width, width, dtype=torch.float64, requires_grad=True)
    value = torch.zeros(width, width, dtype=torch.float64, requires_grad=True)
    hidden_states = w_e[torch.tensor(tokens)]
    attended = hidden_states.mean(dim=1) @ value.T
    last = hidden_states[:, -1]
    logits = (last + attended + last @ forward.T) @ w_u.T
    torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).backward()
    np.testing.assert_allclose(found.feed_forward, (-w_u @ forward.grad @ w_e[TRIGGER]).numpy(), atol=1e-12)
    np.testing.assert_allclose(found.value, (-w_u @ value.grad @ w_e.T).numpy(), atol=1e-12)


def test_sequences_end_with_the_trigger_and_only_the_answer_or_the_noise_follows_it():
    setting = Setting(12, 0.25, 40)
    tokens, labels = sequences(setting, 4000, np.random.default_rng(0))
    assert (tokens[:, -1] == TRIGGER).all()
    for row, label in zip(tokens[:200], labels[:200], strict=True):
        following = {int(b) for a, b in itertools.pairwise(row[:-1]) if a == TRIGGER}
        assert len(following - {NOISE}) <= 1
        assert TRIGGER not in following
        assert label == NOISE or not following - {NOISE} - {int(label)}
    noisy = (labels == NOISE).mean()
    assert abs(noisy - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


def test_large_batches_come_near_the_exact_gradients():
    # At a width of 4,000 codes overlap by .016; what is left is the batch's own noise.
    setting = Setting(6, 0.4, 16)
    found, expected = sampled(setting, 40_000, 4_000, 1), exact(setting)
    np.testing.assert_allclose(found.feed_forward, expected.feed_forward, atol=0.03)
    np.testing.assert_allclose(found.value, expected.value, atol=0.01)


@pytest.mark.parametrize("size", [8, 40, 300])
@pytest.mark.parametrize("noise", [0.2, 0.5, 0.7])
def test_the_signals_are_the_formulas_of_the_derivation(size, noise):
    for trigger in TRIGGERS:
        setting = Setting(size, noise, 50, trigger)
        found = levels(exact(setting))
        share, at = 0.0, float(setting.unigram[TRIGGER])
        for _ in range(48):  # S: positions behind a trigger; the last position is the trigger by force
            share, at = share + at / 50, (1 - at) * float(setting.unigram[TRIGGER])
        assert found.feed_forward == pytest.approx(noise - (1 - noise) / (size - 2))
        assert found.value == pytest.approx((1 - noise) ** 2 * share / (size - 2))


def test_the_feed_forward_signal_does_not_fall_with_the_vocabulary_and_the_value_signal_does():
    far = [10_000, 20_000]
    exactly = {trigger: {size: _formula(size, trigger) for size in far} for trigger in ("constant", "uniform")}
    for trigger, power in (("constant", -1), ("uniform", -2)):
        of = np.array([exactly[trigger][size] for size in far])
        assert theory.slope(far, of) == pytest.approx(power, abs=1e-2)


def _formula(size, trigger):
    """(1 − α)² S / (V − 2) at α = 1/2 with the stationary S: too large a vocabulary for matrices."""
    at = 0.2 if trigger == "constant" else 1 / size
    return 0.25 * (at / (1 + at)) / (size - 2)


@given(power=st.floats(-3, 3), factor=st.floats(0.01, 100))
def test_the_slope_of_a_power_law_is_its_power(power, factor):
    sizes = [16, 32, 100, 512]
    values = factor * np.array(sizes, dtype=float) ** power
    assert theory.slope(sizes, values) == pytest.approx(power, abs=1e-9)
    np.testing.assert_allclose(theory.slope(sizes, values), np.polyfit(np.log(sizes), np.log(values), 1)[0], atol=1e-9)


def test_the_interval_holds_the_true_power_about_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(theory, "RESAMPLES", 300)
    sizes, random = [16, 32, 64, 128, 256, 512], np.random.default_rng(5)
    held = 0
    for trial in range(60):
        values = (1 / np.array(sizes))[:, None] * (1 + 0.1 * random.standard_normal((6, 10)))
        power = theory.interval(sizes, values, trial)
        assert power.low <= power.value <= power.high
        held += power.low <= -1 <= power.high
    assert 48 <= held <= 60  # of .95; ten draws make a bootstrap somewhat narrow


def test_a_signal_that_is_not_above_zero_has_no_slope():
    assert np.isnan(theory.slope([1, 2], np.array([0.5, -0.1])))
    assert np.isnan(theory.interval([1, 2], np.array([[0.5, 0.6], [-0.1, -0.2]]), 0).low)
