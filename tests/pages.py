"""Fixtures of tests that write pages: coarse figures, except in the tests of drawings, and a tab of a browser."""

from collections.abc import Iterator

import chromium
import pytest

from commandline import coarse_figures


@pytest.fixture(scope="module", autouse=True)
def coarse(request) -> Iterator[None]:
    if request.module.__name__.endswith(("test_drawing", "test_publishing")):
        yield
        return
    with coarse_figures():
        yield


@pytest.fixture(scope="session")
def tab() -> Iterator[chromium.Chromium]:
    """A tab of a browser, for one page after another."""
    with chromium.Chromium() as found:
        yield found
