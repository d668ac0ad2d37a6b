"""The isolation's files: a page that asks for nothing and holds texts as texts, tables, figures, the summary."""

import io
import itertools
import json
import math

import made_isolation as made
import matplotlib.image
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing
from rich.console import Console

from lesion.errors import LesionError
from lesion.studies.isolation import report as isolation
from lesion.studies.isolation import tables as evaluation_tables


@pytest.fixture(scope="module")
def whole():
    return made.study()


@pytest.fixture(scope="module")
def text(whole):
    return isolation.page(whole, *made.answers(whole))


def small(**changes):
    """A summary with one edit, quick to draw."""
    found = made.evaluation(boost=False)
    found["edits"] = found["edits"][:1]
    key = found["edits"][0]["edit"]
    for task in found["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    found["selectivity"] = [entry for entry in found["selectivity"] if entry["edit"] == key]
    found["choice"] = None
    return {"evaluation": found | changes}


def test_a_whole_study_becomes_a_page_tables_and_figures(whole, tmp_path):
    few = whole | {"isolation": whole["isolation"] | {"selections": whole["isolation"]["selections"][:2]}}
    written = isolation.write(tmp_path / "deep", few, *made.answers(few))
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        "lesion.json",
        "report.html", "summary.json", "selections.csv", "overlap.csv", "evaluation.csv",
        "figures/tradeoff-prune.png", "figures/tradeoff-boost.png", "figures/consistency.png",
        "figures/distribution-mathneuro-0.001.png", "figures/distribution-mathneuro-0.01.png",
    }  # fmt: skip
    assert json.loads((written.parent / "summary.json").read_text("utf-8")) == few
    for path in (written.parent / "figures").iterdir():
        assert matplotlib.image.imread(io.BytesIO(path.read_bytes()))[..., :3].std() > 0


def test_any_of_the_summary_s_parts_may_be_absent(tmp_path):
    for name, summary in {
        "none": {},
        "isolation": {"isolation": {"model": "m", "skill": "s"}},
        "evaluation": {"evaluation": {"model": "m", "edits": [], "tasks": []}},
        "empty": {"isolation": None, "evaluation": None, "study": None, "notes": None},
    }.items():
        page = isolation.write(tmp_path / name, summary).read_text("utf-8")
        assert '<h2 id="findings-title">Findings</h2>' in page
        isolation.text_tables(summary)


def test_the_page_asks_for_nothing_outside_itself(text):
    assert_asks_for_nothing(text)


def test_hostile_names_add_no_element_and_no_attribute():
    def shape(value: str) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in Elements(value).found]

    def named(names):
        """The made study with every free text replaced by one of the names in turn."""
        following = itertools.cycle(names)
        summary = made.study()
        summary["study"] |= {"title": next(following), "name": next(following), "version": next(following)}
        summary["notes"] = list(names)
        isolated, evaluated = summary["isolation"], summary["evaluation"]
        isolated |= {"model": next(following), "skill": next(following), "controls": [next(following)]}
        for entry in isolated["coverage"] + isolated["texts"]:
            entry |= {key: next(following) for key in ("name", "reason", "data", "style", "role") if key in entry}
        for entry in isolated["selections"]:
            entry |= {"edit": next(following), "label": next(following), "method": next(following)}
            for matrix in entry["matrices"]:
                matrix["matrix"] = "mlp." + names[matrix["total"] % len(names)]
        tasks = {task["task"]: f"{i}{next(following)}" for i, task in enumerate(evaluated["tasks"])}
        for task in evaluated["tasks"]:
            task["task"] = tasks[task["task"]]
        for entry in evaluated["edits"]:
            entry |= {"label": next(following), "method": "custom" if entry["method"] == "wanda" else entry["method"]}
        for entry in evaluated["selectivity"]:
            entry |= {"skill": tasks[entry["skill"]], "control": tasks[entry["control"]]}
        answers, items = made.answers(summary, 2)
        return isolation.page(summary, answers.assign(text=next(following)), items.assign(question=next(following)))

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    for tag, _ in shape(hostile):
        assert tag not in ("img", "iframe", "object", "embed", "base")
    assert len(Elements(hostile).inside["script"]) == 2
    assert {(tag, *names) for tag, names in shape(hostile)} <= {
        (tag, *names) for tag, names in shape(named([f"tame{i}" for i in range(len(HOSTILE))]))
    }


def test_the_item_browser_carries_the_baseline_and_every_edit_but_no_random_control(whole, text):
    data = json.loads(Elements(text).inside["script"][0])
    tried = [edit["edit"] for edit in whole["evaluation"]["edits"] if edit["random_of"] is None]
    of_skill = [cell["edit"] for cell in data["cells"] if data["tasks"][cell["task"]]["name"] == made.SKILL]
    assert of_skill == ["baseline", *tried]
    assert made.TEXT not in [task["name"] for task in data["tasks"]]
    for cell in data["cells"]:
        task = data["tasks"][cell["task"]]["name"]
        for i, number in enumerate(cell["texts"]):
            assert data["texts"][number] == made.said(task, cell["edit"], i)
            assert cell["verdicts"][i] == ("1" if made.right(task, cell["edit"], i) else "0")
    assert "Answers under the random controls are left out" in text


def test_a_budget_limits_the_answers_carried(whole):
    answers, items = made.answers(whole)
    few = isolation.page(whole, answers, items, budget=1500)
    data = json.loads(Elements(few).inside["script"][0])
    assert all(1 <= len(task["items"]) < task["total"] for task in data["tasks"])
    assert 'id="choose-task"' not in isolation.page(whole, answers.iloc[:0], items)


def test_numbers_that_are_not_finite_are_null_in_the_summary_and_named_in_the_page(tmp_path):
    summary = small()
    summary["evaluation"]["tasks"][3]["cells"][0] |= {"perplexity": math.inf, "ratio": math.nan}
    page = isolation.write(tmp_path, summary).read_text("utf-8")
    cell = json.loads((tmp_path / "summary.json").read_text("utf-8"))["evaluation"]["tasks"][3]["cells"][0]
    assert (cell["perplexity"], cell["ratio"]) == (None, None)
    assert "no finite number came of it: primer:text under MathNeuro" in page
    assert "not finite" in shown(summary)


def test_repeats_are_drawn_as_thin_points_with_their_mean():
    found = made.evaluation(boost=False)
    keep = next(edit for edit in found["edits"] if edit["method"] == "mathneuro" and edit["keep"] == 0.05)
    again = keep | {"edit": "again", "repeat": 1}
    found["edits"].append(again)
    for task in found["tasks"]:
        cell = next(cell for cell in task["cells"] if cell["edit"] == keep["edit"])
        task["cells"].append(cell | {"edit": "again"})
    page = isolation.page({"evaluation": found})
    # Two repeats on three controls' panels and four tasks' sweeps; each trade-off panel in two widths, sweeps in one.
    assert page.count('class="repeat"') == 2 * (3 * 2 + 4)
    assert "repeat\N{NO-BREAK SPACE}1" in page


def test_a_control_that_no_edit_was_asked_on_has_no_empty_panel():
    summary = small()
    summary["evaluation"]["tasks"][1]["cells"] = []
    assert "<h3>primer:atlas" not in isolation.page(summary)
    assert "<h3>primer:reading" in isolation.page(summary)


def test_a_summary_of_another_form_is_an_error_that_says_what_to_do():
    summary = small()
    del summary["evaluation"]["edits"][0]["edit"]
    with pytest.raises(LesionError, match="Run the evaluation again on the same folder"):
        isolation.page(summary)


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        isolation.write(blocked, {})


def test_selections_have_a_row_per_matrix_whose_counts_add_up(whole):
    table = evaluation_tables.selections(whole)
    totals = table.groupby(["method", "keep"])[["selected", "total"]].sum()
    for entry in whole["isolation"]["selections"]:
        assert tuple(totals.loc[entry["method"], entry["keep"]]) == (entry["selected"], entry["total"])
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    assert read.loc[read["matrix"] == "head", "block"].isna().all()


def test_the_evaluation_has_a_row_per_task_and_edit_with_its_random_controls_beside_it(whole):
    table = evaluation_tables.cells(whole)
    assert len(table) == sum(len(task["cells"]) for task in whole["evaluation"]["tasks"])
    row = table[(table["task"] == made.SKILL) & (table["edit"] == made.key("mathneuro", 0.05))].iloc[0]
    assert (row["accuracy"], row["random_accuracy"], row["baseline_accuracy"]) == (0.2, 0.8, 0.88)
    assert row["drop"] == pytest.approx(row["baseline_accuracy"] - row["accuracy"])


def test_overlap_lists_every_pair(whole):
    table = evaluation_tables.overlap(whole)
    pairs = [[float(pair) for pair in row.split()] for row in table["iou"]]
    assert [sum(found) / len(found) for found in pairs] == pytest.approx(list(table["mean"]), abs=1e-6)


def shown(summary, width=140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(isolation.text_tables(summary))
    return console.file.getvalue()


def test_the_terminal_tells_result_drop_and_random_spread(whole):
    text = " ".join(shown(whole).replace("\N{NO-BREAK SPACE}", " ").split())
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
    summary["evaluation"]["tasks"][0]["cells"][0] |= {"truncated": 0.3, "unparsed": 0.04}
    text = shown(summary).replace("\N{NO-BREAK SPACE}", " ")
    assert "30 % cut off" in text
    assert "unread" not in text.split("From 5 %")[0]


def test_the_terminal_tells_the_choice_by_its_test_items(whole):
    text = " ".join(shown(whole).replace("\N{NO-BREAK SPACE}", " ").split())
    assert "The choice, tested Of 3 edits tried on 100 validation items" in text
    assert "MathNeuro, keep 5 %, ×1.1 was chosen. On 200 test items" in text
    assert "+0.5 points [−2.0, 3.0], p .8, no evidence of any change." in text
    assert "The choice" not in shown(small())


def test_a_task_name_too_long_for_its_column_shows_both_ends():
    summary = small()
    summary["evaluation"]["tasks"][1]["task"] = "mmlu:/a/folder/whose/name/is/long/sociology_test.csv"
    text = shown(summary, width=80)
    (heading,) = [line for line in text.splitlines() if "test.csv" in line]
    (name,) = [word for word in heading.split() if word.startswith("mm")]
    assert "…" in name
    assert "mmlu:/a/folder/whose/name/is/long/sociology_test.csv" in shown(summary, width=200)


def test_the_caption_explains_perplexity_only_where_there_is_one():
    summary = small()
    assert "less is better" in shown(summary)
    summary["evaluation"]["tasks"].pop()
    assert "less is better" not in shown(summary)


def test_the_page_names_the_dtype_and_the_controls_that_cannot_tell(whole, text):
    assert text.count("<dt>dtype</dt><dd>float32</dd>") == 1
    assert '<span class="soft">cannot tell</span>' not in text
    summary = small(dtype="bfloat16")
    summary["evaluation"]["tasks"][1]["baseline"] |= {"accuracy": 0.0, "low": 0.0, "high": 0.13}
    page = isolation.page(summary)
    assert "<dt>dtype</dt><dd>bfloat16</dd>" in page
    assert page.count('<span class="soft">cannot tell</span>') == 1
    both = isolation.page({"isolation": made.isolation()} | small(dtype="bfloat16"))
    assert "<dt>dtype of the evaluation</dt><dd>bfloat16</dd>" in both


def test_a_line_of_chance_has_its_key_only_where_one_is_drawn():
    summary = small()
    assert "</svg>chance</span>" not in isolation.page(summary)
    summary["evaluation"]["tasks"][1] |= {"kind": "choose", "chance": 0.25}
    assert "</svg>chance</span>" in isolation.page(summary)
