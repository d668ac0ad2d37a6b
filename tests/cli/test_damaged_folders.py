"""Folders of studies as somebody may send them: whatever is wrong in their files is said, and nothing is made up."""

from __future__ import annotations

import contextlib
import json
import random

import made_profiles as profiles
import made_truncation
import pytest

from commandline import lesion
from lesion.errors import LesionError
from lesion.studies.overlay.summary import summarise


def broken(value, draw):
    """The value with something in it replaced by something of another kind, or left out."""
    paths = []

    def walk(one, path):
        if path:
            paths.append(path)
        inner = one.items() if isinstance(one, dict) else enumerate(one[:3]) if isinstance(one, list) else ()
        for key, part in inner:
            walk(part, (*path, key))

    walk(value, ())
    *above, last = draw.choice(paths)
    value = json.loads(json.dumps(value))
    place = value
    for key in above:
        place = place[key]
    choice = draw.choice(["gone", None, "text", -1, [], {}, 1e308, [[]], True])
    if choice == "gone":
        del place[last]
    else:
        place[last] = choice
    return value


NAMES = ("plan.json", "tuning.json", "summary.json")
TEXTS = (
    "",
    "[]",
    "null",
    "{}",
    '{"a": 1, "a": 2}',
    "[" * 5000,
    "\ud800",
    '{"kind": ["drift"]}',
    '{"lab": {}}',
    "9" * 5000,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_file_that_is_no_summary_is_said_by_report_and_overlay(name, text, tmp_path, capsys):
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    for command in (("report", tmp_path), ("overlay", tmp_path, "--out", tmp_path / "out")):
        done = lesion(capsys, *command)
        assert done.code in (1, 2)
        assert "did not foresee" not in done.err
        assert "\n" not in done.complaint.strip()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seed", range(6))
def test_a_search_with_something_else_in_one_place_is_reported_or_refused(seed, tmp_path, capsys):
    whole = made_truncation.few()
    (tmp_path / "lesion.json").write_text('{"kind": "truncation"}')
    (tmp_path / "summary.json").write_text(json.dumps(broken(whole, random.Random(seed))), encoding="utf-8")
    done = lesion(capsys, "report", tmp_path)
    assert "did not foresee" not in done.err


@pytest.mark.parametrize("seed", range(24))
def test_studies_with_something_else_in_one_place_are_laid_over_each_other_or_refused(seed, tmp_path, capsys):
    drops = {"sums": [0.5, 0.1, 0.2, 0.3, 0.7, 0.0]}
    folders = [
        profiles.layers(tmp_path / "layers", drops),
        profiles.drift(tmp_path / "drift", [1.0, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2]),
        profiles.isolation(tmp_path / "isolation", [profiles.selection("mathneuro", 0.05, [9, 2, 4, 6, 8, 1])]),
    ]
    draw = random.Random(seed)
    file = next(draw.choice(folders).glob("*.json"))
    file.write_text(json.dumps(broken(json.loads(file.read_text(encoding="utf-8")), draw)), encoding="utf-8")
    with contextlib.suppress(LesionError):  # anything else would be an error that nobody foresaw
        summarise(folders)
