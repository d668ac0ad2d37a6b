"""The command `lesion truncate`, and `run` and `report` on searches: what they leave, print and refuse."""

from pathlib import Path

import pytest

from commandline import lesion, refused, write


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """Contrasts: a token is a character, so that the prompts end in a space."""
    rows = ({"id": f"{n}", "prompt": f"{n} + {n} = ", "answer": f"{n % 7}", "tempting": "t"} for n in range(12))
    return write(tmp_path_factory.mktemp("data") / "pairs.jsonl", rows)


def searching(checkpoint: object, task: object, out: Path, *more: object) -> list[object]:
    told = ["--matrices", "mlp.up", "--keep", "0.5,0.25", "--items", 12]
    return ["truncate", checkpoint, "--task", task, *told, "--out", out, *more]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "1.5"], ["keep must be a fraction of the rank from 0 to 1", "1.5"]),
        (["--keep", "some"], ["--keep takes numbers by commas; 'some' is none."]),
        (["--keep", "1"], ["Nothing is left to try", "--keep 0.1"]),
        (["--matrices", "mlp.upp"], ["no matrix 'mlp.upp'", "nearest: mlp.up", "mlp, attention and all"]),
        (["--matrices", "mlp.up,,all"], ["--matrices takes names by commas"]),
        (["--validation", "1"], ["validation must be a number between 0 and 1", "between 0 and 1"]),
        (["--screen", "some"], ["--screen is auto, none or a number of cells, not 'some'."]),
        (["--screen", "none", "--screen-items", "4"], ["leave one out"]),
        (["--items", "1"], ["has 1 item", "give two at least"]),
        (["--revisions", "step7"], ["step7"]),
        (["--task", "gold:primer:atlas"], ["nothing in it is right or wrong", "search by a task that is answered"]),
    ],
)
def test_wrong_use_is_told_before_anything_is_asked(options, says, capsys, checkpoint, pairs, tmp_path):
    out = tmp_path / "out"
    refused(lesion(capsys, *searching(checkpoint, pairs, out, *options)), 2, *says)
    assert not out.exists()
