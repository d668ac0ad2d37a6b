"""The isolation's page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import time

import chromium
import made_isolation as made
import pytest

from lesion.report.publishing import html
from lesion.studies.isolation.report import IsolationResult

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    summary = made.summary(made.study())
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(
        html(IsolationResult(place.parent, summary).with_answers(*made.answers(made.study()))), encoding="utf-8"
    )
    return place.as_uri()


def test_the_page_runs_under_its_policy_without_complaint_or_request(tab, address):
    tab.open(address)
    assert tab.complaints == []
    assert tab.requests == [address]


def test_the_chooser_shows_one_distribution_at_a_time(tab, address):
    tab.open(address)
    shown = "[...document.querySelectorAll('[data-choice]')].filter(f => !f.hidden).map(f => f.dataset.choice)"
    assert tab.ask(shown) == ["0"]
    tab.ask(
        "(s => { s.value = '5'; s.dispatchEvent(new Event('change')) })"
        "(document.querySelector('select[data-shows=Selection]'))"
    )
    assert tab.ask(shown) == ["5"]


def test_every_table_sorts_by_number(tab, address):
    tab.open(address)
    chromium.assert_tables_sort_by_number(tab)


def test_pointing_at_an_edit_tells_its_numbers_and_a_click_opens_its_answers(tab, address):
    tab.open(address)
    tab.ask("document.getElementById('controls').scrollIntoView({behavior: 'instant'})")
    # Vega draws the marks of a layer as paths with what they tell as their data.
    marks = (
        "[...document.querySelectorAll('#controls .vega svg path')].filter(e => e.__data__?.datum?.edit"
        " && e.__data__.mark.marktype === 'symbol')"
    )
    for _ in range(200):
        if tab.ask(f"{marks}.length"):
            break
        time.sleep(0.05)
    key = tab.ask(f"{marks}.at(-1).__data__.datum.edit")
    x, y = tab.ask(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({marks}.at(-1).getBoundingClientRect())")
    tab.move(x, y)
    for _ in range(40):
        if not tab.ask("document.getElementById('tip').hidden"):
            break
        time.sleep(0.05)
    assert "share" in tab.ask("document.getElementById('tip').textContent")
    tab.click(x, y)
    assert tab.ask("document.getElementById('choose-edit').value") == key
    assert tab.ask("document.getElementById('choose-task').selectedOptions[0].text") == made.SKILL.removeprefix(
        "primer:"
    )


def test_on_a_phone_the_page_itself_never_scrolls_sideways(tab, address):
    with tab.shown(width=390, height=800):
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390
