"""The page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import time

import chromium
import pytest
from made import study
from page_checks import hostile_study

from lesion.report import theme
from written import write_layers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed"),
]

LIST = "[...document.querySelectorAll('#item-list button')]"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_layers(tmp_path_factory.mktemp("report"), *study()).as_uri()


def choose(tab, name, value):
    tab.ask(
        f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change', {{bubbles: true}})) }})"
        f"(document.getElementById('choose-{name}'))"
    )


def text(tab, selector):
    return tab.ask(f"document.querySelector({selector!r}).innerText")


def test_the_page_runs_under_its_policy_without_complaint_or_request(tab, address):
    tab.open(address)
    assert tab.ask(f"{LIST}.length") == 10
    assert tab.complaints == []
    assert tab.requests == [address]


def test_choosing_a_cut_shows_both_answers_side_by_side(tab, address):
    tab.open(address)
    choose(tab, "edit", "2×0")
    before, after = (tab.ask(f"document.querySelectorAll('.answer')[{i}].innerText") for i in (0, 1))
    assert "✓ right · read as: 0 · ended by itself · 7 tokens" in before
    assert "sums 0 so yes" in before
    assert "✗ wrong · no answer could be read · hit the token limit" in after
    assert "sums 0 so no 2" in after
    differs = tab.ask("[...document.querySelectorAll('.differs')].map(e => e.textContent)")
    assert differs == ["yes", "no 2"]


@pytest.mark.parametrize(
    ("edit", "kind", "shown"), [("2×0", "broken", 9), ("1×0", "repaired", 1), ("2×0", "same", 1), ("1×0", "same", 9)]
)
def test_filters_show_and_count_what_they_name(tab, address, edit, kind, shown):
    tab.open(address)
    choose(tab, "edit", edit)
    tab.ask(f"document.querySelector('#filters input[value={kind}]').click()")
    assert tab.ask(f"{LIST}.length") == shown
    assert f"({shown})" in tab.ask(f"document.querySelector('#filters input[value={kind}]').parentNode.innerText")


def test_the_keyboard_walks_through_the_items(tab, address):
    tab.open(address)
    tab.ask(f"{LIST}[0].focus()")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    assert text(tab, "#item-view h3").startswith("sums-2")
    assert tab.ask(f"document.activeElement === {LIST}[2]")


def test_an_address_leads_to_an_item(tab, address):
    tab.open(f"{address}#answers?model=child&task=facts&edit=1%C3%970&show=repaired&item=facts-9")
    assert text(tab, "#item-view h3") == "facts-9"
    assert tab.ask("document.getElementById('choose-model').selectedOptions[0].text") == "child"
    assert tab.ask(f"{LIST}.length") == 1


def test_an_address_with_unknown_names_shows_the_page_nevertheless(tab, address):
    tab.open(f"{address}#answers?model=nobody&task=nothing&edit=9%C3%970&show=some&item=none")
    assert tab.ask(f"{LIST}.length") == 10
    assert tab.complaints == []


def test_pointing_at_a_block_tells_its_numbers_and_a_click_opens_its_answers(tab, address):
    tab.open(address)
    tab.ask("document.getElementById('accuracy').scrollIntoView({behavior: 'instant'})")
    chart = "document.querySelector('#accuracy .vega')"
    for _ in range(100):
        if tab.ask(f"!!{chart}.querySelector('canvas, .vega-bind, svg.marks')"):
            break
        time.sleep(0.05)
    # The third of four layers, in the middle of the plot.
    plot = f"(p => p.getBoundingClientRect())({chart}.querySelector('.mark-group.role-frame.root path.background'))"
    x, y = tab.ask(f"(r => [r.x + r.width * 0.625, r.y + r.height / 2])({plot})")
    tab.move(x, y)
    for _ in range(40):
        if not tab.ask("document.getElementById('tip').hidden"):
            break
        time.sleep(0.05)
    assert "block\N{NO-BREAK SPACE}2 switched off" in tab.ask("document.getElementById('tip').textContent")
    tab.click(x, y)
    assert tab.ask("document.getElementById('choose-edit').value") == "2×0"


def test_the_table_sorts_by_number_and_shows_critical_rows_only(tab, address):
    tab.open(address)
    table = "document.querySelector('#cells table')"
    tab.ask(f"[...{table}.querySelectorAll('th button')].find(b => b.textContent === 'Accuracy').click()")
    rows = f"[...{table}.tBodies[0].rows]"
    values = tab.ask(f"{rows}.map(r => +r.cells[3].dataset.v)")
    assert values == sorted(values)
    assert values[0] < values[-1]
    tab.ask("document.querySelector('#cells .only-marked').click()")
    assert tab.ask(f"{rows}.filter(r => !r.hidden).length") == 2


def test_hostile_texts_stay_texts(tab, tmp_path):
    address = write_layers(tmp_path, *hostile_study()).as_uri()
    tab.open(address)
    for edit in ("0×0", "2×0"):
        choose(tab, "edit", edit)
        for index in range(10):
            tab.ask(f"{LIST}[{index}].click()")
            assert tab.ask("[...document.querySelectorAll('.said')].every(e => e.textContent.length > 5)")
    assert tab.ask("document.querySelectorAll('img, iframe').length") == 0
    assert tab.ask("document.scripts.length") == 5
    assert tab.complaints == []


def test_on_a_phone_the_page_itself_never_scrolls_sideways(tab, address):
    with tab.shown(width=390, height=800):
        tab.open(address)
        assert tab.ask("document.documentElement.scrollWidth") == 390


def test_dark_and_light_follow_the_reader(tab):
    def ground(dark):
        with tab.shown(dark=dark):
            tab.open(f"data:text/html,<style>{theme.STYLE_SHEET.read_text('utf-8').replace('#', '%23')}</style>")
            colour = tab.ask("getComputedStyle(document.body).backgroundColor")
        return sum(int(n) for n in colour[4:-1].split(","))

    assert ground(dark=True) < 100 < 600 < ground(dark=False)
