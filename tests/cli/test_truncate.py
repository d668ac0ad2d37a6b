"""The command `lesion truncate`, and `run` and `report` on searches: what they leave, print and refuse."""

import json
from pathlib import Path

import pytest
import torch

from commandline import lesion, questions, refused, save, write
from lesion.core.store import Store
from tiny import tiny


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """Contrasts: a token is a character, so that the prompts end in a space."""
    rows = ({"id": f"{n}", "prompt": f"{n} + {n} = ", "answer": f"{n % 7}", "tempting": "t"} for n in range(12))
    return write(tmp_path_factory.mktemp("data") / "pairs.jsonl", rows)


def searching(checkpoint: object, task: object, out: Path, *more: object) -> list[object]:
    told = ["--matrices", "mlp.up", "--keep", "0.5,0.25", "--items", 12]
    return ["truncate", checkpoint, "--task", task, *told, "--out", out, *more]


def test_a_search_leaves_summary_tables_and_page_and_a_second_one_asks_nothing(capsys, checkpoint, pairs, tmp_path):
    out = tmp_path / "out"
    first = lesion(capsys, *searching(checkpoint, pairs, out))
    assert first.code == 0, first.err
    assert {"summary.json", "report.html", "cells.csv"} <= {file.name for file in out.iterdir()}
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (out / "best.edit").exists() == (summary["nothing"] is None)
    assert len(summary["cells"]) == 6
    assert "answers\n" in first.out
    second = lesion(capsys, *searching(checkpoint, pairs, out))
    assert "evaluated 0 of " in second.out
    page = (out / "report.html").read_bytes()
    assert lesion(capsys, "report", out).code == 0
    assert (out / "report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "1.5"], ["keep must be a fraction of the rank from 0 to 1", "1.5"]),
        (["--keep", "some"], ["--keep takes numbers by commas; 'some' is none."]),
        (["--keep", "1"], ["Nothing is left to try", "--keep 0.1"]),
        (["--matrices", "mlp.upp"], ["no matrix 'mlp.upp'", "nearest: mlp.up", "mlp, attention and all"]),
        (["--matrices", "mlp.up,,all"], ["--matrices takes names by commas"]),
        (["--validation", "1"], ["validation must be the share", "between 0 and 1"]),
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


def test_another_task_in_the_same_folder_is_answered_beside_the_first(capsys, checkpoint, pairs, tmp_path):
    out, other = tmp_path / "out", questions(tmp_path / "sums.jsonl", 12)
    command = searching(checkpoint, pairs, out, "--layers", 0)
    assert lesion(capsys, *command).code == 0
    with Store.read(out) as store:
        before = len(store)
    done = lesion(capsys, *searching(checkpoint, other, out, "--layers", 0))
    assert f"(task {pairs}); they are kept and not shown." in " ".join(done.err.split())
    with Store.read(out) as store:
        assert len(store) > before
    assert "evaluated 0 of" in lesion(capsys, *command).out


def test_weights_that_are_not_finite_are_told_by_their_tensor(capsys, pairs, tmp_path):
    network = tiny("llama")
    with torch.no_grad():
        network.model.layers[2].mlp.down_proj.weight[0, 0] = float("inf")
    folder = save(tmp_path / "m")
    network.save_pretrained(folder)
    done = lesion(capsys, *searching(folder, pairs, tmp_path / "out"))
    refused(done, 1, "not finite: model.layers.2.mlp.down_proj.weight (1 infinite of 1,536)", "checkpoint again")
    assert not (tmp_path / "out").exists()


def test_a_search_without_its_summary_or_with_a_damaged_one_is_to_be_run_again(capsys, checkpoint, pairs, tmp_path):
    out = tmp_path / "out"
    command = searching(checkpoint, pairs, out, "--layers", 0)
    assert lesion(capsys, *command).code == 0
    (out / "summary.json").unlink()
    refused(lesion(capsys, "report", out), 1, "is not finished", "answers are stored", f"--out {out} again")
    (out / "summary.json").write_text("{")
    refused(lesion(capsys, "report", out), 1, "summary.json is damaged", "run the same command again")
    assert lesion(capsys, *command).code == 0
    assert lesion(capsys, "report", out).code == 0
