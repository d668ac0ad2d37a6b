"""Columns of a matrix are selected whole, survive an edit file, and are refused where they are not there."""

import pytest
import torch

from lesion.edits.edit import ScaleParameters
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.reading import from_recipe
from lesion.edits.selections.listed import Columns
from lesion.errors import LesionError, UsageError
from tiny import model

OUTPUT = "1.attention.o"


def test_the_mask_is_true_in_these_columns_of_the_matrix_alone():
    columns = Columns(OUTPUT, 8, 16)
    expected = torch.zeros(32, 32, dtype=torch.bool)
    expected[:, 8:16] = True
    assert torch.equal(columns.mask(OUTPUT, torch.randn(32, 32)), expected)
    assert not columns.mask("0.attention.o", torch.randn(32, 32)).any()
    assert columns.touches(OUTPUT)
    assert not columns.touches("0.attention.o")


def test_the_recipe_reads_back():
    columns = Columns(OUTPUT, 8, 16)
    assert from_recipe(columns.recipe(lambda inputs: inputs.digest), {}) == columns
    assert columns != Columns(OUTPUT, 8, 17)


def test_an_edit_file_keeps_them(tmp_path):
    subject, edit = model("llama"), ScaleParameters(Columns(OUTPUT, 8, 16), 0.5)
    assert read_edit(save_edit(tmp_path / "head.edit", edit, subject)).fit(subject) == edit


def test_columns_that_are_not_there_are_refused():
    with pytest.raises(LesionError, match=r"no columns up to 40: 1.attention.o has 32"):
        Columns(OUTPUT, 8, 40).mask(OUTPUT, torch.randn(32, 32))
    for bounds in ((-1, 2), (3, 3)):
        with pytest.raises(UsageError, match="are none"):
            Columns(OUTPUT, *bounds)
    with pytest.raises(UsageError, match="not the address of a matrix"):
        Columns("somewhere", 0, 1)
