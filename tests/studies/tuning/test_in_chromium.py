"""The page of a tuning study as a reader uses it, in a real browser; skipped where no Chromium is installed."""

from __future__ import annotations

import time

import chromium
import pytest
from made_tuning import made

from lesion.report.publishing import html
from lesion.studies.tuning.report import TuningResult
from runs import page_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(html(page_of(TuningResult, made())), encoding="utf-8")
    return place.as_uri()


def test_the_page_runs_under_its_policy_without_complaint_or_request(tab, address):
    chromium.assert_quiet(tab, address)


def test_pointing_at_an_arm_shows_its_change_with_interval_and_seeds(tab, address):
    tab.open(address)
    tab.ask("document.querySelector('#verdict .vega').scrollIntoView({ block: 'center' })")
    row = "document.querySelector('#verdict .vega g.mark-rect path')"
    deadline = time.monotonic() + 30
    while not tab.ask(f"!!{row}"):
        assert time.monotonic() < deadline, "the chart was not drawn within 30 seconds"
        time.sleep(0.05)
    x, y = tab.ask(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({row}.getBoundingClientRect())")
    tab.move(x, y)
    change = made().arms[0].gain
    lines = tab.ask("document.getElementById('tip').textContent").splitlines()
    assert lines[0] == "critical blocks"
    assert lines[1].startswith(f"+{100 * change.value:.1f} points [{100 * change.low:.1f},")
    assert lines[2].startswith("seeds: +")


def test_on_a_phone_the_page_itself_never_scrolls_sideways(tab, address):
    with tab.shown(width=390, height=800):
        tab.open(address)
        tab.ask("document.querySelectorAll('details').forEach(part => { part.open = true })")
        assert tab.ask("document.documentElement.scrollWidth") == 390
