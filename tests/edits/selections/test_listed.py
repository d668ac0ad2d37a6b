"""Listed weights are exactly those named; taken away from a selection, no random control of it draws them."""

import numpy as np
import pytest
import torch

from lesion.edits.apply import applied
from lesion.edits.edit import Compose, ScaleBlock, ScaleParameters
from lesion.edits.selections.controls import Random, matched_controls
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.topk import Magnitude
from lesion.edits.text import parse
from lesion.edits.weights import written
from lesion.errors import LesionError, UsageError
from tiny import model

UP = "1.mlp.up"
WEIGHT = torch.arange(1.0, 13.0).reshape(3, 4)


def test_the_mask_is_true_at_the_named_places_alone():
    listed = Listed([f"{UP}[2,3]", f"{UP}[0, 1]", "0.mlp.up[1,1]", f"{UP}[2,3]"])
    assert np.argwhere(listed.mask(UP, WEIGHT).numpy()).tolist() == [[0, 1], [2, 3]]
    assert not listed.mask("head", WEIGHT).any()
    assert [listed.touches(address) for address in (UP, "0.mlp.up", "2.mlp.up")] == [True, True, False]
    assert listed.label == "weights-3"


@pytest.mark.parametrize("text", [f"{UP}[2,3]×0", f"{UP}[2, 3]x0", f"{UP}[2,3] * 0"])
def test_one_weight_has_a_text_form(text):
    edit = parse(text)
    assert edit == ScaleParameters(Listed([f"{UP}[2,3]"]), 0.0)
    assert str(edit) == f"{UP}[2,3]×0"
    assert parse(str(edit)) == edit
    both = parse(f"{text}+2×0.5")
    assert both == Compose((edit, ScaleBlock(2, 0.5)))


def test_several_weights_are_named_by_their_digest():
    listed = Listed([f"{UP}[2,3]", f"{UP}[0,1]"])
    assert str(ScaleParameters(listed, 0.0)) == f"weights-2@{listed.digest}×0"
    assert str(ScaleParameters(Listed([f"{UP}[2,3]"], name="mine"), 0.0)).startswith("mine-1@")


@pytest.mark.parametrize("taken_away", [False, True])
def test_a_matrix_that_is_not_there_is_refused_with_those_that_are(taken_away):
    listed = Listed(["1.mlp.foo[5,7]"])
    selection = Magnitude(0.1) - listed if taken_away else listed
    with pytest.raises(UsageError, match=r"no matrix '1\.mlp\.foo'"):
        with applied(model("llama"), ScaleParameters(selection, 0.0)):
            pass


@pytest.mark.parametrize("text", ["1.mlp.up[2]×0", "1.mlp.up[2,3]", "1.mlp.up[2,3]×nan", "[2,3]×0", "0-1[2,3]×0"])
def test_what_is_no_weight_and_factor_is_refused(text):
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize("text", ["", UP, f"{UP}[1]", f"{UP}[-1,0]", f"{UP}[1,2,3]", "up[0,0]", f"{UP}[0,0]×0"])
def test_what_names_no_weight_is_refused(text):
    with pytest.raises(UsageError, match="write MATRIX"):
        Listed([text])


def test_an_empty_list_is_refused():
    with pytest.raises(UsageError, match="list at least 1"):
        Listed([])


@pytest.mark.parametrize("place", ["[3,0]", "[0,4]"])
def test_a_place_outside_the_matrix_is_refused(place):
    with pytest.raises(LesionError, match=r"There is no 1\.mlp\.up.*has 3 rows and 4 columns"):
        Listed([UP + place]).mask(UP, WEIGHT)


def test_cutting_listed_weights_changes_these_and_nothing_else():
    lesioned = model("llama")
    before = {address: matrix.read().clone() for address, matrix in lesioned.anatomy.scored.items()}
    with written(lesioned, [ScaleParameters(Listed([f"{UP}[5,7]", "2.mlp.down[1,2]"]), 0.0)]):
        changed = {
            (address, *place)
            for address, matrix in lesioned.anatomy.scored.items()
            for place in np.argwhere((matrix.read() != before[address]).numpy()).tolist()
        }
    assert changed == {(UP, 5, 7), ("2.mlp.down", 1, 2)}


@pytest.mark.parametrize("seed", range(20))
def test_a_random_control_has_as_many_weights_and_never_one_that_was_taken_away(seed):
    listed = Listed([f"{UP}[{row},{column}]" for row in range(3) for column in range(2)])
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
    like = Magnitude(0.5) - listed
    drawn = Random(like, seed).mask(UP, weight)
    assert int(drawn.sum()) == int(like.mask(UP, weight).sum())
    assert not (drawn & listed.mask(UP, weight)).any()
    # Elsewhere it is the draw that it would be anyway.
    assert torch.equal(Random(like, seed).mask("head", weight), Random(Magnitude(0.5), seed).mask("head", weight))


def test_the_matched_controls_of_an_edit_without_listed_weights_spare_them_too():
    lesioned = model("llama")
    every = Listed([f"{UP}[{row},{column}]" for row in range(10) for column in range(32)])
    edit = ScaleParameters(Magnitude(0.5) - every, 0.0)
    weight = lesioned.anatomy.matrix(UP).read()
    controls = matched_controls(edit, lesioned, 3)
    assert len(controls) == 3
    for control in controls:
        assert not control.selection.mask(UP, weight)[:10].any()
        assert int(control.selection.mask(UP, weight).sum()) == int(edit.selection.mask(UP, weight).sum())
