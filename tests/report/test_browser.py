"""What the item browser carries, and how it is put into a page."""

import base64
import json
import re
import zlib

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ITEMS, LAYERS, MODELS, TASKS, records, right, said

from lesion.report import browser

OFFERED = [
    browser.Offered(model, task, edit, edit)
    for model in MODELS
    for task in TASKS
    for edit in ("baseline", *(f"{layer}×0" for layer in range(LAYERS)))
]


def carried(budget=browser.BUDGET):
    answers, items = records()
    return browser.data(OFFERED, answers, items, budget)


def test_every_answer_can_be_found_again():
    data = carried()
    assert len(data["cells"]) == 2 * 2 * 5
    for cell in data["cells"]:
        layer = None if cell["edit"] == "baseline" else int(cell["edit"].partition("×")[0])
        task = data["tasks"][cell["task"]]
        for i, (item, question, gold, _) in enumerate(task["items"]):
            assert (item, question, gold) == (f"{task['name']}-{i}", f"question {i} of {task['name']}?", f"gold {i}")
            assert data["texts"][cell["texts"][i]] == said(task["name"], layer, i)
            assert cell["verdicts"][i] == ("1" if right(task["name"], layer, i) else "0")


def test_thinking_that_was_never_closed_is_told_from_an_answer_that_could_not_be_read():
    answers, items = records()
    answers = answers.assign(parsed=None, text=["<think>\nhm", "hm"] * (len(answers) // 2))
    cells = browser.data(OFFERED, answers, items)["cells"]
    assert {number for cell in cells for number in cell["parsed"]} == {-1, -2}


def test_equal_texts_are_carried_once():
    texts = carried()["texts"]
    assert len(texts) == len(set(texts))


def test_a_budget_keeps_the_same_first_items_under_every_edit_and_all_verdicts():
    data = carried(budget=500)
    kept = [len(task["items"]) for task in data["tasks"]]
    assert all(1 <= n < ITEMS for n in kept)
    assert max(kept) - min(kept) <= 1
    for cell in data["cells"]:
        assert len(cell["texts"]) == len(cell["finish"]) == kept[cell["task"]]
        assert len(cell["verdicts"]) == data["tasks"][cell["task"]]["total"] == ITEMS


def test_a_budget_is_kept_to():
    answers, items = records()
    answers = answers.assign(text=[f"{i} " + "x" * 500 for i in range(len(answers))])
    data = browser.data(OFFERED, answers, items, 50_000)
    assert 40_000 < sum(map(len, data["texts"])) <= 50_000


def test_an_answer_not_given_yet_is_neither_right_nor_wrong():
    answers, items = records()
    data = browser.data(OFFERED, answers[answers["item"] != "sums-3"], items)
    assert {cell["verdicts"][3] for cell in data["cells"] if cell["task"] == 0} == {"-"}
    assert {cell["texts"][3] for cell in data["cells"] if cell["task"] == 0} == {-1}


def test_nothing_answered_is_no_error():
    answers, items = records()
    assert browser.data(OFFERED, answers.iloc[:0], items)["cells"] == []
    assert browser.data(OFFERED, pd.DataFrame(), pd.DataFrame())["cells"] == []


def test_a_long_text_keeps_its_beginning_and_its_end_where_the_answer_stands():
    text = "beginning " + "x" * 50_000 + " #### 42"
    short = browser.shortened(text)
    assert short.startswith("beginning")
    assert short.endswith("#### 42")
    assert "44,018 characters left out" in short
    assert len(short) < browser.LONGEST + 100


@given(st.text())
def test_what_is_compressed_survives_and_cannot_end_its_script_element(text):
    written = browser.compressed({"text": text + "</script><!--\u2028"})
    assert json.loads(zlib.decompress(base64.b64decode(written))) == {"text": text + "</script><!--\u2028"}
    assert re.fullmatch("[A-Za-z0-9+/=]*", written)


def test_a_number_that_json_does_not_know_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        browser.compressed([float("nan")])
