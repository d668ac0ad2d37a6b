"""What is said of an isolation: only what the intervals carry."""

import re

import made_isolation as made
import pytest

from lesion.report import wording
from lesion.studies.isolation import findings
from lesion.studies.isolation.evaluation import Choice
from lesion.studies.isolation.result import Isolation


def told(summary):
    every = findings.findings(made.summary(summary))
    sentences = [sentence for one in every for sentence in (*one.headline, *one.sentences)]
    return " ".join(sentences).replace(wording.SPACE, " ")


def selected(isolation):
    return " ".join(findings.selected(Isolation.model_validate(isolation))).replace(wording.SPACE, " ")


def only(method, **parts):
    """One edit of one method, parts of whose cell on the skill are changed."""
    summary = {"evaluation": made.evaluation(boost=False)}
    found = summary["evaluation"]
    key = made.key(method, 0.05)
    found["edits"] = [edit for edit in found["edits"] if edit["edit"] == key]
    found["choice"] = None
    for task in found["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    cell = found["tasks"][0]["cells"][0]
    for name, value in parts.items():
        cell[name] = value if value is None else cell[name] | value
    found["selectivity"] = [entry for entry in found["selectivity"] if entry["edit"] == key]
    return summary


def test_a_selective_method_is_named_with_its_intervals():
    text = told(only("mathneuro"))
    assert "MathNeuro hurts primer:arithmetic more than as many random weights do, and more than it hurts" in text
    assert "hurts every informative control." in text
    assert ": 88.0 % to 20.0 %, a loss of 68.0 points [64.0, 72.0], p corrected < .0001." in text
    assert "Beyond as many random weights (3 draws): +60.0 points [55.0, 65.0]." in text
    assert "Beyond primer:atlas (drop 10.0 [6.0, 14.0]): +58.0 points [51.0, 65.0]." in text


def test_a_method_that_hurts_everything_is_not_called_selective():
    text = told(only("wanda"))
    assert "No evidence that any edit hurts primer:arithmetic" in text
    assert "Less than primer:" in text
    assert ": −10.0 points [" in text


@pytest.mark.parametrize(
    ("low", "high", "selective"), [(0.01, 0.2, True), (0.0, 0.2, False), (-0.1, 0.2, False), (-0.3, -0.1, False)]
)
def test_beyond_random_is_claimed_only_when_the_interval_lies_above_zero(low, high, selective):
    text = told(only("mathneuro", random={"draws": 2, "beyond": {"value": 0.1, "low": low, "high": high}}))
    assert ("MathNeuro hurts" in text) == selective
    assert ("No evidence beyond as many random weights" in text) == (low <= 0 <= high)
    assert ("Less than as many random weights" in text) == (high < 0)


def test_without_random_controls_nothing_is_called_selective():
    text = told(only("mathneuro", random=None))
    assert "MathNeuro hurts" not in text
    assert "No random control was measured." in text


def test_a_drop_whose_interval_reaches_zero_is_no_evidence():
    text = told(only("mathneuro", change={"value": 0.02, "low": -0.01, "high": 0.05}))
    assert "a loss of 2.0 points [−1.0, 5.0], p corrected < .0001: no evidence of a loss." in text
    assert "MathNeuro hurts" not in text


def test_a_boost_is_judged_by_gains():
    summary = {"evaluation": made.evaluation()}
    assert "No evidence that any edit raises primer:arithmetic" in told(summary)
    found = summary["evaluation"]
    key = made.key("mathneuro", 0.05, 1.1)
    cell = next(cell for cell in found["tasks"][0]["cells"] if cell["edit"] == key)
    cell["result"]["value"] = 0.95
    cell["change"] |= {"value": -0.07, "low": -0.1, "high": -0.04, "p_corrected": 0.001}
    cell["random"]["beyond"] = {"value": -0.06, "low": -0.1, "high": -0.02}
    for entry in found["selectivity"]:
        if entry["edit"] == key:
            entry["difference"] = {"value": -0.09, "low": -0.13, "high": -0.05}
    text = told(summary)
    assert "MathNeuro raises primer:arithmetic more than as many random weights do, and more than it raises" in text
    assert "a gain of 7.0 points [4.0, 10.0], p corrected .001." in text
    assert "): +9.0 points [5.0, 13.0]." in text


def test_whole_blocks_are_named_as_rivals_of_the_edits_that_have_them_alone():
    found = made.evaluation()
    boost = made.key("mathneuro", 0.05, 1.1)
    found["edits"] = [edit for edit in found["edits"] if edit["edit"] == boost]
    block = found["edits"][0] | {"edit": "13×1.1", "label": "block 13", "method": "custom", "keep": None}
    block["achieved"] = None
    found["edits"].append(block)
    for task in found["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == boost]
    found["selectivity"] = [entry for entry in found["selectivity"] if entry["edit"] == boost]
    (cell,) = found["tasks"][0]["cells"]
    cell["change"] |= {"value": -0.07, "low": -0.1, "high": -0.04, "p_corrected": 0.001}
    cell["random"]["beyond"] = {"value": -0.06, "low": -0.1, "high": -0.02}
    for entry in found["selectivity"]:
        entry["difference"] = {"value": -0.09, "low": -0.13, "high": -0.05}
    for task in found["tasks"]:
        task["cells"] += [{**own, "edit": block["edit"]} for own in task["cells"]]
    found["selectivity"] += [{**entry, "edit": block["edit"]} for entry in found["selectivity"]]
    better = {"value": -0.05, "low": -0.08, "high": -0.02}
    cell["rivals"] = [{"edit": "7×1.1", "result": cell["result"], "beyond": better}]
    text = told({"evaluation": found | {"choice": None}})
    assert (
        "MathNeuro raises primer:arithmetic more than as many random weights and the whole block and MLP that" in text
    )
    assert "Block 13 raises primer:arithmetic more than the same change at random places does, and more than it" in text


def test_it_is_said_when_no_control_has_to_be_generated():
    summary = only("mathneuro")
    assert "No informative control is generated" not in told(summary)
    for task in summary["evaluation"]["tasks"][1:]:
        task["kind"] = "choose"
    assert "No informative control is generated" in told(summary)


def test_losses_by_running_into_the_token_limit_are_named():
    assert "hit the token limit" not in told(only("mathneuro"))
    assert "60 % of the answers hit the token limit" in told(only("mathneuro", rates={"truncated": 0.6}))


def test_answers_that_could_not_be_read_are_named_before_a_skill_is_called_lost():
    assert "could be parsed" not in told(only("mathneuro"))
    assert "70 % of the answers are unparsed" in told(only("mathneuro", rates={"unparsed": 0.7}))


@pytest.mark.parametrize(
    ("low", "high", "p", "verdict"),
    [(0.01, 0.03, 0.01, "a gain"), (-0.02, 0.03, 0.8, "no evidence of a change"),
     (-0.05, -0.01, 0.01, "a loss"), (0.01, 0.03, 0.06, "no evidence of a change")],
)  # fmt: skip
def test_the_choice_is_told_by_its_test_items(low, high, p, verdict):
    choice = made.choice() | {"gain": {"value": 0.005, "low": low, "high": high, "p": p}}
    text = findings.chosen(Choice.model_validate(choice), made.evaluated()).replace(wording.SPACE, " ")
    assert f": {verdict}. On the validation items" in text
    assert "On 200 test items: 88.0 % to 88.5 %, +0.5 points" in text


def test_without_roles_no_word_is_said_about_selectivity():
    summary = {"evaluation": made.evaluation(boost=False) | {"choice": None}}
    for task in summary["evaluation"]["tasks"]:
        task["role"] = None
    text = told(summary)
    assert "Selectivity is not judged" in text
    assert "primer:arithmetic: largest drop of 12 edits 88.0 points [84.0, 92.0], with Wanda, share 15 %" in text
    assert re.search(
        r"×0, p corrected < \.0001; under \d+ matched random controls accuracy is [\d–]+ %\. primer:atlas", text
    )


def test_where_every_edit_gains_the_largest_gain_is_told():
    summary = {"evaluation": made.evaluation(boost=False) | {"choice": None}}
    for number, task in enumerate(summary["evaluation"]["tasks"]):
        task["role"] = None
        for cell in task["cells"]:
            cell["change"] |= {
                "value": -0.02,
                "low": -0.04,
                "high": -0.01 if number == 0 else 0.1,
                "p_corrected": 0.001,
            }
    text = told(summary)
    assert "primer:arithmetic: largest gain of 12 edits 2.0 points [1.0, 4.0], with " in text
    assert "largest drop" not in text
    first, _, others = text.partition("primer:reading: ")
    assert "no evidence of a gain" in others
    assert "no evidence" not in first.partition("primer:arithmetic: ")[2].partition("primer:")[0]


def test_what_was_selected_is_told_in_counts():
    text = selected(made.isolation())
    assert (
        "12 selections of 1,540,096 scored weights, for primer:arithmetic against primer:atlas and primer:reading"
        in text
    )
    assert "MathNeuro, share 5 %, 500 texts each: IoU 0.95 (0.94 to 0.96) over" in text
    assert "Not scored: 2 parameters with 65,664 weights." in text
    assert "Magnitude, share 15 %: 228,033 weights, 14.81 %; the same in every block." in text


def floored(summary, *tasks, chance=0.0, kind="generate"):
    """The controls with the unedited model at 0 to 13.3 % (0 of 25 right) above chance."""
    for task in summary["evaluation"]["tasks"]:
        if task["name"] in tasks:
            task["baseline"]["result"] = {"value": chance, "low": chance, "high": chance + 0.133}
            task |= {"chance": chance, "kind": kind}
    return summary


def test_a_control_at_the_floor_is_not_counted_and_called_uninformative():
    summary = floored(only("mathneuro"), made.CONTROLS[0])
    summary["evaluation"]["tasks"].pop()  # no running text
    text = told(summary)
    assert "random weights do, and more than it hurts every informative control." in text
    assert "primer:atlas is uninformative: unedited 0.0 % [0.0, 13.3], chance 0 %." in text
    assert "primer:atlas (drop" not in text
    assert "primer:reading (drop" in text


@pytest.mark.parametrize(("low", "near"), [(0.45, True), (0.5, True), (0.51, False)])
def test_a_skill_whose_interval_holds_the_accuracy_of_guessing_is_called_near_it(low, near):
    summary = only("mathneuro")
    skill = summary["evaluation"]["tasks"][0]
    skill["baseline"]["result"] = {"value": 0.55, "low": low, "high": 0.65}
    skill["chance"] = 0.5
    sentence = "primer:arithmetic is near guessing (55.0 % unedited, 50 % by guessing): what an edit takes of it can"
    assert (sentence in told(summary)) == near


def test_without_an_informative_control_there_is_no_verdict_however_large_the_differences():
    text = told(floored(only("mathneuro"), *made.CONTROLS, chance=0.25, kind="choose"))
    assert "Whether any edit hurts primer:arithmetic selectively is unknown: no control is informative." in text
    assert "MathNeuro hurts it more than as many random weights." in text
    assert "chance 25 %." in text
    assert "every control" not in text
    assert "eyond primer" not in text


def test_with_running_text_as_the_only_control_there_is_no_verdict():
    summary = only("mathneuro")
    del summary["evaluation"]["tasks"][1:3]
    assert "is unknown: no control is informative." in told(summary)


def test_a_control_not_yet_answered_under_an_edit_withholds_the_verdict():
    summary = only("mathneuro")
    summary["evaluation"]["selectivity"].pop()
    assert "MathNeuro hurts" not in told(summary)
    assert "not all was measured" in told(summary)


@pytest.mark.parametrize(("p", "selective"), [(0.05, True), (0.051, False), (None, False)])
def test_the_verdict_needs_a_small_corrected_p_beside_its_intervals(p, selective):
    text = told(only("mathneuro", change={"p_corrected": p}))
    assert ("MathNeuro hurts" in text) == selective
    assert ("no evidence of a loss" in text) == (not selective)
    assert "p corrected .051: no evidence of a loss." in text or p != 0.051


@pytest.mark.parametrize(
    ("low", "random", "suffers"),
    [(1.75, 1.1, True), (1.75, 1.8, False), (1.75, None, True), (1.04, 1.0, False), (1.051, 1.0, True)],
)
def test_running_text_that_gets_worse_than_under_random_weights_is_named_in_the_headline(low, random, suffers):
    summary = only("mathneuro")
    (cell,) = summary["evaluation"]["tasks"][3]["cells"]
    cell["change"] = {"value": 1.99, "low": low, "high": 2.27}
    cell["random"] = None if random is None else {"draws": 3, "mean": 3.2 * random, "lowest": 3, "highest": 9}
    (finding, *_) = findings.findings(made.summary(summary))
    expected = f"With MathNeuro, running text suffers too (×1.99 [{low:.3g}, 2.27] on primer:text)."
    assert (expected in [line.replace(wording.SPACE, " ") for line in finding.headline]) == suffers
    assert ("running text suffers too" in finding.sentences[0]) == suffers


def test_running_text_under_an_edit_that_is_not_selective_is_named_in_its_own_sentence_only():
    (finding, *_) = findings.findings(made.summary(only("wanda")))
    assert "running text suffers too" in finding.sentences[0]
    assert not any("running text" in line for line in finding.headline)


def test_two_repeats_are_one_pair_without_a_spread():
    isolation = made.isolation()
    for entry in isolation["overlaps"]:
        entry |= {"repeats": 2, "iou": entry["iou"][2:3], "mean": {"value": entry["mean"]["value"]}}
    text = selected(isolation)
    assert "IoU 0.95 (one pair, no interval) over 2 repeats" in text


def test_an_uninformative_control_is_not_told_as_spared_by_the_choice():
    summary = floored({"evaluation": made.evaluation()}, made.CONTROLS[0])
    evaluation = made.evaluated(summary["evaluation"])
    assert "primer:atlas is uninformative." in findings.chosen(evaluation.choice, evaluation)


@pytest.mark.parametrize("lacking", ["drop", "interval", "random"])
def test_what_was_not_measured_is_said(lacking):
    parts = {
        "drop": {"change": {"value": None}},
        "interval": {"change": {"low": None, "high": None}},
        "random": {"random": {"beyond": {"value": None}}},
    }[lacking]
    text = told(only("mathneuro", **parts))
    assert "MathNeuro hurts" not in text
    assert {"drop": "", "interval": "without an interval", "random": "random weights (3 draws): no interval"}[
        lacking
    ] in text


def test_where_nothing_was_measured_it_is_said():
    assert told({"evaluation": None}) == "Nothing has been measured yet."
