"""Matched controls: counts of every bin and matrix by a plain loop, none of the selection's own weights, and what
magnitude alone does is unmasked."""

import numpy as np
import pytest
import torch

from lesion.edits.edit import ScaleParameters
from lesion.edits.files.reading import from_recipe
from lesion.edits.selections.controls import BINS, Matched, Random, matched_controls
from lesion.edits.selections.inputs import Inputs, InputSums
from lesion.edits.selections.selection import Selection
from lesion.edits.selections.topk import Magnitude
from lesion.errors import LesionError


class Given(Selection):
    """A selection that is a mask."""

    kind = "given"
    RECIPE = {"given": "label"}  # noqa: RUF012
    label = "given"

    def __init__(self, mask: torch.Tensor) -> None:
        object.__setattr__(self, "chosen", mask)

    def touches(self, address: str) -> bool:
        return address == "0.mlp.up"

    def mask(self, address, weight):
        return self.chosen


def drawn(selection: Selection, weight: torch.Tensor) -> np.ndarray:
    return selection.mask("0.mlp.up", weight).numpy().ravel()


def bins_of(scores: np.ndarray) -> np.ndarray:
    """The bins by a plain loop over the different scores as they are to 8 bits: those below decide the bin."""
    codes = [int(score.view(np.uint32)) // 65536 for score in scores.astype(np.float32)]
    ordered = np.sort(codes)
    return np.array([int(np.searchsorted(ordered, code)) * BINS // len(codes) for code in codes])


def observed(norms: torch.Tensor) -> Inputs:
    return Inputs({"0.mlp.up": InputSums(norms, None, 9)}, {"0.mlp.up": "0.mlp.up"}, 3, 9)


@pytest.mark.parametrize("importance", [False, True])
def test_it_has_as_many_of_every_bin_and_none_of_the_selection(importance):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(60, 50, generator=generator)
    norms = torch.rand(50, generator=generator) + 0.1
    chance = (weight.abs() / weight.abs().max()) ** 2 / 2
    selection = Given(torch.rand(60, 50, generator=generator) < chance)
    texts = (observed(norms),) if importance else ()
    own, control = drawn(selection, weight), drawn(Matched(selection, 0, texts), weight)
    scores = (weight.abs() * norms if importance else weight.abs()).numpy().ravel()
    bins = bins_of(scores)
    assert not (own & control).any()
    assert own.sum() == control.sum()
    has, there, got = (np.bincount(bins[which], minlength=BINS) for which in (own, ~own, control))
    enough = has <= there
    assert enough.mean() > 0.9
    assert (got[enough] >= has[enough]).all()
    assert np.abs(got - has).sum() <= 2 * np.maximum(has - there, 0).sum()
    assert not np.array_equal(control, drawn(Matched(selection, 1, texts), weight))
    assert np.array_equal(control, drawn(Matched(selection, 0, texts), weight))


def test_where_all_of_the_largest_are_selected_the_next_largest_are_drawn():
    weight = torch.randn(40, 40, generator=torch.Generator().manual_seed(1))
    control = drawn(Matched(Magnitude(0.1)), weight)
    sizes = weight.abs().numpy().ravel()
    assert control.sum() == 160
    assert (np.argsort(np.argsort(-sizes))[control] < 0.22 * sizes.size).all()


def test_a_selection_whose_effect_is_all_in_its_size_is_unmasked_by_the_match_in_magnitude_alone():
    """The effect of a cut is the sum of the |W| that it takes; half of the weights that are ten times as large go."""
    generator = torch.Generator().manual_seed(2)
    large = torch.rand(100, 100, generator=generator) < 0.1
    weight = torch.randn(100, 100, generator=generator).abs() * torch.where(large, 10.0, 0.1)
    selection = Given(large & (torch.rand(100, 100, generator=generator) < 0.5))
    effect, count, magnitude = (
        float(weight.numpy().ravel()[drawn(each, weight)].sum())
        for each in (selection, Random(selection), Matched(selection))
    )
    assert magnitude == pytest.approx(effect, rel=0.03)
    assert count < 0.25 * effect


def test_more_than_half_of_a_matrix_cannot_be_matched():
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))
    with pytest.raises(LesionError, match="select less, or match in count alone"):
        drawn(Matched(Magnitude(0.6)), weight)


def test_its_recipe_reads_back():
    texts = observed(torch.ones(50))
    control = Matched(Magnitude(0.1), 3, (texts,))
    assert control.label == "importance3-magnitude-0.1"
    back = from_recipe(control.recipe(lambda inputs: inputs.digest), {texts.digest: texts})
    assert back == control
    assert [inputs.digest for inputs in back.inputs] == [texts.digest]


def test_controls_of_an_edit_are_matched_where_it_selects_weights():
    from tiny import model

    edit = ScaleParameters(Magnitude(0.05), 0.5)
    controls = matched_controls(edit, model("llama"), 2, "magnitude")
    assert controls == [ScaleParameters(Matched(Magnitude(0.05), seed), 0.5) for seed in (0, 1)]
