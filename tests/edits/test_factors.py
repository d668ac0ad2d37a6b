"""Edits as numbers: the table of factors, and scaling a contribution with it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lesion.edits.edit import BASELINE, SCALES, Compose, ScaleAttention, ScaleBlock, ScaleMlp, parts
from lesion.edits.place import UNITS
from lesion.edits.table import factors, scale_contribution, scale_output
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy, Block, Branch

BLOCKS = 4


def anatomy(mlp: bool = True) -> Anatomy:
    blocks = tuple(
        Block(
            index,
            nn.Identity(),
            Branch("attention", nn.Identity(), {}),
            Branch("mlp", nn.Identity(), {}) if mlp else None,
        )
        for index in range(BLOCKS)
    )
    return Anatomy("some-model", "llama", True, blocks)


scales = st.builds(
    lambda unit, layer, factor: SCALES[unit](layer, factor),
    st.sampled_from(UNITS),
    st.integers(0, BLOCKS - 1),
    st.sampled_from([0.0, 0.5, 1.0, 1.1, -2.0]),
)
edits = st.lists(scales, max_size=4).map(lambda found: Compose(tuple(found)))


@given(st.lists(edits, max_size=6))
def test_every_row_has_the_product_of_its_edits_factors_at_every_place(rows):
    table = factors(rows, anatomy())
    assert table.shape == (BLOCKS, len(UNITS), len(rows))
    for row, edit in enumerate(rows):
        for layer in range(BLOCKS):
            for unit, name in enumerate(UNITS):
                here = [part.factor for part in parts(edit) if (part.layer, part.unit) == (layer, name)]
                assert table[layer, unit, row].item() == pytest.approx(np.prod(here), rel=1e-12)


def test_a_block_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError, match=r"there is no block 12: some-model has blocks 0 to 3\."):
        factors([BASELINE, Compose((ScaleBlock(1), ScaleMlp(12)))], anatomy())


def test_a_branch_that_was_not_found_is_an_error_and_the_other_branch_is_not():
    with pytest.raises(UsageError, match=r"No mlp is known in block 2 of some-model"):
        factors([ScaleMlp(2)], anatomy(mlp=False))
    assert factors([ScaleAttention(2)], anatomy(mlp=False))[2, 1, 0] == 0


def test_factors_whose_product_overflows_are_refused():
    with pytest.raises(UsageError, match="not finite"):
        factors([Compose((ScaleBlock(0, 1e200), ScaleBlock(0, 1e200)))], anatomy())


FACTORS = [0.0, 1.0, 0.5, 1.1, -2.0]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 2**-8)]
)
def test_scaling_agrees_with_numpy_in_float64_to_one_rounding_of_the_dtype(dtype, tolerance):
    before, after = torch.randn(2, len(FACTORS), 3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    factor = torch.tensor(FACTORS, dtype=torch.promote_types(dtype, torch.float32))
    h, b = before.double().numpy(), after.double().numpy()
    f = np.array(FACTORS)[:, None, None]
    np.testing.assert_allclose(
        scale_contribution(before, after, factor).double(), h + f * (b - h), rtol=tolerance, atol=tolerance
    )
    np.testing.assert_allclose(scale_output(after, factor).double(), f * b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_factors_zero_and_one_are_exact_whatever_the_numbers(dtype, ends):
    before = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    after = before * 1e4
    after[:2, :, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf]).to(dtype)
    factor = torch.tensor([0.0, 1.0, 0.0, 1.0])
    stream = scale_contribution(before, after, factor, ends)
    added = scale_output(after, factor, ends)
    for row, kept in enumerate([False, True, False, True]):
        assert_same_bits(stream[row], after[row] if kept else before[row])
        assert_same_bits(added[row], after[row] if kept else torch.zeros_like(after[row]))
    assert stream.dtype == added.dtype == dtype


@pytest.mark.parametrize("factor", FACTORS)
def test_one_factor_for_all_rows_is_that_factor_on_each(factor):
    before, after = torch.randn(2, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    one, each = torch.tensor([factor]), torch.tensor([factor] * 3)
    assert_same_bits(scale_contribution(before, after, one), scale_contribution(before, after, each))
    assert_same_bits(scale_output(after, one), scale_output(after, each))


def assert_same_bits(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.dtype == other.dtype
    assert one.contiguous().view(torch.uint8).equal(other.contiguous().view(torch.uint8))
