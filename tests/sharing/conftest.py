"""A finished study of questions of one's own, and a hub."""

import json
import os
import shutil
from pathlib import Path

import pytest

from hubs import Hub
from lesion.cli.main import code
from lesion.sharing import hub as sharing_hub

QUESTIONS = [
    ("What colour is the sky above Lisbon?", "blue"),
    ("Is the moon larger than the whole earth?", "certainly not"),
    ("How many legs has a garden spider got?", "8"),
    ("Which is the capital city of Portugal?", "Lisbon"),
]


def ask(folder: Path) -> Path:
    """A file of questions."""
    rows = [json.dumps({"id": f"q{i}", "prompt": q, "answer": a}) for i, (q, a) in enumerate(QUESTIONS)]
    (folder / "private.jsonl").write_text("\n".join(rows) + "\n")
    return folder / "private.jsonl"


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Studies that nobody changes: `named` has its task by an absolute path, `relative` by a name."""
    place = tmp_path_factory.mktemp("studies")
    ask(place)
    before = Path.cwd()
    os.chdir(place)
    try:
        for name, task in (("named", f"{place}/private.jsonl"), ("relative", "private.jsonl")):
            asked = [
                "--task",
                task,
                "--task",
                "primer:arithmetic",
                "--items",
                "4",
                "--layers",
                "1",
                "--batch-size",
                "8",
            ]
            assert code(["ablate", "bundled:llama-base", *asked, "--out", name]) == 0
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def folder(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the study of relative names, in a folder that is the current one."""
    shutil.copytree(finished / "relative", tmp_path / "relative")
    ask(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Path("relative")


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Hub:
    made = Hub()
    made.cache = tmp_path / "cache"
    monkeypatch.setattr(sharing_hub, "connection", lambda: made)
    return made
