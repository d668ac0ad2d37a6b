"""The truncation search's page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import time

import chromium
import made_truncation as made
import pytest

from lesion.report.publishing import html
from lesion.studies.truncation.report import TruncationResult
from runs import page_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(html(page_of(TruncationResult, made.summary())), encoding="utf-8")
    return place.as_uri()


def wait(tab, condition: str) -> None:
    """Until something holds on the page; charts are drawn as one comes near them."""
    for _ in range(100):
        if tab.ask(condition):
            return
        time.sleep(0.1)
    raise AssertionError(condition)


def test_the_page_runs_under_its_policy_without_complaint_or_request(tab, address):
    tab.open(address)
    assert tab.complaints == []
    assert tab.requests == [address]


def test_pointing_at_a_cell_shows_its_numbers(tab, address):
    tab.open(address)
    chart = "[...document.querySelectorAll('#search .vega')].find(e => e.querySelector('path[stroke-width=\"2\"]'))"
    tab.ask("document.querySelector('#search').scrollIntoView({behavior: 'instant'})")
    wait(tab, f"{chart} !== undefined && {chart}.querySelector('svg.marks') !== null")
    tab.ask(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = f"{chart}.querySelector('svg.marks path[stroke-width=\"2\"]')"  # around the chosen edit
    x, y = tab.ask(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())")
    tab.move(x - 3, y)
    tab.move(x, y)
    wait(tab, "!document.getElementById('tip').hidden")
    text = tab.ask("document.getElementById('tip').textContent").replace("\N{NO-BREAK SPACE}", " ")
    gain = -100 * next(each for each in made.cell(*made.BEST)["outcomes"] if each["task"] in text)["drop"]["value"]
    assert "5.mlp.up" in text
    assert f"Gain: +{gain:.1f} points [" in text


def test_every_table_sorts_by_number(tab, address):
    tab.open(address)
    chromium.assert_tables_sort_by_number(tab)


def test_on_a_phone_the_page_itself_never_scrolls_sideways(tab, address):
    with tab.shown(width=390, height=800):
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390
