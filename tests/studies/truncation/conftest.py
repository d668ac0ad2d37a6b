"""Fixtures for the tests of searches: a tiny model, a file of questions, and a search by a table of answers."""

import itertools
from pathlib import Path

import pytest
from searching import Known, questions, study

from runs import run_truncation


@pytest.fixture
def file(tmp_path) -> Path:
    return questions(tmp_path / "q.jsonl")


@pytest.fixture
def search(llama, file, tmp_path):
    """Search by a table; the folder is new every time."""
    numbers = itertools.count()

    def run(table, engine=None, task=file, **values):
        folder = tmp_path / f"out{next(numbers)}"
        return run_truncation(study(task, **values), folder, model=llama, make_engine=engine or Known(table)).summary

    return run
