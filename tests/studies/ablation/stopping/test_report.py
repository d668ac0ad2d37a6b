"""A stopped table says so at every number: in the terminal, in files, figures and on the page."""

from __future__ import annotations

import io
import re
from html import unescape

import numpy as np
import pytest
from made import study, valid
from made_stopped import ASKED, DRAWN, SECONDS, stopped, stopped_form, with_screen
from rich.console import Console

from lesion.core import cost
from lesion.report import wording
from lesion.report.drawing import specification
from lesion.studies.ablation import charts, groups, tables
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation.screen.screening import ASKING
from written import write_layers


def plain(text: str) -> str:
    return " ".join(text.replace(wording.SPACE, " ").split())


def shown(summary, seconds=None) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(tables.text(summary, seconds or {}))
    return console.file.getvalue().replace(wording.SPACE, " ")


def cells(html: str, row: str) -> list[str]:
    """The texts of the cells of the table row that matches."""
    found = re.search(rf"<tr[^>]*>(?:(?!</tr>).)*{row}.*?</tr>", html, re.DOTALL)
    assert found is not None
    return [plain(re.sub("<[^>]+>", " ", cell)) for cell in re.findall("<td.*?</td>", found[0], re.DOTALL)]


def test_every_cell_of_the_terminals_table_says_after_how_many_items_asking_stopped():
    text = shown(stopped()[0])
    assert f"n 3–10 of {DRAWN}, stopped" in plain(text)
    assert text.count("n = 10, open") == 2
    assert text.count("n = 6, stopped") == 4
    assert text.count("n = 3, stopped") == 2
    assert text.count("n = 10 ") == 2, "the baseline's"
    assert len(re.findall(r"^ +0 +\?.*\?", text, re.MULTILINE)) == 1, "block 0 is open on both tasks"
    assert "confidence sequence" in " ".join(text.split())
    assert len(re.findall(r"^ +[13] +○ drop 0.0 .*○ drop 0.0 ", text, re.MULTILINE)) == 2, "not has a mark of its own"
    assert "○ not" not in shown(study()[0])
    assert "stopped" not in shown(study()[0])


def test_a_cells_number_is_its_drop_on_its_own_items_not_an_accuracy_beside_a_baseline_of_others():
    text = shown(stopped()[0])
    assert re.search(r"baseline +90.0 .* 90.0 ", text)
    assert "● drop 100.0 [60.0, 100.0]" in text, "of 3 items, on which the baseline is right, not 90 %"
    assert "drop" not in shown(study()[0]).partition("Accuracy in %")[0]


def test_nothing_is_said_to_have_stopped_where_every_item_was_asked(tmp_path):
    _, answers, items = stopped()
    form = stopped_form()
    for task in form["models"][0]["tasks"]:
        task["items"] = task["baseline"]["items"] = DRAWN
        for cell in task["cells"]:
            cell["items"] = DRAWN
    summary = valid(form)
    text = shown(summary)
    assert f"n {DRAWN} of {DRAWN}" in plain(text)
    assert text.count(f"n = {DRAWN} of {DRAWN}, decided") == 6
    assert text.count(f"n = {DRAWN}, open") == 2
    assert ", stopped" not in text
    findings = plain(" ".join(s for f in prose.by_model(summary.views) for s in f.sentences))
    assert f"(n = {DRAWN} of {DRAWN}, decided)" in findings
    assert ", stopped" not in write_layers(tmp_path, summary, answers, items).read_text("utf-8")


def test_terminal_and_page_say_what_not_and_its_interval_are_about(tmp_path):
    def told(summary) -> str:
        found = plain(" ".join(prose.decided(summary)))
        assert found in plain(shown(summary))
        assert found in plain(unescape(write_layers(tmp_path, summary, *stopped()[1:]).read_text("utf-8")))
        return found

    summary = stopped()[0]
    said = told(summary)
    assert f"Not: the drop on these {DRAWN} items does not exceed the effect. Beyond them nothing is claimed" in said
    assert "interval is about all such items" in said
    assert "run the full table" in said
    # By hand: blocks 1 and 3 on sums, 1, 2 and 3 on facts are not, with a limit of 0.4 against an effect of 0.3.
    assert "At 5 cells that are not, the interval's upper end exceeds the effect" in said
    form = stopped_form()
    for task in form["models"][0]["tasks"]:
        task["stopping"]["effect"] = 0.4
    assert "upper end" not in told(valid(form))
    assert prose.decided(study()[0]) == []


def test_the_csv_has_the_items_and_the_decision_of_every_cell_and_no_p():
    table = tables.frame(stopped()[0])
    assert list(table.columns) == list(tables.COLUMNS)
    for row in table.to_dict("records"):
        assert row["items"] == ASKED[row["layer"]]
        assert row["baseline_items"] == row["items"]
        assert row["baseline_accuracy"] - row["accuracy"] == pytest.approx(row["drop"], abs=1e-12)
        assert row["baseline_low"] <= row["baseline_accuracy"] <= row["baseline_high"]
        assert np.isnan(row["p_corrected"]) if row["p_corrected"] is not None else True
    decided = {(row["task"], row["layer"]): row["decided"] for row in table.to_dict("records")}
    assert decided["sums", 2] == "exceeds"
    assert table["critical"].isna().all(), "only a full table says what is critical"
    assert [decided["facts", layer] for layer in (0, 1)] == ["open", "not"]
    assert dict(zip(table["layer"], table["baseline_accuracy"], strict=True)) == {0: 0.9, 1: 1.0, 2: 1.0, 3: 1.0}
    full = tables.frame(study()[0])
    assert full["decided"].isna().all()
    assert set(full["items"]) == set(full["baseline_items"]) == {10}


def test_the_page_says_it_at_the_top_and_in_every_cell(tmp_path):
    summary, answers, items = stopped()
    html = write_layers(tmp_path, summary, answers, items).read_text("utf-8")
    text = plain(re.sub("<[^>]+>", " ", html))
    assert "Asking stopped as soon as a cell was decided." in text
    assert "base on sums: 35 of 60 answers; cells: 1 exceeds the effect, 2 not, 1 open" in text
    assert "95 % confidence sequences" in text
    assert "corrected over the blocks" not in text
    table = html[html.index('id="cells"') :]
    for layer, decided in ((0, "open"), (1, "not"), (2, "● exceeds"), (3, "not")):
        of_layer = cells(table, f'<td class="name">sums</td><td class="n" data-v="{layer}"')
        why = "open" if layer == 0 else "stopped"
        assert f"n = {ASKED[layer]}, {why}" in of_layer
        assert of_layer[-1] == decided
    assert f"n = 3–10 of {DRAWN}, stopped" in text
    assert "Accuracy by group of items" not in text


def test_a_full_table_has_none_of_that(tmp_path):
    html = write_layers(tmp_path, *study()).read_text("utf-8")
    assert "stopped" not in html[html.index("<body") : html.index('id="study"')]
    assert "confidence sequence" not in html


def drawn(summary, task: str = "sums") -> list[dict]:
    """The rows of data behind the accuracy chart."""
    specified = specification(charts.accuracy(summary.views[0], task))
    return [row for rows in specified["datasets"].values() for row in rows]


def test_open_cells_have_a_mark_of_their_own_in_the_charts():
    rows = drawn(stopped()[0])
    assert [row["x"] for row in rows if row.get("open")] == [0]
    assert [row["x"] for row in rows if row.get("marked")] == [2]
    pieces = {round(row["x"] + charts.PIECE): row["y"] for row in rows if {"end", "y"} <= set(row)}
    assert pieces == {0: 0.9, 1: 1.0, 2: 1.0, 3: 1.0}, "90 % of 10 items, 100 % of fewer"
    assert not [row for row in drawn(study()[0]) if row.get("open")]
    curve = stopped()[0].views[0].panels["sums"][0]
    assert "n = 10, open" in plain(charts.numbers(curve, curve.at(0)))
    curve = study()[0].views[0].panels["sums"][0]
    assert "n =" not in plain(charts.numbers(curve, curve.at(0)))


def test_the_heat_map_has_the_items_of_every_cell_and_a_question_mark_where_it_is_open():
    ((_, chart),) = charts.drop_panels(stopped()[0].views[0])
    (rows,) = specification(chart)["datasets"].values()
    texts = [plain(row["text"]) for row in rows if row["y"] == "sums"]
    assert texts == ["0? n 10", "0 n 6", "100 n 3", "0 n 6"]
    assert [row["x"] for row in rows if row["marked"]] == [2]


def test_findings_say_after_how_many_items_and_what_is_open():
    told = plain(" ".join(s for found in prose.by_model(stopped()[0].views) for s in found.sentences))
    # Wilson's intervals of 3 of 3 and 0 of 3.
    assert "accuracy falls from 100.0 % [43.9, 100.0] to 0.0 % [0.0, 56.1] (n = 3, stopped)" in told
    assert "Open: block 0." in told
    unfinished = prose.by_model(stopped(finished=False)[0].views)
    told = plain(" ".join(s for found in unfinished for s in found.sentences))
    assert "Open: block 0." in told
    assert "No block exceeds the effect for facts so far" in told


def test_a_block_left_open_on_a_task_is_not_said_to_be_spared_by_it():
    def headline(decided: str) -> str:
        form = stopped_form()
        form["models"][0]["tasks"][1]["cells"][2]["decided"] = decided
        return plain(" ".join(s for found in prose.by_model(valid(form).views) for s in found.headline))

    assert headline("not") == "Block 2 exceeds the effect for sums, not for facts."
    assert headline("open") == ""


def test_a_stopped_cell_is_not_a_missing_one_but_a_study_that_goes_on_is_not_finished():
    summary, answers, _ = stopped()
    assert prose.missing(summary.views, groups.answered(answers)) == []
    summary, answers, _ = stopped(finished=False)
    assert prose.missing(summary.views, groups.answered(answers)) == [
        f"base on {task}: not decided after 10 of {DRAWN} items." for task in ("sums", "facts")
    ]


def test_groups_of_items_are_told_of_full_tables_only():
    summary, answers, items = stopped()
    assert groups.breakdowns(summary.curves, answers, items, 0.95) == ()


def test_the_screen_is_told_with_its_ranks_its_agreement_and_its_cost(tmp_path):
    _, answers, items = stopped()
    summary = valid(with_screen(stopped_form()))
    text = plain(shown(summary, SECONDS))
    assert "0.750 [0.650, 0.850] (2)" in text
    assert "−0.004 [−0.104, 0.096] (4)" in text
    assert "no number on 8 items (1)" in text
    assert "ρ = 0.80 [0.40, 0.95] over 4 blocks, 2 of them with equal drops" in text
    spent = (
        "base: the screen scored 80 solutions of 800 tokens, each in one pass; the table looks at 70 answers of the"
        " same tasks, for which 490 tokens were generated one by one."
    )
    assert f"{spent} As measured by the runs, 80 solutions of the screen took 1.2 seconds." in text
    cost.note(tmp_path, ASKING, SECONDS)
    html = write_layers(tmp_path, summary, answers, items).read_text("utf-8")
    assert spent in plain(re.sub("<[^>]+>", " ", html))
    table = html[html.index('id="screen"') :]
    assert cells(table, '<td class="name">facts</td><td class="n" data-v="2"')[2:] == ["8", "0.500 [0.400, 0.600]", "3"]
    assert "As measured" not in shown(summary)


def test_two_models_stopped_differently_share_a_page(tmp_path):
    _, answers, items = stopped(("base", "child"))
    form = stopped_form(("base", "child"))
    for task in form["models"][1]["tasks"]:
        task["items"] = task["baseline"]["items"] = 8
    html = write_layers(tmp_path, valid(form), answers, items).read_text("utf-8")
    assert f"3–10 of {DRAWN}, stopped" in html
    assert f"3–8 of {DRAWN}, stopped" in html
