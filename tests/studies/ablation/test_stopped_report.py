"""A stopped table says so at every number: in the terminal, in files, figures and on the page."""

from __future__ import annotations

import io
import re
from html import unescape

import matplotlib.image
import numpy as np
import pytest
from made import study
from made_stopped import ASKED, DRAWN, stopped, with_screen
from rich.console import Console

from lesion.report import charts, figures, wording
from lesion.report.views import lines, views
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import groups, tables
from lesion.studies.ablation import report as page


def plain(text: str) -> str:
    return " ".join(text.replace(wording.SPACE, " ").split())


def shown(summary) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(tables.text(summary))
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
    assert "confidence sequence" in text
    assert len(re.findall(r"^ +[13] +○ drop 0.0 .*○ drop 0.0 ", text, re.MULTILINE)) == 2, "not has a mark of its own"
    assert "○" not in shown(study()[0])
    assert "stopped" not in shown(study()[0])


def test_a_cells_number_is_its_drop_on_its_own_items_not_an_accuracy_beside_a_baseline_of_others():
    text = shown(stopped()[0])
    assert re.search(r"baseline +90.0 .* 90.0 ", text)
    assert "● drop 100.0 [60.0, 100.0]" in text, "of 3 items, on which the baseline is right, not 90 %"
    assert "drop" not in shown(study()[0]).partition("Accuracy in %")[0]


def test_nothing_is_said_to_have_stopped_where_every_item_was_asked(tmp_path):
    summary, answers, items = stopped()
    for task in summary["models"][0]["tasks"]:
        task["items"] = task["baseline"]["items"] = DRAWN
        for entry in task["layers"]:
            entry["items"] = DRAWN
    text = shown(summary)
    assert f"n {DRAWN} of {DRAWN}" in plain(text)
    assert text.count(f"n = {DRAWN} of {DRAWN}, decided") == 6
    assert text.count(f"n = {DRAWN}, open") == 2
    assert ", stopped" not in text
    assert f"on all {DRAWN} items" in " ".join(s for f in prose.findings(views(summary)) for s in f.sentences)
    assert ", stopped" not in page.write(tmp_path, summary, answers, items).read_text("utf-8")


def test_terminal_and_page_say_what_not_and_its_interval_are_about(tmp_path):
    def told(summary) -> str:
        found = plain(" ".join(prose.decided(summary)))
        assert found in plain(shown(summary))
        assert found in plain(unescape(page.write(tmp_path, summary, *stopped()[1:]).read_text("utf-8")))
        return found

    summary = stopped()[0]
    said = told(summary)
    assert (
        f"Not: over these {DRAWN} items the drop does not exceed the effect, and that says nothing beyond them" in said
    )
    assert "interval beside it is about all such items" in said
    assert "run the full table" in said
    # By hand: blocks 1 and 3 on sums, 1, 2 and 3 on facts are not, with a limit of 0.4 against an effect of 0.3.
    assert "At 5 cells that are not, the interval's upper end exceeds the effect" in said
    for task in summary["models"][0]["tasks"]:
        task["stopping"]["effect"] = 0.4
    assert "upper end" not in told(summary)
    assert prose.decided(study()[0]) == []


def test_the_csv_has_the_items_and_the_decision_of_every_cell_and_no_p():
    table = tables.layers(stopped()[0])
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
    full = tables.layers(study()[0])
    assert full["decided"].isna().all()
    assert set(full["items"]) == set(full["baseline_items"]) == {10}


def test_the_page_says_it_at_the_top_and_in_every_cell(tmp_path):
    summary, answers, items = stopped()
    html = page.write(tmp_path, summary, answers, items).read_text("utf-8")
    text = plain(re.sub("<[^>]+>", " ", html))
    assert "Asking stopped as soon as a cell was decided." in text
    assert "base on sums: 35 of 60 answers, that is 2.9 evaluations of the unedited model instead of 5.0" in text
    assert "of its cells 1 exceeds the effect, 2 not and 1 open" in text
    assert "95 % confidence sequences" in text
    assert "corrected over the blocks" not in text
    table = html[html.index('id="cell-table"') :]
    for layer, decided in ((0, "open"), (1, "not"), (2, "● exceeds"), (3, "not")):
        of_layer = cells(table, f'<td class="name">sums</td><td class="n" data-v="{layer}"')
        why = "open" if layer == 0 else "stopped"
        assert f"n = {ASKED[layer]}, {why}" in of_layer
        assert of_layer[-1] == decided
    heat = html[html.index('id="drops"') : html.index('id="cells"')]
    assert cells(heat, "sums")[:4] == ["0? open n 10", "0 n 6", "100 exceeds the effect n 3", "0 n 6"]
    assert f"n = 3–10 of {DRAWN}, stopped" in text
    assert "Accuracy by group of items" not in text


def test_a_full_table_has_none_of_that(tmp_path):
    html = page.write(tmp_path, *study()).read_text("utf-8")
    assert "stopped" not in html[html.index("<body") : html.index('id="study"')]
    assert "confidence sequence" not in html


def test_open_cells_have_a_mark_of_their_own_in_the_charts():
    (view,) = views(stopped()[0])
    drawn = str(charts.panel(view, "sums", charts.Frame(view.layers), 0.95))
    assert drawn.count('class="crossed"') == 1
    assert drawn.count('class="mark critical"') == 1
    assert 'class="crossed"' not in str(charts.panel(views(study()[0])[0], "sums", charts.Frame((0, 1)), 0.95))
    assert len(set(re.findall(r'class="baseline" d="(M[^ ]+ [^H]+)H', drawn))) == 4, "a piece per block"
    heights = re.findall(r'class="baseline" d="M[^ ]+ ([^H]+)H', drawn)
    assert heights[0] != heights[1] == heights[2] == heights[3], "90 % of 10 items, 100 % of fewer"
    point = view.panels["sums"][0].at(0)
    assert "n = 10, open" in plain(charts.numbers(point))
    assert "n =" not in plain(charts.numbers(views(study()[0])[0].panels["sums"][0].at(0)))


@pytest.mark.parametrize("draw", [lambda view: figures.accuracy(view, 0.95), figures.heat])
def test_the_figures_differ_where_a_cell_is_open(draw):
    def pixels(summary):
        (view,) = views(summary)
        return matplotlib.image.imread(io.BytesIO(draw(view)))

    summary = stopped()[0]
    decided = stopped()[0]
    for task in decided["models"][0]["tasks"]:
        task["layers"][0]["decided"] = "not"
    first, second = pixels(summary), pixels(decided)
    assert first.shape != second.shape or (first != second).any()


def test_the_accuracy_figure_draws_the_baseline_of_each_cells_own_items():
    def pixels(accuracy: float):
        summary = stopped()[0]
        summary["models"][0]["tasks"][0]["layers"][1]["baseline_accuracy"] = accuracy
        return matplotlib.image.imread(io.BytesIO(figures.accuracy(views(summary)[0], 0.95)))

    assert (pixels(1.0) != pixels(0.5)).any()


def test_the_heat_map_has_the_items_of_every_cell():
    def pixels(items: int):
        summary = stopped()[0]
        summary["models"][0]["tasks"][0]["layers"][1]["items"] = items
        return matplotlib.image.imread(io.BytesIO(figures.heat(views(summary)[0])))

    assert (pixels(6) != pixels(7)).any()


def test_the_title_of_a_figure_says_that_asking_stopped():
    of_task = views(stopped()[0])[0].panels["sums"]
    assert figures.title("sums", of_task) == f"sums\nn = 3–10 of {DRAWN}, stopped"
    assert figures.title("sums", views(study()[0])[0].panels["sums"]) == "sums  (n = 10)"


def test_findings_say_after_how_many_items_and_what_is_open():
    told = plain(" ".join(s for found in prose.findings(views(stopped()[0])) for s in found.sentences))
    # Wilson's intervals of 3 of 3 and 0 of 3.
    assert "accuracy falls from 100.0 % [43.9, 100.0] to 0.0 % [0.0, 56.1] on the 3 items asked" in told
    assert "Block 0 is left open." in told
    unfinished = prose.findings(views(stopped(finished=False)[0]))
    told = plain(" ".join(s for found in unfinished for s in found.sentences))
    assert "Block 0 is still open." in told
    assert "No block exceeds the effect for facts so far" in told


def test_a_block_left_open_on_a_task_is_not_said_to_be_spared_by_it():
    def headline(decided: str) -> str:
        summary = stopped()[0]
        summary["models"][0]["tasks"][1]["layers"][2]["decided"] = decided
        return plain(" ".join(s for found in prose.findings(views(summary)) for s in found.headline))

    assert headline("not") == "Block 2 exceeds the effect for sums, not for facts."
    assert headline("open") == ""


def test_a_stopped_cell_is_not_a_missing_one_but_a_study_that_goes_on_is_not_finished():
    summary, answers, _ = stopped()
    assert prose.missing(views(summary), groups.answered(answers)) == []
    summary, answers, _ = stopped(finished=False)
    assert prose.missing(views(summary), groups.answered(answers)) == [
        f"base on {task}: not all is decided after 10 of {DRAWN} items." for task in ("sums", "facts")
    ]


def test_groups_of_items_are_told_of_full_tables_only():
    summary, answers, items = stopped()
    assert groups.breakdowns(lines(summary), answers, items, 0.95) == ()


def test_the_screen_is_told_with_its_ranks_its_agreement_and_its_cost(tmp_path):
    summary, answers, items = stopped()
    with_screen(summary)
    text = plain(shown(summary))
    assert "0.750 [0.650, 0.850] (2)" in text
    assert "−0.004 [−0.104, 0.096] (4)" in text
    assert "no number on 8 items (1)" in text
    assert "ρ = 0.80 [0.40, 0.95] over 4 blocks, 2 of them with equal drops" in text
    cost = (
        "base: the screen scored 80 solutions of 800 tokens, each in one pass; the table looks at 70 answers of the"
        " same tasks, for which 490 tokens were generated one by one."
    )
    assert f"{cost} As measured by the runs, 80 solutions of the screen took 1.2 seconds." in text
    html = page.write(tmp_path, summary, answers, items).read_text("utf-8")
    assert cost in plain(re.sub("<[^>]+>", " ", html))
    table = html[html.index('id="screen-table"') :]
    assert cells(table, '<td class="name">facts</td><td class="n" data-v="2"')[2:] == ["8", "0.500 [0.400, 0.600]", "3"]
    assert "As measured" not in shown(with_screen(stopped()[0], seconds=False))


def test_two_models_stopped_differently_share_a_page(tmp_path):
    summary, answers, items = stopped(("base", "child"))
    for task in summary["models"][1]["tasks"]:
        task["items"] = task["baseline"]["items"] = 8
    html = page.write(tmp_path, summary, answers, items).read_text("utf-8")
    assert f"3–10 of {DRAWN}, stopped" in html
    assert f"3–8 of {DRAWN}, stopped" in html
