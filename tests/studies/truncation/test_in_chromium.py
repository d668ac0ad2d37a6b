"""The truncation search's page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import time

import chromium
import made_truncation as made
import pytest

from lesion.studies.truncation import report as truncation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(truncation.page(made.summary()), encoding="utf-8")
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


def test_charts_are_drawn_with_their_numbers_and_those_of_other_measures_when_they_are_opened(tab, address):
    tab.open(address)
    tab.ask("document.querySelector('.vega').scrollIntoView()")
    wait(tab, "document.querySelector('.vega svg.marks') !== null")
    assert "+0.48" in tab.ask("document.querySelector('#map').textContent")
    closed = "document.querySelector('#map details')"
    assert tab.ask(f"{closed}.querySelector('svg.marks') === null")
    tab.ask(f"{closed}.open = true; {closed}.scrollIntoView()")
    wait(tab, f"{closed}.querySelector('svg.marks') !== null")


def test_every_table_sorts_by_number(tab, address):
    tab.open(address)
    chromium.assert_tables_sort_by_number(tab)


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_the_page_itself_never_scrolls_sideways(address, dark):
    with chromium.Chromium(width=390, height=800, dark=dark) as tab:
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390
