"""Truncations of the memory: against the matrix cut by numpy, and where the noise lies."""

from dataclasses import replace

import numpy as np
import pytest

from lesion_labs.memory.model import (
    codes,
    descend,
    equals,
    measure,
    mixture,
    noise_place,
    spectrum,
    targets,
    truncations,
)
from lesion_labs.memory.result import MEASURES
from memories import memory, weight


def prepared(recipe, step=300):
    of_codes = codes(recipe)
    ((_, found),) = descend([of_codes], mixture(recipe.classes, recipe.inputs, recipe.noise)[None], [step])
    return of_codes, found[0], targets(recipe.classes, recipe.inputs)


def rows(recipe, step=300, draws=8):
    of_codes, coefficients, wanted = prepared(recipe, step)
    return truncations(of_codes, spectrum(of_codes, coefficients), wanted, draws, 0)


def row(found, rank, side=None, control=None):
    (one,) = [r for r in found if (r.rank, r.side, r.control) == (rank, side, control)]
    return one


def by_hand(matrix, of_codes, wanted):
    """The measures of a matrix W, input by input."""
    correct, noisy, losses, hits = [], [], [], []
    for i, target in enumerate(wanted):
        logits = of_codes.outputs @ (matrix @ of_codes.inputs[:, i])
        p = np.exp(logits) / np.exp(logits).sum()
        correct.append(p[target])
        noisy.append(p[len(p) - 1])
        losses.append(-np.log(p[target]))
        hits.append(float(np.argmax(p) == target))
    return dict(zip(MEASURES, map(np.mean, (hits, correct, noisy, losses)), strict=True))


def test_every_part_of_the_spectrum_is_w_cut_by_numpy():
    recipe = memory(5, 8, 7, 0.3, "gaussian")
    of_codes, coefficients, wanted = prepared(recipe)
    left, values, right = np.linalg.svd(weight(of_codes, coefficients))
    found = rows(recipe)
    for k in range(6):
        top = (left[:, :k] * values[:k]) @ right[:k]
        bottom = (left[:, 5 - k : 5] * values[5 - k : 5]) @ right[5 - k : 5]
        for side, matrix in (("top", top), ("bottom", bottom)):
            expected = by_hand(matrix, of_codes, wanted)
            if k == 0:  # all logits equal: the argmax is a lottery among six outputs
                expected["clean_accuracy"] = 1 / 6
            one = row(found, k, side)
            assert one.means.model_dump() == pytest.approx(expected, abs=1e-9)
            assert not one.tied
            assert one.keep == k / 5


def test_all_of_the_spectrum_is_the_full_memory_and_none_of_it_is_deletion():
    recipe = memory(4, None, 9, 0.6)
    of_codes, coefficients, wanted = prepared(recipe)
    found = rows(recipe)
    full = by_hand(weight(of_codes, coefficients), of_codes, wanted)
    for side in ("top", "bottom"):
        assert row(found, 4, side).means.model_dump() == pytest.approx(full, abs=1e-9)
        nothing = row(found, 0, control="deletion")
        assert row(found, 0, side).means.model_dump() == pytest.approx(nothing.means.model_dump())
    assert nothing.p_correct.mean == pytest.approx(1 / 5)
    assert nothing.clean_accuracy.mean == pytest.approx(1 / 5)


@pytest.mark.parametrize("inputs", [6, 12])
def test_dropping_the_noise_alone_leaves_the_clean_memory(inputs):
    found = rows(memory(6, inputs, 12, 0.6), 2000)
    assert row(found, 6, "top").clean_accuracy.mean == 0
    assert row(found, 5, "bottom").clean_accuracy.mean == 1
    assert row(found, 5, "bottom").p_noise.mean < 0.01
    assert row(found, 1, "top").p_noise.mean > 0.99


def test_with_two_classes_keeping_the_top_component_is_enough():
    found = rows(memory(2, None, 8, 0.4), 2000)
    one = row(found, 1, "top")
    assert one.clean_accuracy.mean == 1
    assert one.p_noise.mean < 0.05
    assert row(found, 2, "top").p_noise.mean == pytest.approx(0.4, abs=0.01)


def test_a_cut_through_equal_singular_values_is_a_mean_over_draws_and_says_so():
    found = rows(memory(6, None, 12, 0.6), draws=8)
    for k, side, tied in (
        (1, "top", False),
        (2, "top", True),
        (5, "top", True),
        (5, "bottom", False),
        (3, "bottom", True),
    ):
        one = row(found, k, side)
        assert one.tied is tied
        assert one.draws == (8 if tied else 1)
        assert (one.clean_loss.low < one.clean_loss.high) is tied
        assert one.p_noise.low <= one.p_noise.mean <= one.p_noise.high


def test_the_random_control_stands_between_deletion_and_the_whole_and_varies_over_its_draws():
    recipe = memory(3, None, 8, 0.3)
    of_codes, coefficients, wanted = prepared(recipe)
    found = truncations(of_codes, spectrum(of_codes, coefficients), wanted, 400, 0)
    for k in (1, 2):
        one = row(found, k, control="random")
        assert one.draws == 400
        nothing, everything = row(found, 0, control="deletion"), row(found, 3, "top")
        assert nothing.p_correct.mean < one.p_correct.mean < everything.p_correct.mean
        assert one.p_correct.low < one.p_correct.mean < one.p_correct.high


def test_which_basis_of_equal_singular_values_a_processor_returns_changes_no_draw():
    of_codes, coefficients, wanted = prepared(memory(6, None, 12, 0.6))
    parts = spectrum(of_codes, coefficients)
    rng = np.random.default_rng(5)
    turned = np.zeros((len(parts.values), len(parts.values)))
    for group in parts.groups:  # any rotation of equal values, any sign of single ones
        size = group.stop - group.start
        turned[group, group] = np.linalg.qr(rng.normal(size=(size, size)))[0] if size > 1 else -1.0
    other = replace(parts, left=parts.left @ turned, right=turned.T @ parts.right)
    for one, same in zip(
        truncations(of_codes, parts, wanted, 3, 0), truncations(of_codes, other, wanted, 3, 0), strict=True
    ):
        for name in MEASURES:
            assert one.of(name).mean == pytest.approx(same.of(name).mean, abs=1e-9)


def test_equal_logits_are_chosen_among_by_lot():
    logits = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0 + 1e-12]])
    assert measure(logits, np.array([0, 1])).clean_accuracy == pytest.approx((1 / 3 + 1 / 2) / 2)


@pytest.mark.parametrize(
    ("classes", "noise", "side"),
    [(2, 0.3, "bottom"), (3, 0.3, "bottom"), (3, 0.5, "tied"), (3, 0.6, "top"), (4, 0.5, "top"), (20, 0.3, "top")],
)
def test_the_place_of_the_noise_is_named_by_its_side(classes, noise, side):
    of_codes, coefficients, _ = prepared(memory(classes, None, 24, noise))
    place = noise_place(spectrum(of_codes, coefficients))
    assert place.side == side
    if side != "tied":
        assert place.alignment == pytest.approx(classes / (classes + 1), abs=1e-6)
        assert (place.ratio > 1) == (side == "top")


def test_noise_that_w_does_not_hold_is_absent():
    of_codes = codes(memory(3, None, 6))
    assert noise_place(spectrum(of_codes, np.zeros((4, 3)))).side == "absent"
    # At α = 1/(m + 1) the first step leaves the common class where it was: all outputs began as likely as that.
    of_codes, coefficients, _ = prepared(memory(4, None, 9, 0.2), 1)
    assert noise_place(spectrum(of_codes, coefficients)).side == "absent"
    of_codes, coefficients, _ = prepared(memory(4, None, 9, 0.2), 2)
    assert noise_place(spectrum(of_codes, coefficients)).side == "bottom"


def test_equal_values_are_one_group():
    assert equals(np.array([3.0, 2.0, 2.0 - 1e-9, 1.0])) == (slice(0, 1), slice(1, 3), slice(3, 4))
    assert equals(np.array([])) == ()
