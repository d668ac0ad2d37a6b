"""A matched control is the same change, as large, at places drawn at random."""

from itertools import pairwise

import pytest

from lesion.edits.edit import Scale, ScaleParameters, Truncate, parts
from lesion.edits.selections.controls import Random, matched_controls
from lesion.edits.selections.topk import Magnitude
from lesion.edits.text import parse
from lesion.edits.units import part_of
from lesion.errors import UsageError
from lesion.models.load import load
from tiny import model


def block_of(part) -> int:
    return part.layer if isinstance(part, Scale) else int(part.address.split(".")[0])


def shape_of(part) -> tuple:
    """All of a part but its block."""
    if isinstance(part, Scale):
        return part.unit, part.factor, part_of(part)
    return part.address.partition(".")[2], part.side, part.keep


@pytest.fixture(scope="module")
def eight():
    return load("bundled:llama-base")


@pytest.mark.parametrize(
    "text",
    [
        *("3×0", "1-2.mlp×0.5", "3.mlp.up top 0.1", "2×0+4.mlp×0.5", "3×0 + 3.mlp.up bottom 0.1", "6×0 + 2×2"),
        "3.mlp.gate×0 + 4.mlp.up×0.5",
    ],
)
def test_places_move_to_as_many_other_blocks_and_all_else_stays(eight, text):
    edit = parse(text)
    controls = matched_controls(edit, eight, 5)
    assert len({str(control) for control in controls}) == 5
    for control in controls:
        pairs = list(zip(parts(edit), parts(control), strict=True))
        assert all(shape_of(ours) == shape_of(theirs) for ours, theirs in pairs)
        moved = {block_of(ours): block_of(theirs) for ours, theirs in pairs}
        assert len(set(moved.values())) == len(moved)
        assert not set(moved) & set(moved.values())
        # What lies deeper in the edit lies deeper in its control.
        assert all(first < second for first, second in pairwise(moved[block] for block in sorted(moved)))


def test_heads_move_to_heads_drawn_at_random_and_those_of_one_block_stay_apart(eight):
    controls = matched_controls(parse("3.attention.head.1×0"), eight, 12)
    assert matched_controls(parse("3.attention.head.1×0"), eight, 3) == controls[:3]
    heads = {part.head for control in controls for part in parts(control)}
    assert len(heads) > 1
    assert max(heads) < eight.anatomy.heads(0).count
    for unit in ("attention.head", "mlp.neuron"):
        for control in matched_controls(parse(f"3.{unit}.0×0 + 3.{unit}.1×0"), eight, 6):
            first, second = parts(control)
            assert first.layer == second.layer != 3
            assert first.address != second.address


def test_all_blocks_that_there_are_are_drawn_and_none_twice(eight):
    controls = matched_controls(parse("3×0"), eight, 20)
    assert sorted(str(control) for control in controls) == [f"{n}×0" for n in (0, 1, 2, 4, 5, 6, 7)]
    assert matched_controls(parse("3×0"), eight, 3) == controls[:3]


def test_where_too_few_blocks_are_left_any_are_drawn(eight):
    controls = matched_controls(parse("0-5×0"), eight, 4)
    drawn = [{block_of(part) for part in parts(control)} for control in controls]
    assert len(controls) == 4
    assert all(len(blocks) == 6 and blocks != set(range(6)) for blocks in drawn)


@pytest.mark.parametrize("text", ["8×0", "0-9×0", "3.mlp.upp top 0.5"])
def test_an_edit_of_a_place_that_is_not_there_is_refused(eight, text):
    with pytest.raises(UsageError, match=r"bundled:llama-base|no matrix"):
        matched_controls(parse(text), eight, 3)


@pytest.mark.parametrize("text", ["0-7×0", "head top 0.5", "baseline"])
def test_what_has_no_other_place_has_no_control(eight, text):
    assert matched_controls(parse(text), eight, 3) == []


def test_a_selection_has_as_many_random_weights(eight):
    selection = Magnitude(0.1)
    controls = matched_controls(ScaleParameters(selection, 0.5), eight, 3)
    assert controls == [ScaleParameters(Random(selection, seed), 0.5) for seed in range(3)]


def test_blocks_that_lack_the_matrix_are_not_drawn():
    # Blocks 0 and 2 have experts, block 1 a plain MLP.
    mixed = model("qwen2_moe")
    assert matched_controls(Truncate("1.mlp.up", 0.5), mixed, 3) == []
    assert matched_controls(Truncate("0.mlp.expert1.up", 0.5), mixed, 3) == [Truncate("2.mlp.expert1.up", 0.5)]
    assert len(matched_controls(Truncate("0.attention.q", 0.5), mixed, 3)) == 2
