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


def test_charts_are_drawn_with_their_numbers_and_those_of_other_measures_when_they_are_opened(tab, address):
    tab.open(address)
    tab.ask("document.querySelector('.vega').scrollIntoView()")
    wait(tab, "document.querySelector('.vega svg.marks') !== null")
    assert "+0.48" in tab.ask("document.querySelector('#map').textContent")
    closed = "document.querySelector('#map details')"
    assert tab.ask(f"{closed}.querySelector('svg.marks') === null")
    tab.ask(f"{closed}.open = true; {closed}.scrollIntoView()")
    wait(tab, f"{closed}.querySelector('svg.marks') !== null")


def test_pointing_at_a_cell_shows_its_numbers(tab, address):
    tab.open(address)
    chart = "document.querySelectorAll('#map .vega')[2]"  # mlp.up, top of the spectrum
    tab.ask(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    wait(tab, f"{chart}.querySelector('svg.marks') !== null")
    box = f"{chart}.querySelector('svg.marks path[stroke-width=\"2\"]')"  # around the chosen edit
    x, y = tab.ask(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())")
    tab.move(x - 3, y)
    tab.move(x, y)
    wait(tab, "!document.getElementById('tip').hidden")
    lines = tab.ask("document.getElementById('tip').textContent").replace("\N{NO-BREAK SPACE}", " ").split("\n")
    assert lines[0] == "5.mlp.up, top 5 %: rank 6 of 128"
    for task, line in zip(made.BASE, lines[2:], strict=False):
        outcome = next(each for each in made.cell(*made.BEST)["outcomes"] if each["task"] == task)
        gain = -100 * outcome["drop"]["value"]
        assert line.startswith(f"{task}: {100 * outcome['accuracy']['value']:.1f} % [")
        assert f", +{gain:.1f} points [" in line
    assert lines[-1] == "chosen"


def test_every_table_sorts_by_number(tab, address):
    tab.open(address)
    chromium.assert_tables_sort_by_number(tab)


def test_on_a_phone_the_page_itself_never_scrolls_sideways(tab, address):
    with tab.shown(width=390, height=800):
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390
