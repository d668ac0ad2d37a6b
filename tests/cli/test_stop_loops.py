"""`--stop-loops` on every command that lets models answer."""

import json
from pathlib import Path

import pytest

from commandline import lesion, questions


@pytest.fixture
def sums(tmp_path) -> Path:
    return questions(tmp_path / "sums.jsonl", 5)


def test_a_sweep_says_that_it_is_approximate_goes_on_and_keeps_apart(capsys, checkpoint, sums, tmp_path):
    out = tmp_path / "out"
    options = ["ablate", checkpoint, "--task", sums, "--items", 4, "--max-new-tokens", 56, "--out", out]
    done = lesion(capsys, *options, "--stop-loops", 2)
    assert done.code == 0, done.err
    assert "Approximate:" in done.out
    assert "looped" in done.out
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["study"]["decoding"]["stop_loops"] == 2
    assert summary["approximate"] in (out / "report.html").read_text("utf-8")
    again = lesion(capsys, *options, "--stop-loops", 2)
    assert "evaluated 0 of" in again.out
    shown = lesion(capsys, "report", out)
    assert "Approximate:" in shown.out
    for other in ([], ["--stop-loops", 3]):
        refused = lesion(capsys, *options, *other)
        assert refused.code == 1
        assert "holds the answers of another study (decoding.stop_loops: 2 there, " in refused.complaint
