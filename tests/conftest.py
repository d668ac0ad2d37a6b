"""Fixtures for all tests: where the shared files lie, tiny models, and shape checks switched on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from jaxtyping import install_import_hook

_hook = install_import_hook("lesion", "beartype.beartype")
_hook.__enter__()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real benchmark files beside the project (or at LESION_SHARED); skips where it is absent."""
    place = Path(os.environ.get("LESION_SHARED", Path(__file__).parents[2] / "shared"))
    if not (place / "data").is_dir():
        pytest.skip(f"no shared data at {place}; set LESION_SHARED to run this test")
    return place
