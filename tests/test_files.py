"""Files that somebody named: every way in which a path or its text can be wrong is one error that names it."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from lesion import files
from lesion.errors import LesionError, UsageError


@pytest.mark.parametrize("path", ["", "  ", "~nosuchuser/x", "a" * 300, "x\0y", "\x1b[31m", "a\udc80b", "a\nb"])
def test_a_path_that_no_system_follows_is_wrong_use(path):
    for read in (files.named, files.existing):
        with pytest.raises(UsageError) as refusal:
            read(path)
        assert str(refusal.value).isprintable()
        assert len(str(refusal.value)) < 250


def test_links_in_a_circle_are_wrong_use(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for path in (tmp_path / "a", tmp_path / "a" / "below"):
        with pytest.raises(UsageError, match="circle"):
            files.named(path)


def test_a_folder_that_may_not_be_entered_is_wrong_use(monkeypatch):
    def stat(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(UsageError, match="permission denied; check the permissions"):
        files.named("closed/out")


def test_the_home_folder_is_expanded_and_what_does_not_exist_is_a_path_too(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.named("~/new/folder") == tmp_path / "new" / "folder"


def test_only_ordinary_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        for read in (files.existing, files.read_bytes):
            with pytest.raises(UsageError, match=r"a device or a pipe|a folder"):
                read(path)
    with pytest.raises(UsageError, match="There is no file"):
        files.read_bytes(tmp_path / "absent")


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LesionError, match="at most 1,048,576 are read"):
        files.read_toml(tmp_path / "sparse")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: this is not JSON"), ('{"a": 1,\n "b"}', "line 2: this is not JSON"), ("[" * 100_000, "nested"),
        ('{"a":' * 100_000, "nested"), ("9" * 5000, "digits"), ('{"a": "\\ud800"}', "half a character"),
        ('{"\\uDC00": 1}', "half a character"), ("[]", "a list, where a JSON object"),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_one_error_with_the_file(text, says, tmp_path):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(LesionError, match=says) as refusal:
        files.read_object(file)
    assert str(file) in str(refusal.value)


def test_whole_surrogate_pairs_are_characters(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"a": "😀"}))
    assert files.read_object(tmp_path / "x.json") == {"a": "😀"}


DEEP = ".".join(["a"] * 20_000)


@pytest.mark.parametrize(
    "text", [f"{DEEP} = 1", f"[{DEEP}]", f"[[ {DEEP} ]]", f"x = {{ {DEEP} = 1 }}", DEEP.replace("a", "'a b'")]
)
def test_a_key_of_very_many_parts_is_refused_at_once(text, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(f"kind = 'layers'\n{text}\n")
    begun = time.process_time()
    with pytest.raises(UsageError, match=r"x\.toml is not a study: it is nested too deeply"):
        files.read_toml(file)
    assert time.process_time() - begun < 2


def test_dots_in_texts_are_no_parts_of_a_key(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(f'a.b."c d" = "{DEEP}"\n')
    assert files.read_toml(file) == {"a": {"b": {"c d": DEEP}}}


@pytest.mark.parametrize("text", ["a = ", "a = " + "9" * 5000, "a = " + "[" * 50_000, 'a = "\x00"'])
def test_what_is_no_toml_is_wrong_use(text, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"x\.toml"):
        files.read_toml(file)


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "x").write_bytes(b"a\nb\xff")
    with pytest.raises(LesionError, match="line 2: this is not UTF-8"):
        files.read_text(tmp_path / "x")


@pytest.mark.parametrize(
    "read", [lambda t: t["a"], lambda t: t["x"][0], lambda t: t["y"] + 1, lambda t: 10.0 ** t["n"]]
)
def test_whatever_does_not_fit_a_received_file_is_a_damaged_file(read):
    with pytest.raises(LesionError, match=r"summary\.json is damaged \(.+\); run it again\."):
        with files.understood("summary.json", "run it again"):
            read({"x": [], "y": None, "n": 1e9})
