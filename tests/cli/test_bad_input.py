"""What bad input gets: one paragraph that says what to do, the right exit code, and nothing lost."""

import json
import resource
import shutil
from pathlib import Path

import pytest

from commandline import lesion, questions, refused
from lesion.core.store import Store


@pytest.fixture
def sums(tmp_path) -> Path:
    return questions(tmp_path / "sums.jsonl", 6)


def stored(folder: Path) -> int:
    with Store.read(folder) as store:
        return len(store)


# -- models


def test_an_unknown_hub_id_without_the_network_names_the_ways_out(capsys, sums, out):
    done = lesion(capsys, "ablate", "nobody/nothing", "--task", sums, "--items", 2, "--out", out)
    refused(done, 1, "nobody/nothing", "HF_HUB_OFFLINE", "network", "folder", "bundled:")


def without(checkpoint: Path, folder: Path, *names: str) -> Path:
    shutil.copytree(checkpoint, folder)
    for name in names:
        (folder / name).unlink(missing_ok=True)
    return folder


def configured(checkpoint: Path, folder: Path, **settings) -> Path:
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


@pytest.mark.parametrize("command", ["show", "ablate"])
def test_a_folder_that_holds_no_whole_model_is_refused_by_what_is_missing(command, capsys, checkpoint, sums, tmp_path):
    cases = {
        "has no config.json": without(checkpoint, tmp_path / "a", "config.json"),
        "has no tokenizer": without(checkpoint, tmp_path / "b", "tokenizer.json", "tokenizer_config.json"),
        "weights": without(checkpoint, tmp_path / "c", "model.safetensors"),
        "do not fit its config.json": configured(checkpoint, tmp_path / "d", intermediate_size=40),
        "4 bit": configured(
            checkpoint, tmp_path / "e", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}
        ),
    }
    for says, folder in cases.items():
        rest = ["--task", sums, "--items", 2, "--out", tmp_path / f"out-{folder.name}"] if command == "ablate" else []
        refused(lesion(capsys, command, folder, *rest), 1, says, str(folder))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--layers", "3-1"], "The range 3-1 runs backwards; write 1-3."),
        (["--factor", "half"], "--factor takes numbers"),
        (["--seed", "-1"], "seed must be a whole number from 0"),
        (["--level", "95"], "level must be a number between 0 and 1"),
        (["--dtype", "float8"], "dtype must be auto, float32, bfloat16 or float16"),
        (["--prompt-style", "polite"], "There is no prompt style 'polite'"),
        (["--prompt-style", "chat"], "has no chat template; choose another prompt style: raw or plain."),
        (["--colour", "red"], "No such option: --colour"),
    ],
)
def test_wrong_use_names_what_was_typed_and_what_would_be_right(options, says, capsys, checkpoint, sums, out):
    done = lesion(capsys, "ablate", checkpoint, "--task", sums, "--items", 2, "--out", out, *options)
    refused(done, 2, says.format(model=checkpoint))
    assert not out.exists()


# -- folders


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_asked(capsys, checkpoint, sums, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/lesion")):
        done = lesion(capsys, "ablate", checkpoint, "--task", sums, "--items", 2, "--out", folder)
        refused(done, 1, "cannot be written", "--out")


def test_what_a_smaller_study_of_a_folder_leaves_out_is_said(capsys, checkpoint, sums, tmp_path, out):
    other = questions(tmp_path / "other.jsonl", 3)
    command = ["ablate", checkpoint, "--max-new-tokens", 1, "--layers", 0, "--out", out]
    assert "not shown" not in lesion(capsys, *command, "--task", sums, "--task", other, "--items", 2).err
    done = lesion(capsys, *command, "--task", sums, "--items", 1)
    assert done.code == 0
    assert f"(task {other}; 1 further item of {sums}); they are kept and not shown." in " ".join(done.err.split())
    assert "evaluated 0 of 2 answers" in done.out


def test_a_full_disk_is_said_and_the_same_command_goes_on_once_there_is_room(
    capsys, checkpoint, tmp_path, out, monkeypatch
):
    """The limit on the size of files stands in for a disk: beyond it every write fails."""
    monkeypatch.setattr("lesion.core.inference.COMMIT_EVERY", 0.0)
    task = tmp_path / "long.jsonl"
    lines = [{"id": n, "prompt": f"{n}" + "x" * 200, "answer": "y", "solution": ""} for n in range(100)]
    task.write_text("\n".join(map(json.dumps, lines)))
    command = ["ablate", checkpoint, "--task", task, "--items", "all", "--max-new-tokens", 1, "--layers", 0]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        full = lesion(capsys, *command, "--out", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    refused(full, 1, "disk is full", "run the same command again")
    kept = stored(out)
    assert 0 < kept < 200
    again = lesion(capsys, *command, "--out", out)
    assert f"evaluated {200 - kept} of 200 answers; {kept} were stored already" in again.out


# -- studies and the lab


def test_an_unknown_study_names_those_there_are(capsys, tmp_path):
    refused(lesion(capsys, "run", "demmo"), 2, "no study 'demmo'", "(nearest: demo, ")
    refused(lesion(capsys, "run", tmp_path / "absent.toml"), 2, f"There is no file {tmp_path / 'absent.toml'}")


def test_a_study_file_that_is_not_toml_names_line_and_column(capsys, tmp_path):
    (tmp_path / "bad.toml").write_text('models = ["m"]\ntasks = nothing\n')
    refused(lesion(capsys, "run", tmp_path / "bad.toml"), 2, "is not valid TOML", "line 2, column 9")


def test_the_lab_refuses_what_it_cannot_train(capsys, tmp_path):
    refused(lesion(capsys, "lab", "lineage", "--stage", "chat"), 2, "no stage 'chat'", "base")
    refused(lesion(capsys, "lab", "lineage", "--groups", 0), 2, "'--groups'")
    refused(lesion(capsys, "lab", "lineage", "--device", "toaster", "--out", tmp_path / "x"), 2, "device 'toaster'")
    (tmp_path / "file").write_text("in the way")
    done = lesion(capsys, "lab", "lineage", "--groups", 1, "--out", tmp_path / "file")
    refused(done, 1, "cannot be written", "--out")
