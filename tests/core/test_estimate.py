"""Estimates: a few items with all their edits go first, and what they took, times what is left, is said once."""

import re
import time
from pathlib import Path

import pytest

from commandline import lesion as command
from lesion.core.estimate import DryRun, Estimate, Estimating
from lesion.plain import duration
from lesion.progress import Silent

MODEL = "bundled:llama-instruct"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (89.0, "89 s"), (90.0, "2 min"), (3599.0, "1 h 0 min"), (12e3, "3 h 20 min")]
)
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_range_is_the_factor_to_either_side() -> None:
    text = Estimate("answers", 1200, 34_000, 600.0, 1.5, 2 << 20).text
    assert text.startswith("1,200 answers to come, 34,000 tokens: about 10 min (7 min to 15 min); memory so far")
    assert text.endswith("disk 2.0 MiB")


def test_a_dry_run_answers_a_few_items_says_the_cost_and_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("ablate", MODEL, "--task", "primer:atlas", "--items", "40", "--out", tmp_path / "out")
    done = command(capsys, *words, "--dry-run")
    assert done.code == 0, done.err
    (count,) = map(int, re.findall(r"note: (\d+) answers to come", done.err))
    done = command(capsys, *words)
    assert f"evaluated {count} of 360 answers; {360 - count} were stored already" in done.out


class Told(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_loop_says_what_it_costs_once_a_few_of_it_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    told = Told()
    watcher = Estimating(told)
    watcher.begin("m", 100, 0, "texts")
    for _ in range(100):
        watcher.answered(1)
    assert len(told.notes) == 1
    assert told.notes[0].startswith("97 texts to come: about 5 min (4 min to 8 min)")  # 10 s for three
    with pytest.raises(DryRun):
        dry(Estimating(told, dry=True))


def dry(watcher: Estimating) -> None:
    watcher.begin("m", 100, 0, "texts")
    for _ in range(3):
        watcher.answered(1)
