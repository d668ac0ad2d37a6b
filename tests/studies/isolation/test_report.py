"""The isolation's files: a page that asks for nothing and holds texts as texts, tables, figures, the summary."""

import io
import json
import math
from pathlib import Path

import made_isolation as made
import pytest
from page_checks import inflated
from rich.console import Console

from lesion.core.rates import approximate
from lesion.report.publishing import html
from lesion.report.table import Table
from lesion.studies.isolation.report import IsolationResult
from written import write_isolation


@pytest.fixture(scope="module")
def whole():
    return made.summary(made.study())


@pytest.fixture(scope="module")
def text(whole):
    return html(result(whole).with_answers(*made.answers(made.study())))


def small(**changes):
    """The JSON of an evaluation of one edit, quick to draw."""
    found = made.evaluation(boost=False)
    found["edits"] = found["edits"][:1]
    key = found["edits"][0]["edit"]
    for task in found["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    found["selectivity"] = [entry for entry in found["selectivity"] if entry["edit"] == key]
    found["choice"] = None
    return {"evaluation": found | changes}


def result(summary):
    return IsolationResult(Path("no-folder"), summary)


def page(summary):
    return html(result(made.summary(summary)).with_answers())


def table(summary, name):
    """The table of that file."""
    rows = [part.rows for part in result(summary).parts() if part.rows is not None and part.rows.name == name]
    return Table.of(rows[0])


def data(text):
    return json.loads(inflated(text, "data"))


@pytest.mark.parametrize("parts", [{"isolation": made.isolation()}, {"evaluation": made.evaluation()}])
def test_an_isolation_or_an_evaluation_alone_has_a_page_and_tables(parts):
    text = page(parts)
    assert ('data-name="distribution"' in text) == ("isolation" in parts)
    assert ('id="controls"' in text) == ("evaluation" in parts)
    assert shown(parts)


def short(task: str) -> str:
    return task.removeprefix("primer:")


def test_the_item_browser_carries_the_baseline_and_every_edit_but_no_random_control(whole, text):
    carried = data(text)
    tried = [edit.edit for edit in whole.evaluation.tried]
    names = [task["name"] for task in carried["tasks"]]
    of_skill = [cell["edit"] for cell in carried["cells"] if names[cell["task"]] == short(made.SKILL)]
    assert of_skill == ["baseline", *tried]
    assert short(made.TEXT) not in names
    for cell in carried["cells"]:
        task = carried["tasks"][cell["task"]]["name"]
        for i, number in enumerate(cell["texts"]):
            assert carried["texts"][number] == made.said(f"primer:{task}", cell["edit"], i)
            assert cell["verdicts"][i] == ("1" if made.right(f"primer:{task}", cell["edit"], i) else "0")


def test_without_answers_there_is_no_item_browser():
    summary = small()
    answers, items = made.answers(summary)
    assert 'id="choose-task"' in html(result(made.summary(summary)).with_answers(answers, items))
    assert 'id="choose-task"' not in html(result(made.summary(summary)).with_answers(answers.iloc[:0], items))


def test_numbers_that_are_not_finite_are_null_in_the_summary(tmp_path):
    summary = small()
    cell = summary["evaluation"]["tasks"][3]["cells"][0]
    cell["result"]["value"], cell["change"]["value"] = math.inf, math.nan
    write_isolation(tmp_path, made.summary(summary))
    written = json.loads((tmp_path / "summary.json").read_text("utf-8"))["evaluation"]["tasks"][3]["cells"][0]
    assert (written["result"]["value"], written["change"]["value"]) == (None, None)


def test_running_text_has_its_perplexity_in_place_of_an_accuracy(whole):
    frame = table(whole, "evaluation").frame
    row = frame[(frame["task"] == made.TEXT) & (frame["edit"] == made.key("mathneuro", 0.05))].iloc[0]
    assert (row["perplexity"], row["low"], row["high"]) == pytest.approx((3.2 * 1.4, 3.1 * 1.4, 3.3 * 1.4))
    assert (row["ratio"], row["random_perplexity"], row["baseline_perplexity"]) == pytest.approx((1.4, 3.36, 3.2))
    assert row[["accuracy", "drop", "random_accuracy", "baseline_accuracy"]].isna().all()


def test_repeats_and_factors_that_were_not_reached_are_named():
    summary = small()
    summary["evaluation"]["edits"][0] |= {"repeat": 1, "factor": 1.01, "achieved": 1.0125}
    name = table(made.summary(summary), "evaluation").frame["name"][0].replace("\N{NO-BREAK SPACE}", " ")
    assert name == "MathNeuro, share 0.1 %, repeat 1, ×1.01 (1.0125 reached)"


def test_the_matched_controls_stand_beside_every_edit():
    summary = small()
    cell = summary["evaluation"]["tasks"][0]["cells"][0]
    cell["matched"] = [cell["random"] | {"matched_in": "magnitude", "drop": 0.02}]
    frame = table(made.summary(summary), "matched-controls").frame
    assert list(frame["matched_in"]) == ["count", "magnitude"]
    assert list(frame["control_drop"]) == pytest.approx([0.0, 0.02])
    assert list(frame["drop"]) == pytest.approx([0.03, 0.03])


def shown(summary, width=140, every=False) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(result(made.summary(summary)).text(every=every))
    return " ".join(console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_terminal_has_edits_tried_and_with_all_rows_random_controls_too():
    assert "seed 0" not in shown(made.study())
    assert "seed 0" in shown(made.study(), every=True)


def test_stopped_loops_and_their_share_are_said_on_page_and_terminal():
    summary, label = small(), approximate(4)
    assert "Approximate" not in page(summary) + shown(summary)
    summary["evaluation"]["tasks"][0]["cells"][0]["rates"] |= {"truncated": 0.5, "looped": 0.375}
    summary["approximate"] = label
    assert label in shown(summary)
    for text in (page(summary), shown(summary, every=True)):
        assert label in text
        assert "Looped, %" in text


def checks(values):
    return {check.text: check.mood for check in result(made.summary({"evaluation": values})).checks()}


def test_what_speaks_for_and_against_the_answer_is_checked():
    values = small()["evaluation"]
    assert set(checks(values).values()) == {"good", "open"}
    values["tasks"][1]["baseline"]["result"] = {"value": 0.0, "low": 0.0, "high": 0.13}
    values["tasks"][0]["cells"][0]["rates"]["unparsed"] = 0.6
    bad = [text.replace("\N{NO-BREAK SPACE}", " ") for text, mood in checks(values).items() if mood == "bad"]
    assert bad == [
        "Too near guessing to show a loss, so not counted: primer:atlas.",
        "60 % of the answers under MathNeuro, share 0.1 %, ×0 (primer:arithmetic) are cut off or unreadable: the form"
        " may be lost, not the skill.",
    ]


@pytest.mark.parametrize(("low", "near"), [(0.45, True), (0.5, True), (0.51, False)])
def test_a_skill_whose_interval_holds_the_accuracy_of_guessing_is_called_near_it(low, near):
    values = small()["evaluation"]
    values["tasks"][0]["baseline"]["result"] = {"value": 0.55, "low": low, "high": 0.65}
    values["tasks"][0]["chance"] = 0.5
    assert ("Too near guessing to show a loss, so not counted: primer:arithmetic." in checks(values)) == near


def test_the_page_names_the_dtype_of_the_isolation_and_of_the_evaluation(text):
    both = result(made.summary(small(dtype="bfloat16") | {"isolation": made.isolation()})).with_answers()
    facts = dict(next(block for block in both.blocks() if block.kind == "facts").facts)
    assert (facts["dtype"], facts["dtype evaluated"]) == ("float32", "bfloat16")
