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
    found = grid(anatomy, [0, 2], ["mlp.up", "mlp.down"], [0.25, 0.5], "both")
    assert [str(cell.edit) for cell in found.cells] == [
        f"{layer}.{matrix} {side} {keep}"
        for layer, matrix, side, keep in itertools.product(
            (0, 2), ("mlp.up", "mlp.down"), ("top", "bottom"), (0.5, 0.25)
        )
    ]
    assert not found.merged


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
    found = grid(anatomy, [1], ["mlp.up"], keep, side)
    cells = [cell.edit for cell in found.cells]
    assert {*cells, *found.merged} == wanted
    assert len(cells) + len(found.merged) == len(wanted)
    assert len({components(edit, 32) for edit in cells}) == len(cells)
    for edit, same in found.merged.items():
        everything = frozenset(range(32))
        assert components(edit, 32) == (everything if same is None else components(same, 32))
        assert same is None or same in cells
    for cell in found.cells:
        assert 0 <= cell.row.rank == len(components(cell.edit, 32)) < cell.row.of == 32


@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_family_all_are_the_matrices_of_all_blocks_and_what_is_saved_is_counted_by_hand(family):
    anatomy = model(family).anatomy
    layers = list(range(len(anatomy.blocks)))
    found = grid(anatomy, layers, ["all"], [0.5], "top")
    there = {f"{layer}.{name}": m for layer in layers for name, m in anatomy.block(layer).matrices.items()}
    assert [cell.edit.address for cell in found.cells] == list(there)
    for cell in found.cells:
        rows, columns = there[cell.edit.address].shape
        assert f"{cell.row.layer}.{cell.row.matrix}" == cell.edit.address == cell.row.address
        assert cell.row.of == min(rows, columns)
        assert cell.row.saved == rows * columns - (rows * cell.row.rank + cell.row.rank * columns)


def test_keeping_nothing_is_one_cell_whichever_side_it_is_kept_of(anatomy):
    found = grid(anatomy, [0], ["mlp.up"], [0.0, 0.01], "both")  # 0.01 of 32 is none too
    (cell,) = found.cells
    assert (cell.row.rank, cell.row.saved) == (0, 48 * 32)
    assert len(found.merged) == 3


def test_a_branch_is_its_matrices_and_a_matrix_named_twice_is_searched_once(anatomy):
    def names(*matrices):
        return tuple(cell.row.matrix for cell in grid(anatomy, [0], list(matrices), [0.5], "top").cells)

    assert names("mlp") == ("mlp.gate", "mlp.up", "mlp.down")
    assert names("attention") == ("attention.q", "attention.k", "attention.v", "attention.o")
    assert names("mlp.up", "mlp") == names("mlp")
    assert names("all") == names("attention", "mlp")


def test_experts_are_searched_each_for_itself():
    found = grid(model("mixtral").anatomy, [0], ["mlp"], [0.5], "top")
    assert {cell.row.matrix for cell in found.cells if "expert" in cell.row.matrix} == {
        f"mlp.expert{n}.{matrix}" for n in range(4) for matrix in ("gate", "up", "down")
    }


@pytest.mark.parametrize("typed", ["mlp.upp", "ml.up", "mlp.", "", "up"])
def test_a_matrix_that_is_not_there_is_wrong_use_and_those_that_are_there_are_named(anatomy, typed):
    with pytest.raises(UsageError, match=rf"no matrix '{typed}' in tiny:llama.*There are attention\.q, .*mlp\.up"):
        grid(anatomy, [0], ["mlp.down", typed], [0.5], "top")


def test_the_nearest_name_is_told(anatomy):
    with pytest.raises(UsageError, match=r"nearest: mlp\.up"):
        grid(anatomy, [0], ["mlp.upp"], [0.5], "top")


def test_keeps_that_all_leave_the_matrix_as_it_is_are_wrong_use(anatomy):
    with pytest.raises(UsageError, match=r"Nothing is left to try.*--keep 0\.1"):
        grid(anatomy, [0, 1], ["all"], [1.0], "both")


def test_by_default_kept_is_from_nine_tenths_to_a_four_hundredth():
    assert (max(KEEP), min(KEEP), len(KEEP)) == (0.9, 1 / 400, 14)
