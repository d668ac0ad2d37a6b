"""Training: descent on the coefficients is descent on W itself, and what the closed form says comes out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion_labs.memory import orthonormal
from lesion_labs.memory.model import (
    codes,
    descend,
    logits,
    measured_steps,
    mixture,
    probabilities,
    rate,
    spectrum,
    targets,
)
from memories import memory, weight


def trained(recipe, steps):
    of_codes = codes(recipe)
    to_learn = mixture(recipe.classes, recipe.inputs, recipe.noise)
    return of_codes, {step: one[0] for step, one in descend([of_codes], to_learn[None], steps)}


def by_autograd(recipe, of_codes, steps):
    """W itself, moved by torch's own gradient of the expected cross-entropy summed over inputs."""
    w_u, w_e = torch.tensor(of_codes.outputs), torch.tensor(of_codes.inputs)
    to_learn = torch.tensor(mixture(recipe.classes, recipe.inputs, recipe.noise))
    moved = torch.zeros(recipe.width, recipe.width, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        loss = -(to_learn * torch.log_softmax(w_u @ moved @ w_e, dim=0)).sum()
        (gradient,) = torch.autograd.grad(loss, moved)
        moved = (moved - rate(of_codes) * gradient).detach().requires_grad_()
    return moved.detach().numpy()


@pytest.mark.parametrize("kind", ["orthonormal", "gaussian"])
@pytest.mark.parametrize("inputs", [3, 7])
def test_the_coefficients_move_as_w_does_under_autograd(kind, inputs):
    recipe = memory(3, inputs, 9, 0.35, kind)
    of_codes, found = trained(recipe, [1, 40])
    for step, one in found.items():
        expected = by_autograd(recipe, of_codes, step)
        np.testing.assert_allclose(weight(of_codes, one), expected, atol=1e-12)
        np.testing.assert_allclose(logits(of_codes, one), of_codes.outputs @ expected @ of_codes.inputs, atol=1e-12)


def test_memories_trained_together_move_as_each_alone():
    recipes = [memory(3, None, 12, noise, kind, seed=s) for s, (noise, kind) in enumerate(
        [(0.1, "orthonormal"), (0.6, "gaussian"), (0.3, "gaussian")]
    )]  # fmt: skip
    made = [codes(recipe) for recipe in recipes]
    together = dict(descend(made, np.stack([mixture(3, 3, r.noise) for r in recipes]), [5, 60]))
    for i, recipe in enumerate(recipes):
        _, alone = trained(recipe, [5, 60])
        for step in (5, 60):
            np.testing.assert_allclose(together[step][i], alone[step], atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(classes=st.integers(2, 12), repeats=st.integers(1, 3), noise=st.floats(0, 0.9))
def test_the_spectrum_with_orthonormal_codes_is_that_of_the_three_numbers(classes, repeats, noise):
    recipe = memory(classes, repeats * classes, 40, noise)
    steps = [1, 3, 150]
    of_codes, found = trained(recipe, steps)
    predicted = orthonormal.singular_values(classes, repeats, noise, steps)
    for (signal, of_noise), one in zip(predicted, found.values(), strict=True):
        expected = sorted([signal] * (classes - 1) + [of_noise], reverse=True)
        values = np.linalg.svd(weight(of_codes, one), compute_uv=False)
        np.testing.assert_allclose(values[:classes], expected, atol=1e-9)
        np.testing.assert_allclose(values[classes:], 0, atol=1e-9)


@pytest.mark.parametrize(("classes", "ratio"), [(2, 0.577), (3, 1.0), (4, 1.342), (20, 4.146)])
def test_half_noise_has_the_late_ratio_from_the_first_step_on(classes, ratio):
    _, found = trained(memory(classes, None, 32, 0.5), [1, 30, 1000])
    for one in found.values():
        values = np.linalg.svd(one, compute_uv=False)
        apart = np.sort(np.abs(values - np.median(values))) if classes > 3 else None
        measured = values[0] / values[1] if classes > 3 else values[-1] / values[0]
        assert measured == pytest.approx(ratio, abs=1e-3)
        assert apart is None or apart[classes - 2] < 1e-9 * values[0]
    assert orthonormal.late_ratio(classes) == pytest.approx(ratio, abs=1e-3)
    assert orthonormal.first_ratio(classes, 0.5) == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize(("noise", "towards"), [(0.2, -1), (0.8, 1)])
@pytest.mark.parametrize("classes", [2, 3, 5, 20])
def test_the_ratio_goes_to_its_late_value_from_the_side_that_the_noise_says(classes, noise, towards):
    steps = [2_000, 20_000, 200_000]
    ratios = [of_noise / signal for signal, of_noise in orthonormal.singular_values(classes, 1, noise, steps)]
    gaps = [towards * (ratio - orthonormal.late_ratio(classes)) for ratio in ratios]
    assert gaps[0] > gaps[1] > gaps[2] > 0


@settings(max_examples=30)
@given(classes=st.integers(2, 60), noise=st.floats(0.001, 0.99))
def test_above_its_threshold_and_only_there_noise_is_on_top_after_the_first_step(classes, noise):
    ((signal, of_noise),) = orthonormal.singular_values(classes, 1, noise, [1])
    assert of_noise / signal == pytest.approx(orthonormal.first_ratio(classes, noise), rel=1e-9, abs=1e-9)
    if abs(noise - orthonormal.threshold(classes)) > 1e-6:
        assert (of_noise > signal) == (noise > orthonormal.threshold(classes))


@pytest.mark.parametrize("kind", ["orthonormal", "gaussian"])
def test_the_trained_memory_predicts_the_mixture(kind):
    recipe = memory(5, 9, 20, 0.3, kind)
    of_codes, found = trained(recipe, [20_000])
    predicted = probabilities(logits(of_codes, found[20_000]))
    np.testing.assert_allclose(predicted, mixture(5, 9, 0.3), atol=2e-3)
    assert (predicted.argmax(axis=0) == targets(5, 9)).all()


def test_a_step_always_descends_however_much_codes_overlap():
    recipe = memory(12, 20, 6, 0.4, "gaussian")
    of_codes = codes(recipe)
    to_learn = mixture(12, 20, 0.4)
    losses = [
        -(to_learn * np.log(probabilities(logits(of_codes, one[0])))).sum()
        for _, one in descend([of_codes], to_learn[None], list(range(1, 200)))
    ]
    assert (np.diff(losses) < 0).all()


def test_measured_steps_are_both_ends_and_evenly_spaced_in_their_logarithm():
    steps = measured_steps(1000, 4)
    assert steps == [1, 10, 100, 1000]
    assert measured_steps(1) == [1]
    assert measured_steps(5) == [1, 2, 3, 4, 5]


def test_orthonormal_codes_are_orthonormal_and_follow_the_seed():
    of = codes(memory(4, 7, 8, seed=3))
    np.testing.assert_allclose(of.output_gram, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(of.input_gram, np.eye(7), atol=1e-12)
    np.testing.assert_array_equal(of.inputs, codes(memory(4, 7, 8, seed=3)).inputs)
    assert not np.allclose(of.inputs, codes(memory(4, 7, 8, seed=4)).inputs)


def test_the_spectrum_is_that_of_w_with_singular_vectors_that_make_it_again():
    recipe = memory(6, 11, 9, 0.3, "gaussian")
    of_codes, found = trained(recipe, [50])
    of = spectrum(of_codes, found[50])
    whole = weight(of_codes, found[50])
    values = np.linalg.svd(whole, compute_uv=False)
    np.testing.assert_allclose(of.values, values[: len(of.values)], atol=1e-10)
    np.testing.assert_allclose((of.left * of.values) @ of.right, whole, atol=1e-10)
    np.testing.assert_allclose(of.left.T @ of.left, np.eye(len(of.values)), atol=1e-10)
    cosines = [np.dot(of.left[:, k], of_codes.outputs[-1]) / np.linalg.norm(of_codes.outputs[-1]) for k in range(3)]
    np.testing.assert_allclose(of.alignment[:3], np.square(cosines), atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(classes=st.integers(3, 12), noise=st.floats(0.2, 0.8))
def test_three_classes_never_flip_and_more_flip_to_the_top_below_the_threshold_alone(classes, noise):
    steps = measured_steps(20_000, 60)
    ratios = [of_noise / signal for signal, of_noise in orthonormal.singular_values(classes, 1, noise, steps)]
    above = [ratio > 1 for ratio in ratios if abs(ratio - 1) > 1e-9]
    if classes == 3:
        assert len(set(above)) <= 1
        assert all(above) == (noise > 0.5) or not above
    elif abs(noise - orthonormal.threshold(classes)) > 1e-6:
        assert above[0] == (noise > orthonormal.threshold(classes))
        assert above == sorted(above)
        assert above[-1]
