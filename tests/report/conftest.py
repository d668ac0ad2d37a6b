"""Pages are written with coarse figures; the tests of figures draw them as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commandline import coarse_figures


@pytest.fixture(scope="module", autouse=True)
def coarse(request) -> Iterator[None]:
    if "figures" in request.module.__name__:
        yield
        return
    with coarse_figures():
        yield
