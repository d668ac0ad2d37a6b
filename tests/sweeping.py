"""What the tests of killed sweeps share: a study that is small, and long enough to be caught at work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commandline import questions, save, undrawn
from lesion.cli.main import code
from lesion.core.store import Store
from lesion.errors import LesionError

ITEMS = 36
CELLS = 4 * ITEMS
SOME = CELLS // 10


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and a file of questions."""
    folder = tmp_path_factory.mktemp("study")
    save(folder / "llama")
    questions(folder / "sums.jsonl", ITEMS)
    return folder


@pytest.fixture(scope="module")
def alone(place) -> Path:
    """The study as one process answers it that is left in peace."""
    out = place / "alone"
    with undrawn():
        assert code(command(place, out)) == 0
    return out


def command(place: Path, out: Path, *more: str, batch: int = CELLS) -> list[str]:
    return [
        *("ablate", str(place / "llama"), "--task", str(place / "sums.jsonl"), "--items", "all", "--anyway"),
        *("--max-new-tokens", "60", "--batch-size", str(batch), "--out", str(out)),
        *more,
    ]


def started(place: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """A process of its own at work on the study, the first of a group of processes."""
    # Few rows at a time and long answers: the sweep takes long enough to be caught at work.
    return subprocess.Popen(
        [sys.executable, "-m", "lesion", *command(place, out, *more, batch=2)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        # Whoever runs the tests in the background has Ctrl-C ignored, and every child of theirs inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def stored(out: Path) -> int:
    """How many answers a folder has."""
    try:
        with Store.read(out) as store:
            return len(store)
    except LesionError:  # not made yet
        return 0


def assert_same_table(one: Path, other: Path) -> None:
    """The same summary, byte for byte, and the same answers, each once."""
    for name in ("layers.csv", "summary.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    mine, yours = _answers(one), _answers(other)
    assert len(mine) == len({(row["edit"], row["item"]) for row in mine}) == CELLS
    assert mine == yours


def _answers(folder: Path) -> list[dict]:
    with Store.read(folder) as store:
        return sorted(store.answers().to_dict("records"), key=lambda row: (row["edit"], row["item"]))


def assert_interrupted(complaint: str, out: Path) -> None:
    """What is said at Ctrl-C: that the answers are kept, and no more."""
    assert "Traceback" not in complaint
    assert f"Every answer so far is kept in {out}" in complaint
    assert f"`lesion report {out}`" in complaint
    assert complaint.endswith("lesion: interrupted.\n")
    assert SOME <= stored(out) < CELLS
