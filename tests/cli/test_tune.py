"""The command `lesion tune`, and `run` and `report` on tunings: what they leave, print and refuse."""

import json
from pathlib import Path

import pytest
import torch
from tuning import teach

import lesion as package
from commandline import lesion, questions, refused, save
from lesion.models.load import load


@pytest.fixture(autouse=True)
def _taught(monkeypatch):
    teach(monkeypatch)


SMALL = ["--steps", 2, "--rows", 4, "--items", 10, "--ablation-items", 5, "--validation-items", 5]


def tuning(checkpoint: object, out: Path, *more: object, task: str = "sums") -> list[object]:
    return ["tune", checkpoint, "--task", task, *SMALL, "--out", out, *more]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--layers", "crit"], ["'crit' names no blocks to tune (nearest: critical", "layers such as 0-3,7"]),
        (["--budget", "4"], ["A budget of 4 blocks is more than", "has: 3"]),
        (["--adapter", "64"], ["rank of 1 to 16, not 64", "--adapter"]),
        (["--learning-rate", "-1"], ["learning_rates must be a number above 0"]),
        (["--generations", "4"], ["generations is of answers that are drawn", "train by reward"]),
        (["--dtype", "bfloat16"], ["tuned in float32", "leave --dtype out"]),
        (["--control", "sums"], ["sums is the task that is tuned on"]),
        (["--items", "56"], ["sums has 60 items, and 61 are needed", "--items"]),
        (
            ["--study", "nowhere"],
            ["There is no nowhere/summary.json", "--study is the folder of a finished layer"],
        ),
    ],
)
def test_what_cannot_be_is_one_paragraph_and_leaves_no_folder(options, says, capsys, checkpoint, tmp_path):
    done = lesion(capsys, *tuning(checkpoint, tmp_path / "out", *options))
    refused(done, 2, *says)
    assert not (tmp_path / "out" / "cells").exists()


def test_a_task_without_training_items_is_told_which_have_them(capsys, checkpoint, tmp_path):
    file = questions(tmp_path / "q.jsonl", 30)
    for task in (str(file), "closed", "primer:atlas"):
        done = lesion(capsys, *tuning(checkpoint, tmp_path / "out", task=task))
        refused(done, 2, "has no training items apart from those that it asks", "primer:arithmetic", "gsm8k")


def test_a_folder_of_something_else_is_left_alone(capsys, checkpoint, tmp_path):
    assert lesion(capsys, *tuning(checkpoint, tmp_path / "out", "--layers", "0")).code == 0
    other = lesion(capsys, *tuning(checkpoint, tmp_path / "out", "--layers", "0", "--rows", 2))
    refused(other, 1, "holds another tuning (rows: 4 there, 2 here)", "--out")
    ablated = lesion(capsys, "ablate", checkpoint, "--task", "sums", "--items", 5, "--out", tmp_path / "layers")
    assert ablated.code == 0, ablated.err
    refused(lesion(capsys, *tuning(checkpoint, tmp_path / "layers")), 2, "belongs to `lesion ablate`", "--out")
    # A trained model that lies where the tuned one would be written must never be replaced.
    trained = save(tmp_path / "trained" / "model")
    refused(lesion(capsys, *tuning(checkpoint, trained.parent)), 2, "model is there already", "--out")
    assert load(trained).name


def test_from_python_it_is_the_same(checkpoint, tmp_path):
    model = package.load(checkpoint)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    tuned = package.tune(
        model,
        "sums",
        layers=[0, 1],
        steps=2,
        rows=4,
        learning_rate=[0.01, 0.02],
        items=10,
        ablation_items=5,
        validation_items=5,
        out=tmp_path,
    )
    assert tuned.summary.arms[0].name == "0-1"
    assert len(tuned.summary.arms[0].rates) == 2
    assert tuned.table["task"].tolist() == ["sums"]
    assert tuned.report() == tmp_path / "report.html"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.network.state_dict().items())
    assert package.load(tuned.model).fingerprint != model.fingerprint


@pytest.mark.slow
def test_the_bundled_model_is_tuned_on_the_primer(capsys, tmp_path):
    done = lesion(
        capsys, "tune", "bundled:llama-base", "--task", "primer:arithmetic", "--layers", "critical", "--budget", "2",
        "--control", "primer:atlas", "--steps", 2, "--rows", 4, "--items", 8, "--control-items", 4,
        "--ablation-items", 8, "--validation-items", 5, "--out", tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    # Without the very first block nothing works, whatever else is critical.
    assert 0 in summary["arms"][0]["blocks"][0]
    assert summary["baseline"][1]["accuracy"]["value"] == 1.0
    assert load(tmp_path / "model").anatomy.family == "llama"
