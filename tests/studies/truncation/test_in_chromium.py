"""The truncation search's page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

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
    place.write_text(truncation.page(made.study()), encoding="utf-8")
    return place.as_uri()


def test_the_page_runs_under_its_policy_without_complaint_or_request(tab, address):
    tab.open(address)
    assert tab.complaints == []
    assert tab.requests == [address]


def test_the_switch_shows_the_maps_of_one_measure_at_a_time(tab, address):
    tab.open(address)
    shown = "[...document.querySelectorAll('[data-group=map]')].filter(f => !f.hidden).map(f => f.dataset.choice)"
    assert tab.ask(shown) == ["0"]
    tab.ask(
        "(s => { s.value = '4'; s.dispatchEvent(new Event('change')) })"
        "(document.querySelector('select[data-shows=map]'))"
    )
    assert tab.ask(shown) == ["4"]
    assert "log-probability" in tab.ask("document.querySelector('[data-group=map]:not([hidden]) figcaption').innerText")


def test_every_table_sorts_by_number(tab, address):
    tab.open(address)
    chromium.assert_tables_sort_by_number(tab)


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_the_page_itself_never_scrolls_sideways(address, dark):
    with chromium.Chromium(width=390, height=800, dark=dark) as tab:
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390
