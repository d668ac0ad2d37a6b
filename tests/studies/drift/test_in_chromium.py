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

SHOWN = "[...document.querySelectorAll('[data-group=tokens]')].filter(part => !part.hidden)"
ROWS = f"[...{SHOWN}[0].querySelectorAll('.leaver')].filter(row => !row.hidden)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(
        html(page_of(DriftResult, made.study(variants=("base", "rlvr"), clusters=(50,)))), encoding="utf-8"
    )
    return place.as_uri()


def unfold(tab):
    """Open the page's folds around the explorer of tokens."""
    tab.ask(
        "document.querySelectorAll('details:has(input[data-filters=tokens])').forEach(part => { part.open = true })"
    )


def type_in(tab, text):
    tab.ask(
        f"(f => {{ f.value = {text!r}; f.dispatchEvent(new Event('input')) }})"
        "(document.querySelector('input[data-filters=tokens]'))"
    )


def test_the_tokens_of_one_model_are_shown_at_a_time(tab, address):
    tab.open(address)
    unfold(tab)
    assert tab.ask(f"{SHOWN}.map(part => part.dataset.choice)") == ["0"]
    tab.ask(
        "(s => { s.value = '3'; s.dispatchEvent(new Event('change')) })"
        "(document.querySelector('select[data-shows=tokens]'))"
    )
    assert tab.ask(f"{SHOWN}.map(part => part.dataset.choice)") == ["3"]


def test_a_text_narrows_the_tokens_down_by_token_and_class_and_counts_them(tab, address):
    tab.open(address)
    unfold(tab)
    every = tab.ask(f"{ROWS}.length")
    type_in(tab, "the")
    names = tab.ask(f"{ROWS}.map(row => row.querySelector('.what').textContent)")
    assert sorted(names) == ["␣the", "␣then"]
    assert tab.ask("document.querySelector('[data-counts=tokens]').textContent") == f"2 of {every}"
    type_in(tab, "OPERATOR")
    assert sorted(tab.ask(f"{ROWS}.map(row => row.querySelector('.what').textContent)")) == ["=", "operator", "␣+"]
    type_in(tab, "")
    assert tab.ask(f"{ROWS}.length") == every


def test_a_click_or_a_key_opens_a_token_s_occurrences(tab, address):
    tab.open(address)
    unfold(tab)
    row = f"{ROWS}.find(row => row.querySelector('.what').textContent === '␣per')"
    assert not tab.ask(f"({row}).open")
    tab.ask(f"({row}).querySelector('summary').click()")
    assert tab.ask(f"({row}).querySelector('.contexts').innerText").startswith(
        "Question: Alice has 0 apples and␣per more."
    )


def test_the_arrows_walk_through_the_tokens_that_are_shown(tab, address):
    tab.open(address)
    unfold(tab)
    type_in(tab, "the")
    tab.ask(f"{ROWS}[0].querySelector('summary').focus()")
    tab.press("ArrowDown")
    assert tab.ask(f"document.activeElement === {ROWS}[1].querySelector('summary')")
    tab.press("ArrowDown")  # there is no third
    assert tab.ask(f"document.activeElement === {ROWS}[1].querySelector('summary')")
    tab.press("ArrowUp")
    assert tab.ask(f"document.activeElement === {ROWS}[0].querySelector('summary')")


def test_without_a_script_the_pictures_are_there(tab, address):
    with tab.without_scripts():
        tab.open(address)
        heights = "[...document.querySelectorAll('.vega > svg')].map(svg => svg.getBoundingClientRect().height)"
        assert len(tab.ask(heights)) == tab.ask("document.querySelectorAll('.vega').length")
        assert min(tab.ask(heights)) > 40
        assert tab.ask("getComputedStyle(document.querySelector('.vega path[stroke]')).stroke").startswith("rgb(")
        assert not tab.ask("document.querySelector('.scripted').getBoundingClientRect().height")
