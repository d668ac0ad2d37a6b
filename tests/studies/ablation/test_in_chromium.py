"""The page as a reader uses it, in a real browser; skipped where no Chromium is installed."""

import time

import chromium
import pytest
from made import study
from page_checks import hostile_study

from lesion.report import theme
from written import write_layers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed")]

LIST = "[...document.querySelectorAll('#grid [role=rowheader]')]"
CELLS = "[...document.querySelectorAll('#grid [role=gridcell]')]"


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


def test_a_table_without_room_for_its_rows_ends_with_a_whole_one_and_says_so(tab, address):
    with tab.shown(height=300):
        tab.open(address)
        tab.ask("document.querySelectorAll('details').forEach(part => { part.open = true })")
        tab.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        boxes = tab.ask(
            """[...document.querySelectorAll('.tall.longer')].map(box => {
                const end = box.getBoundingClientRect().top + box.clientTop + box.clientHeight;
                const rows = [...box.querySelectorAll('tbody tr')].map(row => row.getBoundingClientRect());
                return [rows.filter(row => row.top < end - 1 && row.bottom > end + 1).length,
                        rows.filter(row => row.top > end - 1).length > 0,
                        getComputedStyle(box.nextElementSibling).display];
            })"""
        )
    assert boxes
    assert all(box == [0, True, "block"] for box in boxes)


def test_without_a_script_the_pictures_are_there(tab, address):
    with tab.without_scripts():
        tab.open(address)
        heights = "[...document.querySelectorAll('.vega > svg')].map(svg => svg.getBoundingClientRect().height)"
        assert len(tab.ask(heights)) == tab.ask("document.querySelectorAll('.vega').length")
        assert min(tab.ask(heights)) > 40
        coloured = "document.querySelector('.vega svg [fill^=\\'var(\\']')"
        assert tab.ask(f"getComputedStyle({coloured}).fill").startswith("rgb(")


def test_choosing_a_cut_shows_both_answers_side_by_side(tab, address):
    tab.open(address)
    choose(tab, "edit", "2×0")
    before, after = (tab.ask(f"document.querySelectorAll('.answer')[{i}].innerText") for i in (0, 1))
    assert "✓ right · read as: 0 · ended by itself · 7 tokens" in before
    assert "sums 0 so yes" in before
    assert "✗ wrong · unparsed: no answer could be read · hit the token limit" in after
    assert "sums 0 so no 2" in after
    differs = tab.ask("[...document.querySelectorAll('.differs')].map(e => e.textContent)")
    assert differs == ["yes", "no 2"]


def test_a_trace_is_folded_and_thinking_that_stays_open_is_marked_filtered_and_said(tab, address, tmp_path):
    summary, answers, items = study()
    open_ended = (answers["edit"] == "2×0") & (answers["task"] == "sums")
    answers["text"] = "<think>\nlet me see\n</think>\n\n" + answers["text"]
    answers.loc[open_ended, "text"] = "<think>\nlet me see, let me see"
    tab.open(write_layers(tmp_path, summary, answers, items).as_uri())
    choose(tab, "edit", "2×0")
    before, after = (tab.ask(f"document.querySelectorAll('.answer')[{i}].innerText") for i in (0, 1))
    assert "let me see" not in before
    assert "thinking" in before
    assert "sums 0 so yes" in before
    assert tab.ask("document.querySelector('.answer .trace pre').textContent") == "<think>\nlet me see\n</think>"
    assert "unclosed: it never ended its thinking · hit the token limit" in after
    assert "let me see, let me see" in after
    tab.ask("document.querySelector('#filters input[value=all]').click()")
    assert tab.ask(f"{CELLS}.filter(cell => cell.className.includes('unclosed')).length") == 10
    tab.ask("document.querySelector('#filters input[value=unclosed]').click()")
    assert tab.ask(f"{LIST}.length") == 10
    assert "thinking never closed" in text(tab, "#key")
    assert tab.complaints == []
    tab.open(address)  # where nothing is thought, nothing is said of it
    assert tab.ask("document.querySelector('#filters input[value=unclosed]')") is None
    assert "thinking" not in text(tab, "#key")


@pytest.mark.parametrize(
    ("edit", "kind", "shown"), [("2×0", "broken", 9), ("1×0", "repaired", 1), ("2×0", "same", 1), ("1×0", "same", 9)]
)
def test_filters_show_and_count_what_they_name(tab, address, edit, kind, shown):
    tab.open(address)
    choose(tab, "edit", edit)
    tab.ask(f"document.querySelector('#filters input[value={kind}]').click()")
    assert tab.ask(f"{LIST}.length") == shown
    assert f"({shown})" in tab.ask(f"document.querySelector('#filters input[value={kind}]').parentNode.innerText")


def place(tab):
    """Row and column of the grid's cell that has the focus."""
    return tab.ask("[document.activeElement.dataset.row, document.activeElement.dataset.column].map(Number)")


def test_the_grid_has_a_row_per_item_a_column_per_edit_and_a_cell_opens_its_answers(tab, address):
    tab.open(address)
    choose(tab, "edit", "1×0")
    heads = tab.ask("[...document.querySelectorAll('#grid [role=columnheader]')].map(e => e.textContent)")
    assert len(heads) == 1 + 1 + 4  # the item, the unedited model, and four blocks
    assert heads[1] == "unedited"
    kinds = tab.ask(f"{CELLS}.filter(c => c.dataset.column === '4').map(c => c.className)")
    assert kinds == ["unparsed"] * 10  # without block 2 no sum can be read
    tab.ask(f"{CELLS}.find(c => c.dataset.row === '3' && c.dataset.column === '4').click()")
    assert tab.ask("document.getElementById('choose-edit').value") == "2×0"
    assert text(tab, "#item-view h3").startswith("sums-3")


def test_every_state_of_a_cell_has_a_sign_and_a_name_besides_its_colour(tab, address):
    tab.open(address)
    tab.ask("document.querySelector('#filters input[value=all]').click()")
    told = tab.ask(f"{CELLS}.map(c => [c.className, c.textContent, c.getAttribute('aria-label')])")
    signs = {kind: sign for kind, sign, _ in told}
    assert len(set(signs.values())) == len(signs) > 2
    assert all(": " in label for _, _, label in told)


def test_the_keyboard_walks_through_the_grid(tab, address):
    tab.open(address)
    tab.ask(f"{LIST}[0].focus()")
    tab.ask(f"{CELLS}.find(c => c.dataset.row === '0' && c.dataset.column === '2').click()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.press(key)
    assert place(tab) == [2, 3]
    tab.press("Enter")
    assert text(tab, "#item-view h3").startswith("sums-2")
    assert tab.ask("document.getElementById('choose-edit').value") == "1×0"
    assert place(tab) == [2, 3]


def test_several_edits_stand_side_by_side_and_the_address_keeps_the_view(tab, address):
    tab.open(address)
    choose(tab, "edit", "1×0")
    tab.ask("document.querySelector('#grid .top[data-column=\"4\"]').click()")
    tab.ask("(f => { f.value = 'FACTS 7'; f.dispatchEvent(new Event('input')) })(document.getElementById('find'))")
    choose(tab, "task", 1)
    kept = tab.ask("location.href")
    tab.open(kept)
    assert tab.ask("document.querySelectorAll('.answer').length") == 3
    assert tab.ask(f"{LIST}.length") == 1
    assert text(tab, "#item-view h3").startswith("facts-7")


def test_the_search_is_over_questions_and_answers(tab, address):
    tab.open(address)
    choose(tab, "edit", "2×0")
    for wanted, shown in (("question 3", 1), ("no 2", 10), ("nowhere to be found", 0)):
        tab.ask(
            f"(f => {{ f.value = '{wanted}'; f.dispatchEvent(new Event('input')) }})(document.getElementById('find'))"
        )
        assert tab.ask(f"{LIST}.length") == shown, wanted
        for kind in ("all", "broken"):  # a filter counts what it would show of what was found
            tab.ask(f"document.querySelector('#filters input[value={kind}]').click()")
            count = f"({tab.ask(f'{LIST}.length')})"
            label = f"document.querySelector('#filters input[value={kind}]').parentNode.innerText"
            assert count in tab.ask(label), (wanted, kind)
        tab.ask("document.querySelector('#filters input[value=all]').click()")


def test_an_address_leads_to_an_item(tab, address):
    tab.open(f"{address}#answers?model=child&task=facts&edit=1%C3%970&show=repaired&item=facts-9")
    assert text(tab, "#item-view h3") == "facts-9"
    assert tab.ask("document.getElementById('choose-model').selectedOptions[0].text") == "child"
    assert tab.ask(f"{LIST}.length") == 1


def test_an_address_with_unknown_names_shows_the_page_nevertheless(tab, address):
    tab.open(f"{address}#answers?model=nobody&task=nothing&edit=9%C3%970&show=some&item=none")
    assert tab.ask(f"{LIST}.length") == 9
    assert tab.complaints == []


def test_pointing_at_a_block_tells_its_numbers_and_a_click_opens_its_answers(tab, address):
    tab.open(address)
    chart = "document.querySelector('[data-name=drop] .vega')"
    tab.ask(f"{chart}.scrollIntoView({{behavior: 'instant', block: 'center'}})")
    for _ in range(100):
        if tab.ask(f"!!{chart}.querySelector('canvas, .vega-bind, svg.marks')"):
            break
        time.sleep(0.05)
    # The third of four layers, in the upper of two rows.
    plot = f"(p => p.getBoundingClientRect())({chart}.querySelector('.mark-group.role-frame.root path.background'))"
    x, y = tab.ask(f"(r => [r.x + r.width * 0.625, r.y + r.height * 0.25])({plot})")
    tab.move(x, y)
    for _ in range(40):
        if not tab.ask("document.getElementById('tip').hidden"):
            break
        time.sleep(0.05)
    tip = tab.ask("document.getElementById('tip').textContent").replace("\N{NO-BREAK SPACE}", " ")
    assert "block 2\n" in tip
    assert "Drop: 90.0 points" in tip
    tab.click(x, y)
    assert tab.ask("document.getElementById('choose-edit').value") == "2×0"


def test_the_table_sorts_by_number_and_shows_critical_rows_only(tab, address):
    tab.open(address)
    table = "document.querySelector('[data-name=layers]')"
    tab.ask(f"{table}.closest('details').open = true")
    tab.ask(f"[...{table}.querySelectorAll('th button')].find(b => b.textContent.startsWith('Accuracy')).click()")
    rows = f"[...{table}.tBodies[0].rows]"
    heads = tab.ask(f"[...{table}.querySelectorAll('th')].map(h => h.textContent.trim())")
    column = next(place for place, head in enumerate(heads) if head.startswith("Accuracy"))
    values = tab.ask(f"{rows}.map(r => +r.cells[{column}].dataset.v)")
    assert values == sorted(values)
    assert values[0] < values[-1]
    tab.ask(f"{table}.closest('details').querySelector('.only-marked').click()")
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


def test_dark_and_light_follow_the_reader(tab):
    def ground(dark):
        with tab.shown(dark=dark):
            tab.open(f"data:text/html,<style>{theme.STYLE_SHEET.read_text('utf-8').replace('#', '%23')}</style>")
            colour = tab.ask("getComputedStyle(document.body).backgroundColor")
        return sum(int(n) for n in colour[4:-1].split(","))

    assert ground(dark=True) < 100 < 600 < ground(dark=False)
