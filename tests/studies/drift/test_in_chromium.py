"""The drift study's page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import chromium
import made_drift as made
import pytest

from lesion.report.publishing import html
from lesion.studies.drift.report import DriftResult
from runs import page_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(
        html(page_of(DriftResult, made.study(variants=("base", "rlvr"), clusters=(50,)))), encoding="utf-8"
    )
    return place.as_uri()


def test_without_a_script_the_pictures_are_there(tab, address):
    with tab.without_scripts():
        tab.open(address)
        heights = "[...document.querySelectorAll('.vega > svg')].map(svg => svg.getBoundingClientRect().height)"
        assert len(tab.ask(heights)) == tab.ask("document.querySelectorAll('.vega').length")
        assert min(tab.ask(heights)) > 40
        assert tab.ask("getComputedStyle(document.querySelector('.vega path[stroke]')).stroke").startswith("rgb(")
