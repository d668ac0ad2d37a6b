"""Truncation from Python: what its arguments may be, and what is refused."""

import numpy as np
import pytest
import torch

import lesion
from commandline import write
from lesion.errors import UsageError


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> str:
    rows = ({"id": f"{n}", "prompt": f"{n} + {n} = ", "answer": f"{n % 7}", "tempting": "t"} for n in range(5))
    return str(write(tmp_path_factory.mktemp("data") / "pairs.jsonl", rows))


@pytest.mark.parametrize(
    ("values", "edits"),
    [
        ({"keep": np.array([0.5, 0.25]), "layers": np.array([0])}, ["0.mlp.up top 0.5", "0.mlp.up top 0.25"]),
        ({"keep": np.float32(0.5), "layers": np.int64(1)}, ["1.mlp.up top 0.5"]),
        ({"keep": torch.tensor([0.5]), "layers": range(2)}, ["0.mlp.up top 0.5", "1.mlp.up top 0.5"]),
        ({"keep": 0, "layers": 2}, ["2.mlp.up top 0"]),
        ({"keep": (one / 4 for one in (1, 2)), "layers": "0"}, ["0.mlp.up top 0.5", "0.mlp.up top 0.25"]),
    ],
)
def test_keeps_and_layers_are_numbers_lists_or_arrays_of_whatever_library(values, edits, llama, task):
    found = lesion.truncate(llama, task, matrices="mlp.up", items="all", **values)
    assert [cell.edit for cell in found.summary.cells] == edits


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"keep": "0.5"}, "keep must be a f"),
        ({"keep": ["0.5"]}, "keep must be a f"),
        ({"keep": np.array([[0.5]])}, "keep must be a f"),
        ({"keep": np.array([0.5, 2.0])}, "keep must be a f"),
        ({"layers": np.array([0.5])}, "layers must be"),
        ({"layers": 7}, "no block 7"),
    ],
)
def test_what_is_no_keep_and_no_layer_is_a_usage_error(values, says, llama, task):
    with pytest.raises(UsageError, match=says):
        lesion.truncate(llama, task, matrices="mlp.up", items="all", **{"keep": 0.5, **values})


def test_a_keep_that_is_a_text_is_a_usage_error_also_of_a_single_edit():
    with pytest.raises(UsageError, match=r"^Truncate: keep must be a finite number, not '0\.5'\.$"):
        lesion.Truncate("3.mlp.up", "0.5")
