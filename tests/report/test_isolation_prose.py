"""What is said of an isolation: only what the intervals carry."""

import copy

import made_isolation as made
import pytest

from lesion.report import isolation_prose, selection_prose, trials, wording


def told(summary):
    found = isolation_prose.findings(trials.evaluation(summary), summary.get("isolation") or {})
    sentences = [sentence for one in found for sentence in (*one.headline, *one.sentences)]
    return " ".join(sentences).replace(wording.SPACE, " ")


def only(method, **cells):
    """One edit of one method, whose cells on the skill are changed."""
    summary = {"evaluation": made.evaluation(boost=False)}
    found = summary["evaluation"]
    key = made.key(method, 0.05)
    found["edits"] = [edit for edit in found["edits"] if edit["edit"] == key]
    found["choice"] = None
    for task in found["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    found["tasks"][0]["cells"][0] |= cells
    found["selectivity"] = [entry for entry in found["selectivity"] if entry["edit"] == key]
    return summary


def test_a_selective_method_is_named_with_its_intervals():
    text = told(only("mathneuro"))
    assert "MathNeuro hurts primer:arithmetic more than as many random weights and more than every control." in text
    assert "from 88.0 % to 20.0 %, a drop of 68.0 points [64.0, 72.0]" in text
    assert "That is 60.0 points [55.0, 65.0] more than as many random weights (3 draws)." in text
    assert "primer:atlas drops 10.0 [6.0, 14.0]: primer:arithmetic loses 58.0 points [51.0, 65.0] more." in text


def test_a_method_that_hurts_everything_is_not_called_selective():
    text = told(only("wanda"))
    assert "No evidence that any edit hurts primer:arithmetic" in text
    assert "primer:arithmetic loses 10.0 points less than it" in text


@pytest.mark.parametrize(
    ("low", "high", "selective"), [(0.01, 0.2, True), (0.0, 0.2, False), (-0.1, 0.2, False), (-0.3, -0.1, False)]
)
def test_beyond_random_is_claimed_only_when_the_interval_lies_above_zero(low, high, selective):
    spread = {"draws": 2, "accuracy": 0.3, "lowest": 0.2, "highest": 0.4, "drop": 0.5, "beyond": 0.1}
    text = told(only("mathneuro", random=spread | {"beyond_low": low, "beyond_high": high}))
    assert ("MathNeuro hurts" in text) == selective
    assert ("No evidence of more loss than with as many random weights" in text) == (not selective)


def test_without_random_controls_nothing_is_called_selective():
    text = told(only("mathneuro", random=None))
    assert "MathNeuro hurts" not in text
    assert "Its matched random control was not measured." in text


def test_a_drop_whose_interval_reaches_zero_is_no_evidence():
    text = told(only("mathneuro", drop=0.02, drop_low=-0.01, drop_high=0.05))
    assert "a drop of 2.0 points [−1.0, 5.0]: no evidence of a loss." in text
    assert "MathNeuro hurts" not in text


def test_a_boost_is_judged_by_gains():
    summary = {"evaluation": made.evaluation()}
    assert "No evidence that any edit raises primer:arithmetic" in told(summary)
    found = summary["evaluation"]
    key = made.key("mathneuro", 0.05, 1.1)
    cell = next(cell for cell in found["tasks"][0]["cells"] if cell["edit"] == key)
    cell |= {"accuracy": 0.95, "drop": -0.07, "drop_low": -0.1, "drop_high": -0.04}
    cell["random"] |= {"beyond": -0.06, "beyond_low": -0.1, "beyond_high": -0.02}
    for entry in found["selectivity"]:
        if entry["edit"] == key:
            entry |= {"difference": -0.09, "low": -0.13, "high": -0.05}
    text = told(summary)
    assert "MathNeuro raises primer:arithmetic more than as many random weights and more than every control." in text
    assert "a gain of 7.0 points [4.0, 10.0]" in text
    assert "primer:arithmetic gains 9.0 points [5.0, 13.0] more." in text


def test_it_is_said_when_no_control_has_to_be_generated():
    summary = only("mathneuro")
    assert "No control has to be generated" not in told(summary)
    for task in summary["evaluation"]["tasks"][1:]:
        task["kind"] = "choose"
    assert "No control has to be generated" in told(summary)


def test_losses_by_running_into_the_token_limit_are_named():
    assert "hit the token limit" not in told(only("mathneuro"))
    assert "There 60 % of the answers hit the token limit" in told(only("mathneuro", truncated=0.6))


def test_answers_that_could_not_be_read_are_named_before_a_skill_is_called_lost():
    assert "nothing could be read" not in told(only("mathneuro"))
    assert "From 70 % of the answers nothing could be read" in told(only("mathneuro", unparsed=0.7))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.03, "a gain that chance does not explain"), (-0.02, 0.03, "no evidence of any change"),
     (-0.05, -0.01, "a loss")],
)  # fmt: skip
def test_the_choice_is_told_by_its_test_items(low, high, verdict):
    choice = made.choice() | {"gain_low": low, "gain_high": high}
    text = isolation_prose.chosen(choice).replace(wording.SPACE, " ")
    assert verdict in text
    assert "On 200 test items that had no part in the choice, accuracy goes from 88.0 % to 88.5 %" in text


def test_without_roles_no_word_is_said_about_selectivity():
    summary = {"evaluation": made.evaluation(boost=False) | {"choice": None}}
    for task in summary["evaluation"]["tasks"]:
        task["role"] = None
    text = told(summary)
    assert "nothing is said here about selectivity" in text
    assert "primer:arithmetic: the largest drop of 12 edits is 88.0 points [84.0, 92.0], with Wanda, keep 15 %" in text


def test_what_was_selected_is_told_in_counts():
    text = " ".join(selection_prose.selected(made.isolation())).replace(wording.SPACE, " ")
    assert (
        "12 selections of 1,540,096 scored weights, for primer:arithmetic against primer:atlas and primer:reading"
        in text
    )
    assert "MathNeuro, keep 5 %: sets found from 500 texts each agree to an IoU of 0.95 (0.94 to 0.96)" in text
    assert "2 parameters with 65,664 weights were not scored" in text
    assert "Magnitude, keep 15 %: 228,033 weights, 14.81 %; of every block the same share." in text


def test_the_strongest_edit_is_the_one_with_most_evidence():
    found = trials.evaluation({"evaluation": made.evaluation(boost=False)})
    (skill,) = found.skills
    best = isolation_prose.strongest(found, skill, [e for e in found.tried if e.method == "mathneuro"])
    assert (best.edit.keep, best.selective) == (0.05, True)


def test_prose_survives_every_missing_part():
    whole = made.evaluation()
    for task in copy.deepcopy(whole)["tasks"]:
        for name in ("drop", "drop_low", "random", "truncated", "ratio", "ratio_low"):
            summary = copy.deepcopy({"evaluation": whole})
            for cell in next(t for t in summary["evaluation"]["tasks"] if t["task"] == task["task"])["cells"]:
                cell[name] = None
            assert told(summary)
    for name in ("edits", "tasks", "selectivity", "choice"):
        told({"evaluation": whole | {name: []}} if name != "edits" else {"evaluation": {"edits": [], "tasks": []}})
