"""Output folders: one kind of study each, no links out of them, nothing kept of killed runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commandline import lesion
from lesion.atomic import replace
from lesion.core.lock import FolderLock
from lesion.errors import LesionError, UsageError
from lesion.outputs import KINDS, MARK, clear_leftovers, default_folder, kind_of, own, refuse_another_kind, refuse_links
from lesion.report.publishing import writing

needs_links = pytest.mark.skipif(os.name != "posix", reason="makes links and pipes as POSIX has them")

COMMANDS = {
    "layers": ["ablate", "no-model", "--task", "primer:arithmetic"],
    "isolation": ["isolate", "no-model", "--skill", "primer:arithmetic", "--control", "primer:atlas"],
    "evaluation": ["evaluate", "no-model", "--task", "primer:arithmetic"],
    "truncation": ["truncate", "no-model", "--task", "primer:arithmetic"],
    "tuning": ["tune", "no-model", "--task", "primer:arithmetic"],
    "drift": ["drift", "no-model", "--task", "primer:arithmetic"],
    "effects": ["effects", "no-model", "--task", "primer:arithmetic"],
    "interaction": ["interact", "no-model", "--task", "primer:arithmetic"],
    "patching": ["patch", "no-model", "--task", "ioi"],
    "overlay": ["overlay", "no-study"],
    "comparison": ["compare", "no-study"],
    "demo": ["demo"],
    "recall": ["lab", "recall"],
    "memory": ["lab", "memory"],
    "lineage": ["lab", "lineage"],
    "planted": ["lab", "planted"],
}
"""A command of every kind. The models are not there: a folder must be refused before anything is loaded."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


OTHERS = [
    (before, command)
    for number, command in enumerate(COMMANDS)
    for before in ([*KINDS][number - 2], [*KINDS][number - 6])
    if before != command and (before, command) != ("isolation", "evaluation")
]
"""Every command with two other kinds in turn, so that every kind has its turn."""


@pytest.mark.parametrize(("before", "command"), OTHERS)
def test_no_command_writes_into_the_folder_of_another_kind(before, command, tmp_path, capsys):
    assert {kind for kind, _ in OTHERS} == {*KINDS}
    own(tmp_path, before)
    (tmp_path / "summary.json").write_text('{"precious": true}')
    (tmp_path / "report.html").write_text("precious")
    there = contents(tmp_path)
    done = lesion(capsys, *COMMANDS[command], "--out", tmp_path)
    assert done.code == 2
    assert f"belongs to {KINDS[before]}" in done.complaint
    assert "--out" in done.complaint
    assert contents(tmp_path) == there


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_over_a_study_of_which_nothing_says_what_it_is(command, tmp_path, capsys):
    (tmp_path / "summary.json").write_text('{"precious": true}')
    done = lesion(capsys, *COMMANDS[command], "--out", tmp_path)
    assert done.code == 2
    assert "summary.json is there already" in done.complaint
    assert contents(tmp_path) == {"summary.json": b'{"precious": true}'}


@pytest.mark.parametrize("kind", ["lineage", "planted"])
def test_a_folder_of_models_takes_no_study_and_no_models_of_another_kind(kind, tmp_path):
    own(tmp_path, kind)
    refuse_another_kind(tmp_path, "layers")  # nothing is there yet
    (tmp_path / "base").mkdir()
    assert refuse_another_kind(tmp_path, kind)
    for other in {*KINDS} - {kind}:
        with pytest.raises(UsageError, match=rf"belongs to {KINDS[kind]}.* \(base\)"):
            refuse_another_kind(tmp_path, other)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_folder_of_the_own_kind_is_not_refused_for_its_kind(command, tmp_path, capsys):
    if command in ("demo", "recall", "memory", "lineage", "planted"):
        pytest.skip("these would run to their end")
    own(tmp_path, "isolation" if command == "evaluation" else command)
    (tmp_path / "report.html").write_text("an earlier one")
    done = lesion(capsys, *COMMANDS[command], "--out", tmp_path)
    assert "belongs to" not in done.err
    assert "no-model" in done.err or "no-study" in done.err  # the next thing that is wrong


def test_reports_are_written_into_folders_of_their_kind_only(tmp_path):
    own(tmp_path, "layers")
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(UsageError, match="belongs to `lesion ablate`"), writing(tmp_path, "drift"):
        raise AssertionError("it was opened")
    with writing(tmp_path, "layers") as place:
        assert place == tmp_path


def test_a_folder_in_which_nothing_came_about_is_free_for_another_kind(tmp_path):
    own(tmp_path, "layers")
    own(tmp_path, "drift")
    assert kind_of(tmp_path) == "drift"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "El se"}', '{"kind": ["drift"]}', "[" * 900, "x" * 2000])
def test_a_damaged_note_is_refused(text, tmp_path):
    (tmp_path / MARK).write_text(text)
    with pytest.raises(LesionError, match=MARK):
        own(tmp_path, "drift")
    assert (tmp_path / MARK).read_text() == text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "else"}', '{"kind": "layers"}', "x" * 2000])
def test_a_reader_of_a_folder_with_a_wrong_note_is_told_what_a_reader_can_do(text, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / MARK).write_text(text)
    with (
        pytest.raises(LesionError, match=f"delete {MARK} and write the report again") as refused,
        writing(tmp_path, "drift"),
    ):
        pass
    assert "--out" not in str(refused.value)
    assert "overwrite" not in str(refused.value)
    assert (tmp_path / MARK).read_text() == text
    (tmp_path / MARK).unlink()
    with writing(tmp_path, "drift"):
        pass
    assert kind_of(tmp_path) == "drift"


@needs_links
@pytest.mark.parametrize(
    "name", ["lock", "summary.json", "figures", "answers.sqlite", "answers.sqlite-wal", MARK, "model"]
)
def test_a_link_in_an_output_folder_is_refused_and_its_target_stays_as_it_is(name, tmp_path):
    target = tmp_path / "elsewhere"
    if name in ("figures", "model"):
        target.mkdir()
    else:
        target.write_text("12345")
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(target)
    for attempt in (lambda: FolderLock(out, "layers"), lambda: writing(out, "layers").__enter__()):
        with pytest.raises(LesionError, match=rf"{name} is a link.*Remove it"):
            attempt()
    assert list(target.iterdir()) == [] if target.is_dir() else target.read_text() == "12345"
    assert {path.name for path in out.iterdir()} == {name}


@needs_links
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in ("overlay", "comparison")])
def test_no_command_follows_a_lock_that_is_a_link(command, tmp_path, capsys):
    (tmp_path / "precious").write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    (out / "lock").symlink_to(tmp_path / "precious")
    given = ["bundled:llama-base" if word == "no-model" else word for word in COMMANDS[command]]
    done = lesion(capsys, *given, "--out", out)
    assert done.code == 1
    assert "lock is a link" in done.complaint
    assert (tmp_path / "precious").read_text() == "precious"


@needs_links
def test_links_within_the_folders_of_a_study_are_found(tmp_path):
    (tmp_path / "cells" / "one").mkdir(parents=True)
    (tmp_path / "cells" / "one" / "cell.json").symlink_to("/etc/hostname")
    with pytest.raises(LesionError, match=r"cell.json is a link"):
        own(tmp_path, "tuning")


@needs_links
def test_pipes_and_things_of_the_wrong_kind_are_refused_without_waiting(tmp_path):
    for number, (name, make, what) in enumerate(
        [
            ("lock", os.mkfifo, "a device or a pipe"),
            ("summary.json", os.mkfifo, "a device or a pipe"),
            ("lock", os.mkdir, "a folder, where a file belongs"),
            ("answers.sqlite", os.mkdir, "a folder, where a file belongs"),
            ("figures", lambda path: Path(path).write_text(""), "a file, where a folder belongs"),
        ]
    ):
        out = tmp_path / str(number)
        out.mkdir()
        make(out / name)
        with pytest.raises(LesionError, match=f"{name} is {what}"):
            FolderLock(out, "layers")


@needs_links
def test_a_store_with_two_names_is_refused(tmp_path):
    (tmp_path / "other").write_text("")
    (tmp_path / "out").mkdir()
    os.link(tmp_path / "other", tmp_path / "out" / "answers.sqlite")
    with pytest.raises(LesionError, match="hard link"):
        refuse_links(tmp_path / "out")


@needs_links
def test_a_file_that_is_written_whole_replaces_a_link_and_not_its_target(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "precious"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("text", ["my notes", "12345 and more", "1" * 40, "\0"])
def test_a_lock_that_holds_something_else_is_left_as_it_is(text, tmp_path):
    (tmp_path / "lock").write_text(text)
    with pytest.raises(LesionError, match=r"something else than the number of a process"):
        FolderLock(tmp_path, "layers")
    assert (tmp_path / "lock").read_text() == text


@pytest.mark.parametrize("text", ["", "7\n", "4194304\n"])
def test_a_lock_that_a_killed_process_left_is_taken(text, tmp_path):
    (tmp_path / "lock").write_text(text)
    lock = FolderLock(tmp_path, "layers")
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="there nobody can ask whether a process lives without ending it")
def test_what_killed_processes_left_unfinished_goes_with_the_next_run(tmp_path):
    (tmp_path / "figures").mkdir()
    killed = """
import os, signal, sys
from pathlib import Path
from lesion.atomic import replace
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
replace(Path(sys.argv[1]), "half")
"""
    for name in ("report.html", "figures/drop.png"):
        done = subprocess.run([sys.executable, "-c", killed, tmp_path / name], check=False)
        assert done.returncode == -9
    mine = tmp_path / f".summary.json.partial-{os.getpid()}-abc"  # a living process is at work on it
    mine.write_text("")
    (tmp_path / ".hidden").write_text("of somebody else")
    assert len(list(tmp_path.rglob(".*.partial-*"))) == 3
    FolderLock(tmp_path, "layers").release()
    assert list(tmp_path.rglob(".*.partial-*")) == [mine]
    assert (tmp_path / ".hidden").exists()
    mine.unlink()
    clear_leftovers(tmp_path)
    assert json.loads((tmp_path / MARK).read_text()) == {"kind": "layers"}


@pytest.mark.parametrize(
    "name",
    [
        "../../../x", "/x", "a/b", "a\\b", "..", ".", ".hidden", "a\0b", "a\nb", "\x1b[31m", "con", "NUL.txt",
        "com1",        "x" * 101, "é" * 101, "語" * 90, " x", "x ", "\ud800",
    ],
)  # fmt: skip
def test_a_name_that_is_no_plain_name_makes_no_folder(name):
    with pytest.raises(UsageError, match=r"so that no folder can be called after it; .*--out"):
        default_folder(name, "a" * 64)


@pytest.mark.parametrize("name", ["study", "Figure 3", "größe", "a.b", "console", "x" * 100, "a: b"])
def test_a_plain_name_is_a_folder_in_the_folder_of_all(name):
    folder = default_folder(name, "0123456789")
    assert folder == Path("lesion-out") / f"{name}-01234567"
    assert folder.resolve().parent == Path("lesion-out").resolve()


def test_a_study_file_does_not_lead_out_of_the_folder_of_all(tmp_path, monkeypatch, capsys):
    (tmp_path / "at").mkdir()
    monkeypatch.chdir(tmp_path / "at")
    llama = "bundled:llama-base"
    for body in (
        f'models = ["{llama}"]\ntasks = ["primer:atlas"]',
        f'kind = "isolation"\nmodel = "{llama}"\nskill = "primer:arithmetic"\ncontrols = ["primer:atlas"]',
        f'kind = "truncation"\nmodel = "{llama}"\ntasks = ["primer:atlas"]',
        f'kind = "drift"\nmodels = ["{llama}"]\ntask = "primer:arithmetic"',
        'kind = "recall"',
    ):
        Path("study.toml").write_text(f'name = "../../escaped"\n{body}\n')
        done = lesion(capsys, "run", "study.toml")
        assert done.code == 2
        assert "no folder can be called after it" in done.complaint
    Path("study.toml").write_text('name = "a\\u0000b"\nmodels = ["bundled:llama-base"]\ntasks = ["primer:atlas"]\n')
    done = lesion(capsys, "run", "study.toml")
    assert (done.code, "control characters" in done.complaint) == (2, True)
    assert [path.name for path in tmp_path.rglob("*")] == ["at", "study.toml"]


def test_a_folder_that_holds_a_model_takes_no_study(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds a model \(config\.json\).*--out"):
        refuse_another_kind(tmp_path, "layers")
