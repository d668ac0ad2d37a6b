"""A sweep is one edit per unit, factor and layer, of places that the model has."""

from dataclasses import replace

import pytest

import architectures_zoo as zoo
from lesion.edits.edit import ScaleAttention, ScaleBlock, ScaleMlp
from lesion.errors import UsageError
from lesion.models.load import wrap
from lesion.studies.ablation.sweep import sweep
from tiny import FAMILIES, model, tokenizer


def test_a_sweep_goes_through_units_then_factors_then_layers():
    assert sweep(model("llama").anatomy, ["mlp", "block"], [0, 2], [0.0, 1.5]) == [
        ScaleMlp(0, 0.0),
        ScaleMlp(2, 0.0),
        ScaleMlp(0, 1.5),
        ScaleMlp(2, 1.5),
        ScaleBlock(0, 0.0),
        ScaleBlock(2, 0.0),
        ScaleBlock(0, 1.5),
        ScaleBlock(2, 1.5),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_swept_from_block_0_on_in_every_unit(family):
    anatomy = model(family).anatomy
    layers = range(len(anatomy.blocks))
    for unit, kind in (("block", ScaleBlock), ("attention", ScaleAttention), ("mlp", ScaleMlp)):
        assert sweep(anatomy, [unit], layers, [0.0]) == [kind(layer, 0.0) for layer in layers]


def test_a_branch_that_is_a_sum_is_scaled_and_not_replaced():
    """Attention and state-space layer of Falcon-H1 are added up; its MLP is one module."""
    anatomy = wrap(zoo.made("falcon_h1"), tokenizer(), "tiny:sum").anatomy
    with pytest.raises(
        UsageError, match=r"attention of block 0 of tiny:sum adds is the sum of several modules.*--unit b"
    ):
        sweep(anatomy, ["block", "attention"], [0, 1], [0.0], ["mean"])
    assert [str(each) for each in sweep(anatomy, ["attention"], [1], [0.5])] == ["1.attention×0.5"]
    assert [str(each) for each in sweep(anatomy, ["mlp"], [1], [], ["mean"])] == ["1.mlp→mean"]


def test_a_branch_that_is_not_known_is_wrong_use_and_says_where_to_look():
    anatomy = model("llama").anatomy
    first, *rest = anatomy.blocks
    headless = replace(anatomy, blocks=(replace(first, mlp=None), *rest))
    with pytest.raises(UsageError, match=r"No mlp is known in block 0 of tiny:llama\. Blocks with a known mlp: 1, 2"):
        sweep(headless, ["block", "mlp"], [0, 1], [0.0])
    assert sweep(headless, ["block", "attention"], [0], [0.0]) == [ScaleBlock(0, 0.0), ScaleAttention(0, 0.0)]
    assert sweep(headless, ["mlp"], [1, 2], [0.0]) == [ScaleMlp(1, 0.0), ScaleMlp(2, 0.0)]
