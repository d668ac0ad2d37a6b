"""The cut between the top share and the rest is exact: no rounding parts what ties or ties what differs."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lesion.edits.selections import thresholds
from lesion.edits.selections.thresholds import at_least, cut, cut_rows, top_count
from lesion.errors import LesionError

TINY = np.float32(1e-45)  # the smallest number above 0
EXTREME = [0.0, -0.0, float(TINY), 1e-40, 3e-20, 0.5, 1.0, -1.0, 1e30, -3e38, float(np.nextafter(np.float32(1), 2))]
few = st.sampled_from([0.0, 0.25, -0.25, 0.5, 1.0, -1.5, 2.0])
extreme = st.sampled_from(EXTREME)
shapes = st.tuples(st.integers(1, 7), st.integers(1, 7))


def scores(weight: torch.Tensor, vector: torch.Tensor) -> np.ndarray:
    return np.abs(weight.float().numpy().astype(np.float64)) * vector.numpy().astype(np.float64)


@st.composite
def matrices(draw, values):
    out, into = draw(shapes)
    weight = torch.from_numpy(draw(arrays(np.float32, (out, into), elements=values)))
    vector = torch.from_numpy(np.abs(draw(arrays(np.float32, (into,), elements=values))))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    narrow = weight.to(dtype)
    return (narrow if narrow.isfinite().all() else weight), vector


@pytest.mark.parametrize("values", [few, extreme], ids=["many ties", "extreme"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_cut_is_the_kth_largest_score_in_float64_for_every_k_at_once(values, data):
    weight, vector = data.draw(matrices(values))
    ordered = np.sort(scores(weight, vector).ravel())[::-1]
    assert cut(weight, vector, range(1, weight.numel() + 1)) == ordered.tolist()
    rows = np.sort(scores(weight, vector), axis=1)[:, ::-1]
    found = cut_rows(weight, vector, range(1, weight.shape[1] + 1))
    assert np.array_equal(torch.stack(found, 1).numpy(), rows)


def on_a_device(weight: torch.Tensor, vector: torch.Tensor):
    """Scores as they come on an accelerator: as tensors."""
    yield 0, weight.abs().float() * vector


@pytest.mark.parametrize("device", [False, True], ids=["CPU", "accelerator"])
@pytest.mark.parametrize("values", [few, extreme], ids=["many ties", "extreme"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_bad_guess_of_where_the_top_begins_changes_nothing(values, device, data):
    weight, vector = data.draw(matrices(values))
    exact = scores(weight, vector)
    k = data.draw(st.integers(1, weight.numel()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "SAMPLE", 1)  # one entry tells little
        patch.setattr(thresholds, "CHUNK", 8)
        if device:
            patch.setattr(thresholds, "_rounded", on_a_device)
        bar = cut(weight, vector, [k])[0]
        # One cut for every row takes the way that an accelerator takes for one cut.
        bars = torch.full((len(weight),) if device else (), bar, dtype=torch.float64)
        mask = at_least(weight, vector, bars)
    assert bar == np.sort(exact.ravel())[-k]
    assert np.array_equal(mask.numpy(), (exact >= bar) & (exact > 0))


def test_the_top_of_a_large_matrix_is_found_where_its_entries_are_sampled():
    generator = torch.Generator().manual_seed(0)
    weight, vector = torch.randn(400, 300, generator=generator), torch.rand(300, generator=generator)
    vector[7] = 1e6  # one column outweighs all others
    ordered = np.sort(scores(weight, vector).ravel())[::-1]
    counts = [1, 12, 399, 400, 401, 60_000, 120_000]
    assert cut(weight, vector, counts) == ordered[[k - 1 for k in counts]].tolist()


@pytest.mark.parametrize("values", [few, extreme], ids=["many ties", "extreme"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_reaches_the_cut_is_selected_with_all_its_ties_and_never_a_score_of_zero(values, data):
    weight, vector = data.draw(matrices(values))
    k = data.draw(st.integers(1, weight.numel()))
    exact = scores(weight, vector)
    bar = np.sort(exact.ravel())[-k]
    mask = at_least(weight, vector, torch.tensor(cut(weight, vector, [k])[0], dtype=torch.float64))
    assert np.array_equal(mask.numpy(), (exact >= bar) & (exact > 0))
    per_row = data.draw(st.integers(1, weight.shape[1]))
    bars = np.sort(exact, axis=1)[:, -per_row][:, None]
    mask = at_least(weight, vector, cut_rows(weight, vector, [per_row])[0])
    assert np.array_equal(mask.numpy(), (exact >= bars) & (exact > 0))


def test_scores_below_float32_are_told_apart_and_are_not_zero():
    weight = torch.tensor([[1e-30, 2e-30, 3e-30, 0.0]])
    vector = torch.tensor([1e-30, 1e-30, 1e-30, 1.0])
    assert not (weight * vector).any()
    k_scores = cut(weight, vector, [1, 2, 3, 4])
    assert k_scores == sorted(scores(weight, vector)[0].tolist(), reverse=True)
    assert at_least(weight, vector, torch.tensor(k_scores[1], dtype=torch.float64)).tolist() == [
        [False, True, True, False]
    ]
    assert at_least(weight, vector, torch.tensor(0.0, dtype=torch.float64)).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_has_no_order_is_refused(broken):
    weight, vector = torch.tensor([[broken, 1.0], [2.0, 3.0]]), torch.tensor([0.0, 1.0])
    for order in (cut, cut_rows):
        with pytest.raises(LesionError, match="not finite"):
            order(weight, vector, [1])


@given(st.decimals("0.0001", 1, places=4), st.integers(1, 10**7))
def test_a_top_share_counts_in_decimals_and_is_never_empty(keep, size):
    assert top_count(float(keep), size) == max(1, int(Fraction(keep) * size))
