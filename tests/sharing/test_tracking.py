"""Trackers: what they are told of a study, by stand-ins of the libraries and, where they are installed, by these."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from commandline import lesion, write

ASKED = ["ablate", "bundled:llama-base", "--task", "primer:atlas", "--items", "4", "--layers", "1", "--batch-size", "4"]


class Library(ModuleType):
    """A library that writes down its calls; `broken` are those that fail."""

    def __init__(self, name: str, broken: tuple[str, ...] = ()):
        super().__init__(name)
        self.calls, self.broken = [], broken

    def __getattr__(self, method: str):
        if method.startswith("__"):
            raise AttributeError(method)

        def call(*arguments, **named):
            self.calls.append((method, arguments, named))
            print(f"* {method}: a tracker speaks of itself")
            if method in self.broken:
                raise OSError(f"no {method}")
            return SimpleNamespace(method=method, arguments=arguments, named=named)

        return call

    def named(self, method: str) -> list:
        return [(arguments, named) for each, arguments, named in self.calls if each == method]


@pytest.fixture
def library(request, monkeypatch):
    name = getattr(request, "param", "trackio")
    made = Library(name)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.mark.parametrize("library", ["trackio", "wandb"], indirect=True)
def test_progress_claims_and_figures_reach_a_tracker_of_runs(library, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = lesion(capsys, *ASKED, "--out", "study", "--track", library.__name__)
    assert done.code == 0, done.err
    assert "speaks of itself" not in done.out
    assert ("trackio keeps this run as ablation; see it with" in " ".join(done.err.split())) == (
        library.__name__ == "trackio"
    )
    ((_, begun),) = library.named("init")
    assert (begun["project"], begun["name"], begun["config"]["seed"]) == ("lesion", "ablation", "0")
    *progress, told, drawn = library.named("log")
    steps = [named["step"] for _, named in progress]
    assert steps == sorted(set(steps))
    assert steps[-1] == 8  # of four items without and with the edit
    assert progress[-1][0][0] == {"answers": 8.0, "share done": 1.0}
    assert told[0][0]["claims"].named["data"][0][0] in " ".join(done.out.split())
    assert drawn[0][0].keys() == {path.stem for path in Path("study/figures").glob("*.png")}
    assert library.named("finish")


@pytest.mark.parametrize("library", ["mlflow"], indirect=True)
def test_mlflow_gets_metrics_and_artifacts(library, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lesion(capsys, *ASKED, "--out", "study", "--track", "mlflow").code == 0
    assert library.named("start_run") == [((), {"run_name": "ablation"})]
    assert library.named("log_metrics")[-1] == (({"answers": 8.0, "share done": 1.0},), {"step": 8})
    assert library.named("log_text")[0][0][1] == "claims.md"
    assert library.named("end_run") == [(("FINISHED",), {})]


def test_paths_stay_here(library, capsys, folder, tmp_path):
    task = tmp_path / "private.jsonl"
    asked = ["ablate", "bundled:llama-base", "--task", task, "--items", "4", "--layers", "1", "--out", "study"]
    assert lesion(capsys, *asked, "--track", "trackio").code == 0
    assert str(tmp_path) not in str([call for call in library.calls if call[0] != "Image"])


def test_a_tracker_that_fails_on_the_way_ends_no_study(library, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library.broken = ("log", "Table")
    done = lesion(capsys, *ASKED, "--out", "study", "--track", "trackio")
    assert done.code == 0
    assert library.named("finish")
    assert done.err.count("The tracker failed (no log); the study goes on without it.") == 1


def test_a_study_that_breaks_off_ends_its_run_without_claims(library, capsys, tmp_path, monkeypatch):
    from lesion.cli.terminal import Bar

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Bar, "answered", stop)
    assert lesion(capsys, *ASKED, "--out", "study", "--track", "trackio").code == 130
    assert not library.named("Table")
    assert library.named("finish")


def test_what_cannot_be_tracked_is_said_before_anything_begins(library, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = lesion(capsys, *ASKED, "--out", "study", "--track", "aim")
    assert done.code == 2
    assert "--track takes trackio, wandb, mlflow, not 'aim'" in done.err
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = lesion(capsys, *ASKED, "--out", "study", "--track", "wandb")
    assert done.code == 2
    assert "pip install 'lesion[wandb]'" in done.err
    library.broken = ("init",)
    done = lesion(capsys, *ASKED, "--out", "study", "--track", "trackio")
    assert done.code == 1
    assert "trackio keeps no run (no init)" in done.err
    assert not Path("study").exists()


def test_the_real_trackio_keeps_a_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "runs"))
    pytest.importorskip("trackio")
    monkeypatch.chdir(tmp_path)
    assert lesion(capsys, *ASKED, "--out", "study", "--track", "trackio").code == 0
    with sqlite3.connect(tmp_path / "runs" / "lesion.db") as runs:
        kept = [str(row) for row in runs.execute("SELECT * FROM metrics")]
    assert any('"answers":8.0' in row for row in kept)


def test_the_real_wandb_keeps_a_run_without_the_paths_of_the_command(tmp_path):
    pytest.importorskip("wandb")
    write(tmp_path / "private.jsonl", ({"prompt": f"{n} + 1 =", "answer": f"{n + 1}"} for n in range(4)))
    asked = ["ablate", "bundled:llama-base", "--task", tmp_path / "private.jsonl", "--layers", "1", "--anyway"]
    words = [sys.executable, "-m", "lesion", *asked, "--out", tmp_path / "study", "--track", "wandb"]
    # On its own: what wandb keeps of a command, it reads from the process.
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | {"WANDB_MODE": "offline"}, capture_output=True)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("wandb/offline-run-*")
    (record,) = run.glob("*.wandb")
    kept = b"".join(path.read_bytes() for path in (record, *run.glob("files/**/*.*")))
    assert all(word in kept for word in (b"share done", b"private.jsonl", b'"columns":["claim"]'))
    assert str(tmp_path).encode() not in kept
    assert list(run.glob("files/media/images/drop_*.png"))


@pytest.mark.filterwarnings("default")  # what another program's libraries warn each other of is no error of ours
def test_the_real_mlflow_keeps_a_run(capsys, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    assert lesion(capsys, *ASKED, "--out", "study", "--track", "mlflow").code == 0
    (run,) = mlflow.search_runs(experiment_names=["lesion"], output_format="list")
    assert run.data.metrics["answers"] == 8
