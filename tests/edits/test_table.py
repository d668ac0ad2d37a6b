import pytest
import torch

import tiny
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.table import tabulate
from lesion.errors import UsageError


def test_an_edit_begins_at_the_lowest_block_where_it_changes_anything():
    anatomy = tiny.model("llama").anatomy
    edits = [
        BASELINE, ScaleBlock(0), ScaleMlp(2), ScaleBlock(1, 1.0), Compose((ScaleMlp(2), ScaleAttention(1, 0.9))),
        Truncate("1.mlp.up", 0.5), Truncate("1.mlp.up", 1), Compose((Truncate("2.mlp.up", 0), ScaleBlock(0))),
    ]  # fmt: skip
    assert tabulate(edits, anatomy).first_edited().tolist() == [3, 0, 2, 3, 1, 1, 3, 0]


def test_rows_take_the_columns_they_ask_for():
    anatomy = tiny.model("llama").anatomy
    table = tabulate([BASELINE, Truncate("0.mlp.up", 0), ScaleBlock(1)], anatomy)
    chosen = table.select(torch.tensor([2, 1, 1]))
    assert chosen.columns == 3
    assert chosen.truncates("0.mlp.up").tolist() == [False, True, True]
    assert chosen.scales[1, 0].tolist() == [0, 1, 1]


def test_a_matrix_that_does_not_exist_is_refused_with_the_nearest_names():
    with pytest.raises(UsageError, match=r"there is no matrix '1\.mlp\.upp'.*1\.mlp\.up"):
        tabulate([Truncate("1.mlp.upp", 0.5)], tiny.model("llama").anatomy)
