"""What the tests of this engine share."""

import pytest

from lesion.engines.transformers import prefixes
from lesion.models.load import Model, load


@pytest.fixture(scope="session")
def stories(shared) -> Model:
    """A real checkpoint."""
    return load(str(shared / "models/stories260K"), dtype="float32")


@pytest.fixture
def worth_it(monkeypatch):
    """A few short prompts are enough to share what they begin with."""
    monkeypatch.setattr(prefixes, "COST", 30)
    monkeypatch.setattr(prefixes, "APART_ON_CPU", 0)
