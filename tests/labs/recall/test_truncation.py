"""The truncation sweep: best approximations by numpy, projections by their algebra, every row by a full run."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion_labs.recall.data import generated
from lesion_labs.recall.measurement import Decomposition, Examination, cuts, replaced, sweep
from lesion_labs.recall.model import initial, matrix, names, preset
from lesion_labs.recall.result import Cut
from runs import altered

RECIPE = preset("quick", vocabulary=8, length=16, width=10, measured=20, keep=(0.0, 0.3, 1.0), draws=2)
WEIGHT = torch.randn(10, 40, generator=torch.Generator().manual_seed(0))


@given(st.integers(2, 7), st.integers(2, 7), st.integers(0, 7), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_truncation_is_numpys_best_approximation_and_both_sides_add_up_to_the_whole(rows, columns, rank, seed):
    rank = min(rank, rows, columns)
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    parts = Decomposition.of(weight)
    left, values, right = np.linalg.svd(weight.double().numpy(), full_matrices=False)
    top, bottom = parts.kept(rank), parts.kept(parts.rank - rank, "bottom")
    assert np.allclose(top, (left[:, :rank] * values[:rank]) @ right[:rank])
    assert np.allclose(top + bottom, weight.double())
    # Eckart and Young: what is missing has the norm of the values left out.
    assert np.linalg.norm(weight.double() - top) == pytest.approx(np.linalg.norm(values[rank:]), abs=1e-9)


@pytest.mark.parametrize("weight", [WEIGHT, WEIGHT.T.contiguous()])
def test_a_random_projection_acts_on_the_narrow_side_has_its_rank_and_is_a_projection(weight):
    parts = Decomposition.of(weight)
    made = parts.projected(4, seed=1, draw=0).numpy()
    whole = weight.double().numpy()
    projection = made @ np.linalg.pinv(whole) if whole.shape[0] < whole.shape[1] else np.linalg.pinv(whole) @ made
    assert np.allclose(projection, projection.T)
    assert np.allclose(projection @ projection, projection)
    assert np.trace(projection) == pytest.approx(4)


def test_random_projections_keep_on_average_the_share_of_the_square_norm_that_they_keep_of_the_rank():
    parts = Decomposition.of(WEIGHT)
    shares = [float(parts.projected(3, 0, draw).square().sum() / WEIGHT.double().square().sum()) for draw in range(400)]
    assert np.mean(shares) == pytest.approx(0.3, abs=5 * np.std(shares) / 20)
    assert not np.allclose(parts.projected(3, 0, 0), parts.projected(3, 0, 1))
    assert np.array_equal(parts.projected(3, 0, 1), parts.projected(3, 0, 1))


def _cut(matrix, keep, rank, side, control=None):
    return Cut(matrix=matrix, keep=keep, rank=rank, side=side, control=control)


def test_keeping_all_leaves_the_very_same_matrix_and_nothing_leaves_zero():
    parts = Decomposition.of(WEIGHT)
    assert replaced(_cut("F2.out", 1.0, 10, "top"), parts, WEIGHT, 0) is WEIGHT
    assert not replaced(_cut("F2.out", 0.0, 0, "top", "deletion"), parts, WEIGHT, 0).any()
    without = replaced(_cut("F2.out", None, 9, "bottom", "drop-top"), parts, WEIGHT, 0)
    top = parts.values[0] * torch.outer(parts.left[:, 0], parts.right[0])
    assert torch.allclose(without.double(), WEIGHT.double() - top, atol=1e-6)


def test_every_matrix_gets_each_fraction_from_both_sides_and_all_controls():
    found = list(cuts("F2.in", 10, RECIPE))
    assert [cut for cut in found if cut.control == "deletion"] == [_cut("F2.in", 0.0, 0, "top", "deletion")]
    assert [cut for cut in found if cut.control == "drop-top"] == [_cut("F2.in", None, 9, "bottom", "drop-top")]
    plain = [(cut.keep, cut.rank, cut.side) for cut in found if cut.control is None]
    assert plain == [(keep, rank, side) for keep, rank in ((0.0, 0), (0.3, 3), (1.0, 10)) for side in ("top", "bottom")]
    assert [(cut.rank, cut.side, cut.draw) for cut in found if cut.control == "random"] == [(3, None, 0), (3, None, 1)]


def test_fractions_that_keep_as_many_components_are_one():
    found = list(cuts("F2.in", 10, altered(RECIPE, keep=(0.22, 0.2, 0.2, 0.5))))
    plain = [(cut.keep, cut.rank, cut.side) for cut in found if cut.control is None]
    assert plain == [(keep, rank, side) for keep, rank in ((0.2, 2), (0.5, 5)) for side in ("top", "bottom")]
    assert [cut.draw for cut in found if cut.control == "random" and cut.rank == 2] == [0, 1]


@pytest.mark.parametrize(("keep", "rank", "kept"), [(0.29, 100, 29), (0.01, 128, 1), (0.1, 128, 12), (0.007, 128, 0)])
def test_the_rank_kept_is_rounded_down_whatever_floats_say(keep, rank, kept):
    found = next(cut for cut in cuts("W_O1", rank, altered(RECIPE, keep=(keep,))) if cut.control is None)
    assert found.rank == kept


@pytest.mark.parametrize("feed_forward", ["mlp", "linear", "none"])
def test_every_row_is_what_a_full_run_of_the_changed_model_measures(feed_forward):
    recipe = altered(RECIPE, feed_forward=feed_forward)
    weights = {name: tensor.double() for name, tensor in initial(feed_forward, 8, 16, 10, 0).items()}
    examination = Examination.of(recipe, generated(8, 0))
    rows = [row for of_matrix in sweep(weights, examination, recipe) for row in of_matrix]
    assert list(dict.fromkeys(row.matrix for row in rows)) == list(names(weights))
    full = examination.measures(examination.traces(weights))
    for row in rows:
        if row.control == "random":
            continue
        left, values, right = np.linalg.svd(matrix(weights, row.matrix).numpy(), full_matrices=False)
        part = slice(0, row.rank) if row.side == "top" else slice(len(values) - row.rank, len(values))
        changed = torch.from_numpy((left[:, part] * values[part]) @ right[part])
        expected = examination.measures(examination.traces({**weights, row.matrix: changed}))
        for name, value in expected:
            assert row.of(name) == pytest.approx(value, abs=1e-9), (row.matrix, row.side, row.rank, name)
        if row.keep == 1.0:
            assert {name: row.of(name) for name, _ in full} == {name: pytest.approx(value) for name, value in full}
    assert all(math.isfinite(row.of(name)) for row in rows for name, _ in full)
