"""The page of a comparison as a reader uses it, in a real browser; skipped where no Chromium is installed."""

from urllib.parse import quote

import chromium
import pytest
from made_answers import folder

import lesion

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed")]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("compared")
    yes = {f"i{n}": n < 8 for n in range(10)}
    folder(place / "a", {"baseline": yes, "3×0": yes}, model="m")
    folder(place / "b", {"baseline": yes, "3×0": dict.fromkeys(yes, False)}, model="n")
    return lesion.compare(place / "a", place / "b", out=place / "out").report().as_uri()


def test_answers_of_both_sides_stand_beside_each_other_and_the_filters_say_what_changed(tab, address):
    chromium.assert_quiet(tab, address)
    tab.open(f"{address}#answers?model={quote('3×0')}&task=sums&edit=b&show=broken")
    assert tab.ask("[...document.querySelectorAll('#grid [role=rowheader]')].length") == 8
    assert tab.ask("[...document.querySelectorAll('.answer h4')].map(e => e.textContent)") == ["a", "b"]
    names = tab.ask("[...document.querySelectorAll('#filters label')].map(e => e.textContent)")
    assert names == ["all (10)", "gained (0)", "lost (8)", "wrong in both (2)", "right in both (0)"]
    chosen = tab.ask("[...document.querySelectorAll('#choices label')].map(e => e.firstChild.textContent.trim())")
    assert chosen == ["Edit", "Task", "Compared with", "Search"]
    assert "m 3×0 i0" in tab.ask("document.querySelector('.answer .said').textContent")


def test_the_answers_open_on_the_side_that_differs_most(tab, tmp_path):
    names = {"a": 8, "b": 7, "c": 0, "d": 9}
    places = [
        folder(tmp_path / name, {"baseline": {f"i{n}": n < right for n in range(10)}}, model=name)
        for name, right in names.items()
    ]
    chromium.assert_quiet(tab, lesion.compare(*places, out=tmp_path / "out").report().as_uri())
    assert tab.ask("document.querySelector('#choose-edit').value") == "c"


@pytest.mark.parametrize("width", [1280, 400])
def test_the_chart_is_in_the_first_screen(tab, address, width):
    with tab.shown(width, 900):
        tab.open(address)
        assert tab.ask("document.querySelector('.vega').getBoundingClientRect().top") < 800
        assert tab.ask("document.documentElement.scrollWidth") <= width
