"""Options about loading a model, which every command that loads one has."""

import shutil

import pytest

from commandline import lesion, questions, save
from lesion.engines.config import EngineChoice
from lesion.engines.factory import Opened
from lesion.errors import UsageError
from lesion.models.load import load
from lesion.registry import methods


def test_every_command_that_answers_takes_revision_device_map_and_trust(capsys):
    for method in methods().values():
        if method.distributed and method.command:
            said = lesion(capsys, *method.command.split(), "--help", "all").out
            for option in ("--revision", "--device-map", "--trust-remote-code", "--device", "--dtype", "--out"):
                assert f" {option} " in said, (method.command, option)


def test_a_revision_is_of_the_one_model(capsys, tmp_path):
    model = save(tmp_path / "model")
    shutil.copytree(model, tmp_path / "step1")
    shutil.move(tmp_path / "step1", model / "checkpoints" / "step1")
    command = ("--task", questions(tmp_path / "sums.jsonl", 2), "--max-new-tokens", 1, "--layers", 0, "--items", 2)
    done = lesion(
        capsys, "ablate", model, *command, "--revision", "step1", "--device-map", "cpu", "--out", tmp_path / "a"
    )
    assert done.code == 0, done.err
    assert "model@step1" in done.out
    done = lesion(capsys, "ablate", model, "bundled:llama-base", *command, "--revision", "step1")
    assert done.code == 2
    assert "model@step1 in place of" in done.complaint
    done = lesion(capsys, "ablate", model, *command, "--revision", "step1", "--revisions", "all")
    assert done.code == 2


def test_device_map_and_trust_reach_the_loading_of_a_model(monkeypatch, tmp_path):
    given = {}
    monkeypatch.setattr("lesion.engines.factory.load", lambda source, **options: given.update(options) or load(source))
    choice = EngineChoice(device_map="balanced", trust_remote_code=True)
    Opened(choice, None).load(save(tmp_path / "model"), revision=None, dtype="float32", device="auto")
    assert (given["device_map"], given["trust_remote_code"], given["device"]) == ("balanced", True, "auto")


def test_a_device_map_is_for_transformers_in_this_process():
    for other in ({"workers": 2}, {"engine": "vllm"}):
        with pytest.raises(UsageError, match="gpus-per-worker"):
            EngineChoice(device_map="auto", **other)
