"""The tutorials run anew, and say what their stored outputs say."""

import difflib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lesion
from commandline import coarse_figures

sys.path.append(str(Path(__file__).parents[2] / "docs"))

import execute

NOTEBOOKS = sorted(execute.TUTORIALS.glob("*.ipynb"))
# What a reader takes home, on any processor.
HEADLINES = {
    "first-study": ["restored afterwards: True", "critical blocks: [0, 2, 5"],
    "isolate-and-export": ["18,191 weights differ, 18,191 of them are zero now", "right: 161"],
    "lineage": ["bundled:llama-base [0, 2", "bundled:llama-rlvr [0, 2"],
    "own-data": ["there is no field 'anwser'; did you mean 'answer'?", "questions.jsonl"],
    "truncation": ["gain on the other items"],
}

# Items of studies on whose number no headline rests.
FEWER = {"isolate-and-export": {"evaluate": 6}, "truncation": {"truncate": 12, "evaluate": 6}}


def shown(notebook: dict[str, Any]) -> list[tuple[list[str], str]]:
    """Of every code cell, the kinds of its outputs, and their text with all numbers alike."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            kinds = [kind for output in cell["outputs"] for kind in output.get("data", {"stream": ""})]
            cells.append((kinds, re.sub(r"[\d.]+", "0", text_of(cell))))
    return cells


def with_items(function: Callable[..., Any], items: int) -> Callable[..., Any]:
    """The function with so many items, whatever it is called with."""
    return lambda *arguments, **options: function(*arguments, **(options | {"items": items}))


def text_of(cell: dict[str, Any]) -> str:
    outputs = cell["outputs"]
    return "".join("".join(output.get("text", output.get("data", {}).get("text/plain", []))) for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_says_what_it_said(path: Path, monkeypatch, capfd: pytest.CaptureFixture[str]):
    for name, items in FEWER.get(path.stem, {}).items():
        monkeypatch.setattr(lesion, name, with_items(getattr(lesion, name), items), raising=False)
    stored = execute.read(path)
    with coarse_figures():
        anew = execute.executed(stored)
    said = "".join(text_of(cell) for cell in anew["cells"] if cell["cell_type"] == "code")
    for headline in HEADLINES[path.stem]:
        assert headline in said
    for (kinds, before), (kinds_anew, after) in zip(shown(stored), shown(anew), strict=True):
        assert kinds == kinds_anew
        assert difflib.SequenceMatcher(None, before, after, autojunk=False).ratio() > 0.6, after


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_names_nothing_of_the_machine(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/tmp/|/home/|/work/|/root/|\d s\b|it/s", text)
    assert len(text) < 100_000
    assert all(cell.get("outputs") or "= " in str(cell["source"]) or ";" in str(cell["source"]) for cell in code(path))


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in execute.read(path)["cells"] if cell["cell_type"] == "code"]
