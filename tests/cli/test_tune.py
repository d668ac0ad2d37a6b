"""The command `lesion tune`, and `run` and `report` on tunings: what they leave, print and refuse."""

import json
from pathlib import Path

import pytest
import torch
from tuning import teach

import lesion as package
from commandline import lesion, refused, save, undrawn
from lesion.models.load import load


@pytest.fixture(autouse=True)
def _taught(monkeypatch):
    teach(monkeypatch)


SMALL = ["--steps", 2, "--rows", 4, "--items", 10, "--ablation-items", 5, "--validation-items", 5]


def tuning(checkpoint: object, out: Path, *more: object, task: str = "sums") -> list[object]:
    return ["tune", checkpoint, "--task", task, *SMALL, "--out", out, *more]


def test_a_trained_model_that_lies_where_the_tuned_one_would_be_written_is_never_replaced(capsys, checkpoint, tmp_path):
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
    assert tuned.table_full["task"].tolist() == ["sums"]
    with undrawn():
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
