"""A grid has every different edit once, of the matrices that are meant."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.edit import Truncate
from lesion.errors import UsageError
from lesion.studies.truncation.search import grid
from lesion.studies.truncation.study import KEEP
from tiny import FAMILIES, model


@pytest.fixture(scope="module")
def anatomy():
    return model("llama").anatomy


def components(edit: Truncate, rank: int) -> frozenset[int]:
    """The components that an edit keeps, by number from the largest, in exact decimals."""
    count = int(Fraction(str(float(edit.keep))) * rank)
    return frozenset(range(count) if edit.side == "top" else range(rank - count, rank))


def test_cells_stand_in_the_order_of_layers_matrices_sides_and_falling_keeps(anatomy):
    cells, merged = grid(anatomy, [0, 2], ["mlp.up", "mlp.down"], [0.25, 0.5], "both")
    assert [str(edit) for edit in cells] == [
        f"{layer}.{matrix} {side} {keep}"
        for layer, matrix, side, keep in itertools.product(
            (0, 2), ("mlp.up", "mlp.down"), ("top", "bottom"), (0.5, 0.25)
        )
    ]
    assert merged == 0


def test_a_model_of_which_no_matrix_is_known_is_refused_in_a_sentence_that_says_so(anatomy):
    bare = replace(anatomy, blocks=tuple(replace(block, attention=None, mlp=None) for block in anatomy.blocks))
    with pytest.raises(UsageError, match=r"No matrices are known in these blocks of tiny:llama \(family llama\)"):
        grid(bare, [0, 2], ["all"], [0.5], "top")


shares = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)


@given(st.lists(shares, min_size=1, max_size=8, unique=True), st.sampled_from(["top", "bottom", "both"]))
def test_every_edit_asked_for_is_a_cell_or_the_same_as_one_and_cells_are_all_different(anatomy, keep, side):
    sides = ("top", "bottom") if side == "both" else (side,)
    wanted = {Truncate("1.mlp.up", one, which) for one in keep for which in sides}
    if all(len(components(edit, 32)) == 32 for edit in wanted):
        with pytest.raises(UsageError, match="Nothing is left to try"):
            grid(anatomy, [1], ["mlp.up"], keep, side)
        return
    cells, merged = grid(anatomy, [1], ["mlp.up"], keep, side)
    assert {*cells} <= wanted
    assert len(cells) + merged == len(wanted)
    different = {components(edit, 32) for edit in wanted} - {frozenset(range(32))}
    assert sorted(map(sorted, different)) == sorted(sorted(components(edit, 32)) for edit in cells)
    for edit, cell in cells.items():
        assert 0 <= cell.rank == len(components(edit, 32)) < cell.of == 32


@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_family_all_are_the_matrices_of_all_blocks_and_what_is_saved_is_counted_by_hand(family):
    anatomy = model(family).anatomy
    layers = list(range(len(anatomy.blocks)))
    cells, _ = grid(anatomy, layers, ["all"], [0.5], "top")
    there = {f"{layer}.{name}": m for layer in layers for name, m in anatomy.block(layer).matrices.items()}
    assert [edit.address for edit in cells] == list(there)
    for edit, cell in cells.items():
        rows, columns = there[edit.address].shape
        assert f"{cell.layer}.{cell.matrix}" == edit.address == cell.address
        assert cell.of == min(rows, columns)
        assert cell.saved == rows * columns - (rows * cell.rank + cell.rank * columns)


def test_keeping_nothing_is_one_cell_whichever_side_it_is_kept_of(anatomy):
    cells, merged = grid(anatomy, [0], ["mlp.up"], [0.0, 0.01], "both")  # 0.01 of 32 is none too
    (cell,) = cells.values()
    assert (cell.rank, cell.saved, merged) == (0, 48 * 32, 3)


def test_a_branch_is_its_matrices_and_a_matrix_named_twice_is_searched_once(anatomy):
    def names(*matrices):
        return tuple(cell.matrix for cell in grid(anatomy, [0], list(matrices), [0.5], "top")[0].values())

    assert names("mlp") == ("mlp.gate", "mlp.up", "mlp.down")
    assert names("attention") == ("attention.q", "attention.k", "attention.v", "attention.o")
    assert names("mlp.up", "mlp") == names("mlp")
    assert names("all") == names("attention", "mlp")


def test_experts_are_searched_each_for_itself():
    cells, _ = grid(model("mixtral").anatomy, [0], ["mlp"], [0.5], "top")
    assert {cell.matrix for cell in cells.values() if "expert" in cell.matrix} == {
        f"mlp.expert{n}.{matrix}" for n in range(4) for matrix in ("gate", "up", "down")
    }


@pytest.mark.parametrize("typed", ["mlp.upp", "ml.up", "mlp.", "", "up"])
def test_a_matrix_that_is_not_there_is_wrong_use_and_those_that_are_there_are_named(anatomy, typed):
    with pytest.raises(UsageError, match=rf"no matrix '{typed}' in tiny:llama.*There are attention\.q, .*mlp\.up"):
        grid(anatomy, [0], ["mlp.down", typed], [0.5], "top")


def test_by_default_kept_is_from_nine_tenths_to_a_four_hundredth():
    assert (max(KEEP), min(KEEP), len(KEEP)) == (0.9, 1 / 400, 14)
