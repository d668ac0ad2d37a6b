"""A study of every kind, interrupted and continued, gives the numbers that were recorded.

`python tests/golden/record.py` writes the record anew; do that only where a number is meant to change, and say why. On
another processor the last digits differ. So floats are compared to rounding, and digests over such floats are not
compared: those of selections and means, and of the keys of answers under them or of tuned or noisy models.
`LESION_GOLDEN=exact` compares everything to the last digit, as holds on one machine.
"""

import html
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import golden
from commandline import lesion
from lesion.registry import recall

EXACT = os.environ.get("LESION_GOLDEN") == "exact"
RELATIVE, ABSOLUTE = 1e-4, 1e-5
LOOSE = {"patching": 0.02, "heads": 0.001}
"""Relative tolerance of a folder where some numbers are little but rounding: p of heads that do next to nothing."""
KEYS = re.compile(r"/(isolation|evaluate|tuning|kinds|heads|family)/keys")
"""Digests of keys that name selections, means, tuned or noisy models."""
DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
"""The digest of a selection, alone or in the text form of an edit."""


def differences(value: Any, recorded: Any, place: str = "") -> list[str]:
    """Where a value is not the recorded one, with both."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        further = (
            set() if "/tables" in f"{place}/" else value.keys() - recorded.keys()
        )  # tables and columns may be added
        parts = [f"{place}/{key}: only in one" for key in sorted(further | (recorded.keys() - value.keys()))]
        return parts + [
            part
            for key in sorted(value.keys() & recorded.keys())
            for part in differences(value[key], recorded[key], f"{place}/{key}")
        ]
    if isinstance(value, list) and isinstance(recorded, list) and len(value) == len(recorded):
        return [
            part
            for index, (mine, theirs) in enumerate(zip(value, recorded, strict=True))
            for part in differences(mine, theirs, f"{place}/{index}")
        ]
    if not EXACT and isinstance(value, str) and isinstance(recorded, str):
        if KEYS.fullmatch(place):
            return []
        if not place.endswith("/fingerprint"):  # that of a model's own weights is exact
            value, recorded = DIGEST.sub("digest", value), DIGEST.sub("digest", recorded)
    numbers = isinstance(value, float) and isinstance(recorded, float)
    relative = LOOSE.get(place.partition("/")[2].partition("/")[0], RELATIVE)
    same = math.isclose(value, recorded, rel_tol=relative, abs_tol=ABSOLUTE) if numbers else value == recorded
    if (same and not EXACT) or value == recorded or (numbers and math.isnan(value) and math.isnan(recorded)):
        return []
    return [f"{place}: {value!r}, recorded {recorded!r}"]


def text_of(markup: str) -> str:
    """What a reader sees of HTML or of a terminal's lines: no tags, every run of spaces one."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.CHAINS)
def test_a_study_interrupted_and_continued_gives_the_recorded_numbers_and_one_first_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = json.loads(golden.record_file(name).read_text(encoding="utf-8"))
    done = golden.run_chain(name, tmp_path)
    apart = differences(done, recorded)
    assert not apart, "\n".join(apart[:40])
    for folder in golden.CHAINS[name]:
        if not (tmp_path / folder / "report.html").is_file():  # models made for other studies have no report
            continue
        result = recall(tmp_path / folder)
        first = text_of(html.escape(result.verdict))
        assert len(re.sub(r"\s*\[[^]]*\]", "", first).split()) <= 25, f"{folder}: {first}"
        page = (tmp_path / folder / "report.html").read_text(encoding="utf-8")
        terminal = lesion(capsys, "report", tmp_path / folder).out
        begin = first.rstrip(".")  # a page may go on behind the subject
        assert begin in text_of(page), f"{folder}: page"
        assert text_of(html.escape(terminal)).startswith(begin), f"{folder}: terminal: {terminal[:200]}"
        assert begin in text_of(result._repr_html_()), f"{folder}: notebook"


def test_a_folder_that_an_earlier_version_began_is_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "begun"
    shutil.copytree(golden.BEGUN, out)
    done = lesion(capsys, "run", golden.STUDIES / "begun.toml", "--out", out)
    assert done.code == 0, done.err
    assert "evaluated 9 of 12 answers; 3 were stored already" in done.out
