"""A study without a folder of its own leaves nothing behind; what a person has named, or may go on with, stays."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lesion
from commandline import questions
from lesion.core.store import Store
from lesion.core.temporary_folder import folder_of
from lesion.errors import LesionError, UsageError
from lesion.progress import Silent
from tiny import model

STUDIES = """
import os, sys
from pathlib import Path
from lesion.core.temporary_folder import folder_of

def study(out=None):
    with folder_of(out) as folder:
        folder.mkdir(exist_ok=True)
        (folder / "answers").touch()
    return folder

first, second, named = study(), study(), study(Path(sys.argv[1]))
assert study(second) == second
third = study()
study(third / "within")
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
assert (first / "answers").is_file()
print(first, second, third, sep="\\n")
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """Where temporary folders are made."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied on this system")
def test_only_what_nobody_has_named_is_removed_and_only_when_python_ends(tmp_path):
    temporary, named = tmp_path / "temporary", tmp_path / "named"
    temporary.mkdir()
    program = [sys.executable, "-c", STUDIES, str(named)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    first, second, third = (Path(line) for line in done.stdout.split())
    assert first.parent == second.parent == temporary
    assert not first.exists()
    assert (second / "answers").is_file()  # it was named later
    assert (third / "within" / "answers").is_file()
    assert (named / "answers").is_file()
    assert set(temporary.glob("lesion-*")) == {second, third}


def test_a_study_that_was_asked_wrongly_leaves_nothing(temporary, tmp_path):
    with pytest.raises(UsageError, match="no block 12"):
        lesion.ablate(model("llama"), str(questions(tmp_path / "sums.jsonl", 2)), items=2, layers=[12])
    assert list(temporary.glob("lesion-*")) == []


def test_what_was_answered_before_a_study_broke_off_stays_and_the_error_says_where(temporary, tmp_path):
    class Stopping(Silent):
        def answered(self, count: int) -> None:
            raise KeyboardInterrupt

    asked = {"tasks": str(questions(tmp_path / "sums.jsonl", 2)), "items": 2, "layers": [0], "max_new_tokens": 2}
    with pytest.raises(KeyboardInterrupt) as broken:
        lesion.ablate(model("llama"), watcher=Stopping(), **asked)
    (folder,) = temporary.glob("lesion-*")
    assert broken.value.__notes__ == [
        f"What there is so far lies in {folder}: given as out='{folder}', the study goes on."
    ]
    assert lesion.ablate(model("llama"), out=folder, **asked).evaluated < 4


def broken_off(out: Path | None, file: str | None) -> Path:
    """The folder of a study that wrote this file and then broke off."""
    told: list[Path] = []

    def study() -> None:
        with folder_of(out) as folder:
            told.append(folder)
            if file:
                (folder / file).write_bytes(b"sums")
            raise LesionError("The disk is full.")

    with pytest.raises(LesionError, match="disk is full"):
        study()
    return told[0]


def test_anything_but_a_lock_and_an_empty_store_is_something(temporary):
    assert broken_off(None, "statistics.safetensors").is_dir()
    assert broken_off(None, "answers.sqlite").is_dir()  # no store that can be read: nobody knows what it holds
    assert not broken_off(None, "lock").exists()
    assert not broken_off(None, None).exists()


def test_a_named_folder_is_handed_on_as_it_is_and_stays(tmp_path):
    mine = tmp_path / "mine"
    assert broken_off(mine, None) == mine
    assert not mine.exists()  # nobody has made it
    mine.mkdir()
    assert broken_off(mine, "lock").is_dir()


def test_a_named_folder_made_by_a_study_that_did_nothing_is_removed_with_those_made_for_it(tmp_path):
    def study(out: Path, *files: str) -> None:
        with folder_of(out):
            Store.open(out, "0", "").close()
            for file in files:
                (out / file).touch()
            raise LesionError("The template knows no thinking.")

    for files, stays in (((), False), (("statistics.safetensors",), True)):
        with pytest.raises(LesionError, match="knows no thinking"):
            study(tmp_path / "kept" / "made" / "out", *files)
        assert (tmp_path / "kept").exists() is stays
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
    (tmp_path / "kept").mkdir()
    with pytest.raises(LesionError, match="knows no thinking"):
        study(tmp_path / "kept" / "out")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_folder_that_another_holds_is_not_removed(tmp_path):
    out = tmp_path / "out"
    holding: list[Store] = []

    def study() -> None:
        with folder_of(out):
            holding.append(Store.open(out, "0", ""))
            raise LesionError("Nothing was done.")

    with pytest.raises(LesionError, match="Nothing was done"):
        study()
    assert out.is_dir()
    holding.pop().close()
