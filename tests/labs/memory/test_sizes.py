"""The sweep over sizes: where the noise lies, when it changes sides, and what the closed form says of it."""

import numpy as np
import pytest

from lesion.progress import Silent
from lesion_labs.memory import run
from lesion_labs.memory.model import codes, descend, mixture
from lesion_labs.memory.result import Flip, SizePlace, Spread
from memories import memory


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CLASSES", (2, 3, 4))
        patch.setattr(run, "NOISES", (0.1, 0.3, 0.5, 0.7))
        patch.setattr(run, "SEEDS", 2)
        return run.sweep(memory(4, None, 24, 0.6, steps=400, draws=4), Silent())


def row(rows, classes, noise, kind="orthonormal", inputs=None):
    wanted = ((classes, inputs or classes, noise), kind)
    (size,) = [size for size in rows if (size.key, size.codes) == wanted]
    return size


def test_every_planned_size_noise_and_kind_of_codes_has_a_row(rows):
    made = {(*size.key, size.codes) for size in rows}
    planned = [(2, 2), (3, 3), (4, 4), (4, 16)]
    noises = (0.1, 0.3, 0.5, 0.6, 0.7)
    assert made == {(m, n, a, k) for m, n in planned for a in noises for k in ("orthonormal", "gaussian")}
    assert len(rows) == len(made)
    assert {size.draws for size in rows if size.codes == "gaussian"} == {2}


def test_the_ratio_of_a_row_is_that_of_the_singular_values_of_a_memory_trained_alone(rows):
    of_codes = codes(memory(4, None, 24, 0.3))
    ((_, coefficients),) = descend([of_codes], mixture(4, 4, 0.3)[None], [400])
    values = np.linalg.svd(of_codes.outputs.T @ coefficients[0] @ of_codes.inputs.T, compute_uv=False)[:4]
    last = row(rows, 4, 0.3).last
    assert last.step == 400
    assert last.side == "top"
    assert last.ratio.mean == pytest.approx(values[0] / values[1])


def test_measured_and_closed_form_agree_at_every_step(rows):
    for size in (size for size in rows if size.codes == "orthonormal"):
        measured = [place.ratio.mean for place in size.places]
        # Where b passes 0 the noise is absent, and its ratio 0.
        np.testing.assert_allclose(measured, size.closed_form.ratios, atol=1e-6)
        assert size.closed_form.ratios[0] == pytest.approx(size.closed_form.first)


def test_four_classes_with_little_noise_begin_with_the_noise_below_and_end_with_it_on_top(rows):
    size = row(rows, 4, 0.3)
    (flip,) = size.flips
    assert flip.to == "top"
    steps = {place.step: place.ratio.mean for place in size.places}
    assert steps[flip.after] < 1 < steps[flip.before]


def test_two_classes_with_much_noise_go_the_other_way(rows):
    (flip,) = row(rows, 2, 0.7).flips
    assert flip.to == "below"
    assert row(rows, 2, 0.5).flips == ()


def test_several_inputs_of_every_class_change_no_ratio(rows):
    for noise in (0.1, 0.5, 0.7):
        ratios = [[place.ratio.mean for place in row(rows, 4, noise, inputs=n).places] for n in (4, 16)]
        np.testing.assert_allclose(*ratios, atol=1e-9)


def test_the_cut_that_cleans_is_on_the_side_of_the_noise(rows):
    for noise in (0.5, 0.6, 0.7):
        four, two = row(rows, 4, noise).cuts, row(rows, 2, noise).cuts
        assert four.without_largest.clean_loss < 0.1 < four.full.clean_loss
        assert four.without_smallest.clean_loss > four.full.clean_loss
        assert two.largest_alone.clean_loss < 0.1 < two.full.clean_loss
        assert two.without_largest.clean_loss > two.full.clean_loss
        for cuts in (four, two):
            assert cuts.random.clean_loss > cuts.full.clean_loss


def test_what_has_no_room_in_the_width_is_left_out():
    assert run.planned(memory(4, None, 6)) == [(2, 2), (3, 3), (4, 4)]
    assert run.planned(memory(3, None, 1, codes="gaussian")) == []
    assert (5, 5) in run.planned(memory(5))


def place(step, low, high):
    ratio = Spread(mean=(low + high) / 2, low=low, high=high)
    return SizePlace(step=step, ratio=ratio, top=0.0, side=None, alignment=0.5)


def test_steps_at_which_draws_disagree_or_tie_are_no_flip():
    assert run.flips([place(1, 0.8, 0.9), place(2, 0.9, 1.1), place(3, 0.7, 0.8)]) == []
    assert run.flips([place(1, 1.0, 1.0), place(2, 1 + 1e-12, 1 + 1e-12), place(3, 1 - 1e-12, 1.0)]) == []
    flips = run.flips([place(1, 0.8, 0.9), place(2, 0.9, 1.1), place(4, 1.2, 1.3), place(8, 0.1, 0.2)])
    assert flips == [Flip(after=1, before=4, to="top"), Flip(after=4, before=8, to="below")]
