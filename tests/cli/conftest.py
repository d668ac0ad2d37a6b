"""What the tests of most commands start from."""

from pathlib import Path

import pytest

from commandline import save


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A tiny Llama in a folder, which nobody changes."""
    return save(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"
