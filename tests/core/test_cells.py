"""Cells of a drift: kept with a checksum, and measured again where they are not as they were written."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from oracle import Listener

import lesion
from commandline import questions
from lesion.core import cells
from lesion.studies.drift.measurement import Measured, Settings, drift
from spooling import spooled
from tiny import model

KEY = "0" * 32


@pytest.fixture(scope="module")
def measured() -> Measured:
    vectors = np.random.default_rng(0).normal(size=(3, 40, 5))
    with spooled(vectors, [[1] * 40]) as states:
        return drift(states, Settings(clusters=4, starts=1), labels={"token": np.arange(40) % 7})


@pytest.fixture
def file(measured, tmp_path) -> Path:
    cells.write(tmp_path, KEY, measured)
    return cells.path(tmp_path, KEY)


def test_the_checksum_is_that_of_key_and_numbers(file):
    stored = json.loads(file.read_text())
    text = json.dumps(stored["measured"], separators=(",", ":"))
    whole = json.dumps([KEY, text])
    assert stored["checksum"] == hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def altered(stored: dict, *path: str | int) -> dict:
    """The cell with one more in one of its numbers."""
    part = stored
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] += 1
    return stored


@pytest.mark.parametrize(
    "path", [("assignments", 2, 5), ("layers", 1, "nmi"), ("layers", 2, "labels", "token"), ("ceiling",)]
)
def test_a_cell_with_another_number_is_not_believed(path, file, tmp_path):
    file.write_text(json.dumps(altered(json.loads(file.read_text()), "measured", *path)))
    assert cells.read(tmp_path, KEY, Measured) is None


def test_a_cell_without_checksum_under_another_key_or_broken_is_not_believed(file, tmp_path):
    whole = file.read_text()
    stored = json.loads(whole)
    del stored["checksum"]
    for text in (json.dumps(stored), whole[:-1], "", json.dumps({"key": KEY})):
        file.write_text(text)
        assert cells.read(tmp_path, KEY, Measured) is None
    cells.path(tmp_path, "1" * 32).write_text(whole)
    assert cells.read(tmp_path, "1" * 32, Measured) is None


def test_cells_that_are_not_believed_are_measured_again_with_a_note(tmp_path):
    task, out = str(questions(tmp_path / "sums.jsonl", 20)), tmp_path / "out"
    llama = model("llama")

    def run() -> tuple[int, list[str]]:
        listener = Listener()
        few = {"items": 6, "runs": 2, "starts": 1, "max_new_tokens": 4}
        return lesion.drift(llama, task, clusters=[4, 3], **few, out=out, watcher=listener).measured, listener.notes

    assert run()[0] == 4
    before = {path: path.read_bytes() for path in (out / cells.CELLS).iterdir()}
    changed, early, *_ = before
    changed.write_text(json.dumps(altered(json.loads(changed.read_text()), "measured", "assignments", 0, 0)))
    early.write_text(
        json.dumps({key: part for key, part in json.loads(early.read_text()).items() if key != "checksum"})
    )
    count, notes = run()
    assert count == 2
    assert [note for note in notes if "2 of 4 kept cells" in note and "measured again" in note]
    assert {path: path.read_bytes() for path in (out / cells.CELLS).iterdir()} == before
    assert run() == (0, [])
