"""The isolation's files: a page that asks for nothing and holds texts as texts, tables, figures, the summary."""

import io
import itertools
import json
import math

import made_isolation as made
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing, inflated, scripts
from rich.console import Console

from lesion.cli import running
from lesion.errors import LesionError
from lesion.report.publishing import html
from lesion.studies.isolation import report as isolation
from lesion.studies.isolation import tables, terminal
from lesion.studies.isolation.report import IsolationResult
from lesion.studies.isolation.result import IsolationSummary
from written import write_isolation


@pytest.fixture(scope="module")
def whole():
    return made.summary(made.study())


@pytest.fixture(scope="module")
def text(whole):
    return html(isolation.report(whole, *made.answers(made.study())))


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


def page(summary):
    return html(isolation.report(made.summary(summary)))


def data(text):
    return json.loads(inflated(text, "data"))


def test_a_whole_study_becomes_a_page_tables_and_figures(tmp_path):
    few = made.study()
    few["isolation"]["selections"] = few["isolation"]["selections"][:2]
    summary = made.summary(few)
    written = write_isolation(tmp_path / "deep", summary, *made.answers(few))
    pictures = ("drops", "tradeoff-prune", "tradeoff-boost", "sweep-keep", "sweep-factor", "sweep-factor-unchanged",
                "consistency", "distribution-mathneuro-0.001", "distribution-mathneuro-0.01")  # fmt: skip
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        *("lesion.json", "report.html", "summary.json", "selections.csv", "overlap.csv", "evaluation.csv"),
        *(f"figures/{name}.{ending}" for name in pictures for ending in ("png", "svg")),
    }
    assert IsolationSummary.model_validate_json((written.parent / "summary.json").read_text("utf-8")) == summary
    for path in (written.parent / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("parts", [{}, {"isolation": made.isolation()}, {"evaluation": made.evaluation()}])
def test_an_isolation_or_an_evaluation_alone_has_a_page_and_tables(parts):
    text = page(parts)
    assert ('id="distribution"' in text) == ("isolation" in parts)
    assert ('id="trade-off"' in text) == ("evaluation" in parts)
    assert ("Nothing has been measured yet." in text) == (not parts)
    assert shown(parts)


def test_the_page_asks_for_nothing_outside_itself(text):
    assert_asks_for_nothing(text)


def test_hostile_names_add_no_element_and_no_attribute():
    def shape(value: str) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in Elements(value).found]

    def named(names):
        """The made study with every free text replaced by one of the names in turn."""
        following = itertools.cycle(names)
        summary = made.study()
        summary["study"] |= {"title": next(following)}
        summary["version"] = next(following)
        summary["notes"] = list(names)
        isolated, evaluated = summary["isolation"], summary["evaluation"]
        isolated["selections"] = isolated["selections"][:2]
        isolated |= {"model": next(following), "fingerprint": next(following), "family": next(following)}
        isolated["study"] |= {"skill": next(following), "controls": [next(following)]}
        for entry in isolated["coverage"] + isolated["texts"]:
            entry |= {key: next(following) for key in ("name", "reason", "data", "style", "role") if key in entry}
        for entry in isolated["selections"]:
            entry |= {"file": next(following), "label": next(following), "method": next(following)}
            for matrix in entry["matrices"]:
                matrix["matrix"] = "mlp." + names[matrix["total"] % len(names)]
        tasks = {task["name"]: f"{i}{next(following)}" for i, task in enumerate(evaluated["tasks"])}
        for task in evaluated["tasks"]:
            task["name"] = tasks[task["name"]]
        for entry in evaluated["edits"]:
            entry |= {"label": next(following), "method": "custom" if entry["method"] == "wanda" else entry["method"]}
        for entry in evaluated["selectivity"]:
            entry |= {"skill": tasks[entry["skill"]], "control": tasks[entry["control"]]}
        answers, items = made.answers(summary, 2)
        answers, items = answers.assign(text=next(following)), items.assign(question=next(following))
        return html(isolation.report(made.summary(summary), answers, items))

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    for tag, _ in shape(hostile):
        assert tag not in ("img", "iframe", "object", "embed", "base")
    assert len(Elements(hostile).inside["script"]) == scripts(hostile) == 4
    assert {(tag, *names) for tag, names in shape(hostile)} <= {
        (tag, *names) for tag, names in shape(named([f"tame{i}" for i in range(len(HOSTILE))]))
    }


def test_the_item_browser_carries_the_baseline_and_every_edit_but_no_random_control(whole, text):
    carried = data(text)
    tried = [edit.edit for edit in whole.evaluation.tried]
    of_skill = [cell["edit"] for cell in carried["cells"] if carried["tasks"][cell["task"]]["name"] == made.SKILL]
    assert of_skill == ["baseline", *tried]
    assert made.TEXT not in [task["name"] for task in carried["tasks"]]
    for cell in carried["cells"]:
        task = carried["tasks"][cell["task"]]["name"]
        for i, number in enumerate(cell["texts"]):
            assert carried["texts"][number] == made.said(task, cell["edit"], i)
            assert cell["verdicts"][i] == ("1" if made.right(task, cell["edit"], i) else "0")
    assert "Answers under the random controls are left out" in text


def test_without_answers_there_is_no_item_browser():
    summary = small()
    answers, items = made.answers(summary)
    assert 'id="choose-task"' in html(isolation.report(made.summary(summary), answers, items))
    assert 'id="choose-task"' not in html(isolation.report(made.summary(summary), answers.iloc[:0], items))


def test_numbers_that_are_not_finite_are_null_in_the_summary_and_named_in_the_page(tmp_path):
    summary = small()
    cell = summary["evaluation"]["tasks"][3]["cells"][0]
    cell["result"]["value"], cell["change"]["value"] = math.inf, math.nan
    text = write_isolation(tmp_path, made.summary(summary)).read_text("utf-8")
    written = json.loads((tmp_path / "summary.json").read_text("utf-8"))["evaluation"]["tasks"][3]["cells"][0]
    assert (written["result"]["value"], written["change"]["value"]) == (None, None)
    assert "the result is not a finite number: primer:text under MathNeuro" in text
    assert "not finite" in shown(summary)


def test_a_control_that_no_edit_was_asked_on_has_no_empty_panel():
    summary = small()
    summary["evaluation"]["tasks"][1]["cells"] = []
    text = page(summary)
    assert "<h3>primer:atlas" not in text
    assert "<h3>primer:reading" in text


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        write_isolation(blocked, made.summary({}))


def test_selections_have_a_row_per_matrix_whose_counts_add_up(whole):
    table = tables.matrices(whole.isolation).frame
    totals = table.groupby(["method", "keep"])[["selected", "total"]].sum()
    for selection in whole.isolation.selections:
        expected = (selection.selected, selection.total)
        assert tuple(totals.loc[selection.method, selection.keep]) == expected
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    assert read.loc[read["matrix"] == "head", "block"].isna().all()


def test_the_evaluation_has_a_row_per_task_and_edit_with_its_random_controls_beside_it(whole):
    table = tables.evaluation(whole).frame
    assert len(table) == sum(len(task.cells) for task in whole.evaluation.tasks)
    row = table[(table["task"] == made.SKILL) & (table["edit"] == made.key("mathneuro", 0.05))].iloc[0]
    assert (row["accuracy"], row["random_accuracy"], row["baseline_accuracy"]) == (0.2, 0.8, 0.88)
    assert row["drop"] == pytest.approx(row["baseline_accuracy"] - row["accuracy"])


def test_the_page_s_table_has_every_edit_tried_and_no_random_control(whole):
    table = tables.cells(whole.evaluation)
    texts = [[cell.text.replace("\N{NO-BREAK SPACE}", " ") for cell in cells] for _, cells in table.shown]
    assert len(texts) == sum(edit.edit in task.effects for task in whole.evaluation.tasks
                             for edit in whole.evaluation.tried)  # fmt: skip
    expected = ["primer:arithmetic", "MathNeuro, share 5 %, ×0", "20.0 [15.0, 26.1]", "68.0 [64.0, 72.0]"]
    assert [*expected, "80.0 [78.0, 82.0]", "60.0 [55.0, 65.0]"] in [row[:6] for row in texts]
    (text,) = [row for row in texts if row[:2] == ["primer:text", "MathNeuro, share 5 %, ×0"]]
    assert text[2:6] == ["4.48 [4.34, 4.62]", "×1.400 [1.372, 1.428]", "3.36 [3.2, 3.52]", "–"]


def test_repeats_and_factors_that_were_not_reached_are_named_in_the_page_s_table():
    summary = small()
    summary["evaluation"]["edits"][0] |= {"repeat": 1, "factor": 1.01, "achieved": 1.0125}
    (row, *_) = [
        [cell.text for cell in cells] for _, cells in tables.cells(made.evaluated(summary["evaluation"])).shown
    ]
    name = row[1].replace("\N{NO-BREAK SPACE}", " ")
    assert name == "MathNeuro, share 0.1 %, repeat 1, ×1.01 (1.0125 reached)"


def test_overlap_lists_every_pair(whole):
    table = tables.overlap(whole.isolation).frame
    pairs = [[float(pair) for pair in row.split()] for row in table["iou"]]
    assert [sum(found) / len(found) for found in pairs] == pytest.approx(list(table["mean"]), abs=1e-6)


def shown(summary, width=140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(terminal.text_tables(made.summary(summary)))
    return console.file.getvalue()


def test_the_terminal_tells_result_drop_and_random_spread():
    text = " ".join(shown(made.study()).replace("\N{NO-BREAK SPACE}", " ").split())
    for expected in ("20.0 [15, 27]", "drop 68.0 [64, 72]", "random 78–82", "×1.4 [1.37, 1.43]"):
        assert expected in text
    assert "random-of" not in text
    assert "not yet" in text  # the boosts were not asked on running text


def test_three_tasks_fit_a_terminal_of_eighty_columns_without_a_number_broken():
    summary = small()
    del summary["evaluation"]["tasks"][2]
    text = shown(summary, width=80).replace("\N{NO-BREAK SPACE}", " ")
    for expected in ("85.0 [79, 90]", "drop 3.0 [−1, 7]", "random 86–90", "3.226 [3.12, 3.33]", "random 3.2–3.21"):
        assert expected in text


def test_faulty_answers_are_named_in_the_terminal_from_five_percent_on():
    summary = small()
    summary["evaluation"]["tasks"][0]["cells"][0]["rates"] |= {"truncated": 0.3, "unparsed": 0.04}
    text = shown(summary).replace("\N{NO-BREAK SPACE}", " ")
    assert "30 % truncated" in text
    assert "unparsed" not in text.split("from 5 %")[0]


def test_the_terminal_tells_the_choice_by_its_test_items(tmp_path):
    found = IsolationResult(tmp_path, made.summary(made.study())).found()
    text = " ".join(said for said, _ in running.verdict(found)).replace("\N{NO-BREAK SPACE}", " ")
    assert "MathNeuro, share 5 %, ×1.1 was chosen of 3 edits on 100 validation items" in text
    assert "+0.5 points [−2.0, 3.0], p .8: no evidence of a change." in text


def test_a_task_name_too_long_for_its_column_shows_both_ends():
    summary = small()
    summary["evaluation"]["tasks"][1]["name"] = "mmlu:/a/folder/whose/name/is/long/sociology_test.csv"
    text = shown(summary, width=80)
    (heading,) = [line for line in text.splitlines() if "test.csv" in line]
    (name,) = [word for word in heading.split() if word.startswith("mm")]
    assert "…" in name
    assert "mmlu:/a/folder/whose/name/is/long/sociology_test.csv" in shown(summary, width=200)


def test_nothing_in_a_name_acts_on_the_terminal():
    summary = made.study()
    summary["isolation"]["model"] = summary["evaluation"]["model"] = "m\x1b[31m"
    summary["evaluation"]["tasks"][1]["name"] = "a\nb\x1b]0;"
    for edit in summary["evaluation"]["edits"]:
        edit |= {"method": "custom", "label": "l\x1b[2J"}
    text = shown(summary)
    assert "\x1b" not in text


def test_the_caption_explains_perplexity_only_where_there_is_one():
    summary = small()
    assert "less is better" in shown(summary)
    summary["evaluation"]["tasks"].pop()
    assert "less is better" not in shown(summary)


def test_the_page_names_the_dtype_and_the_controls_that_are_uninformative(text):
    assert text.count("<dd>float32</dd>") == 1
    assert ", uninformative</td>" not in text
    summary = small(dtype="bfloat16")
    summary["evaluation"]["tasks"][1]["baseline"]["result"] = {"value": 0.0, "low": 0.0, "high": 0.13}
    found = page(summary)
    assert "<dt>weights in</dt><dd>bfloat16</dd>" in found
    assert found.count(", uninformative</td>") == 1
    both = isolation.report(made.summary(small(dtype="bfloat16") | {"isolation": made.isolation()}))
    facts = dict(next(block for block in both.blocks() if block.kind == "facts").facts)
    assert (facts["weights in"], facts["weights in the evaluation"]) == ("float32", "bfloat16")
