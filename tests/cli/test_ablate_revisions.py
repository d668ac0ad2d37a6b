"""`lesion ablate --revisions`: a training over time, from the command line and from Python."""

import json
from pathlib import Path

import pytest

import lesion as library
from commandline import lesion, questions, save
from tiny import tiny, tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A model with two checkpoints beside it, of which the second holds its own weights."""
    folder = tmp_path_factory.mktemp("training")
    for place, scale in (("checkpoints/step2", 1.5), ("checkpoints/step9", 1.0), ("model", 1.0)):
        save(folder / place)
        network = tiny("llama")
        network.get_input_embeddings().weight.data *= scale
        network.save_pretrained(folder / place)
        tokenizer().save_pretrained(folder / place)
    return folder / "model"


@pytest.mark.slow
def test_a_training_is_followed_and_told_over_time(capsys, trained, tmp_path):
    sums, out = questions(tmp_path / "sums.jsonl", 4), tmp_path / "out"
    asks = ("--task", sums, "--items", 3, "--max-new-tokens", 2, "--out", out)
    done = lesion(capsys, "ablate", trained, "--revisions", "all", *asks)
    assert done.code == 0, done.err
    assert f"note: {trained}@step9 has the very weights of {trained}" in done.out
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in summary["models"]] == [f"{trained}@step2", str(trained)]
    (family,) = summary["invariance"]["families"]
    assert (family["family"], family["verdict"]["word"]) == (str(trained), "cannot tell")
    assert [(one["model"], one["step"]) for one in family["members"]] == [(str(trained), None), (f"{trained}@step2", 2)]

    again = library.ablate(str(trained), [str(sums)], items=3, max_new_tokens=2, revisions=["step2"], out=out)
    assert again.evaluated == 0
    assert again.summary.model_dump(mode="json")["invariance"] == summary["invariance"]


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(capsys, trained, tmp_path):
    sums = questions(tmp_path / "sums.jsonl", 4)
    done = lesion(capsys, "ablate", trained, "--revisions", "step3", "--task", sums, "--out", tmp_path / "out")
    assert done.code == 2
    assert done.complaint.startswith(f"{trained} has no revision 'step3' (nearest: ")
    assert done.complaint.endswith("There are: step2, step9.\n")
    assert not (tmp_path / "out").exists()
