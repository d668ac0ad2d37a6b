"""What is claimed of an isolation and its evaluation: each rule's outcomes, and only what the intervals carry."""

import made_isolation as made
import pytest

from lesion.report import wording
from lesion.studies.isolation import claims
from lesion.studies.isolation.evaluation import measured
from lesion.studies.isolation.result import Isolation


def said(every):
    return " ".join(claim.text for claim in every).replace(wording.SPACE, " ")


def skill(values):
    evaluation = made.evaluated(values)
    return claims.what_the_skill_loses(evaluation, measured(evaluation))


def only(method, **parts):
    """One edit of one method, parts of whose cell on the skill are changed."""
    values = made.evaluation(boost=False)
    key = made.key(method, 0.05)
    values["edits"] = [edit for edit in values["edits"] if edit["edit"] == key]
    values["choice"] = None
    for task in values["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    cell = values["tasks"][0]["cells"][0]
    for name, value in parts.items():
        cell[name] = value if value is None else cell[name] | value
    values["selectivity"] = [entry for entry in values["selectivity"] if entry["edit"] == key]
    return values


def floored(values, *tasks, chance=0.0, kind="generate"):
    """The controls with the unedited model at 0 to 13.3 % (0 of 25 right) above chance."""
    for task in values["tasks"]:
        if task["name"] in tasks:
            task["baseline"]["result"] = {"value": chance, "low": chance, "high": chance + 0.133}
            task |= {"chance": chance, "kind": kind}
    return values


ALONE = "from 88.0 % to 20.0 %, more than any informative control and more than under random weights."


def test_an_edit_beyond_random_weights_and_every_control_takes_the_skill_alone_and_the_claim_rests_on_its_lines():
    (claim,) = skill(only("mathneuro"))
    text = said([claim])
    assert text.startswith(f"Without the 44,236 weights that MathNeuro selects, primer:arithmetic falls {ALONE}")
    assert "(corrected p < .0001); the difference to random weights (3 draws) is +60.0 points [+55.0, +65.0]." in text
    assert {line.edit for line, _ in claim.rows} == {made.key("mathneuro", 0.05)}


def test_an_edit_that_takes_more_from_a_control_is_not_said_to_take_the_skill_alone():
    text = said(skill(only("wanda")))
    assert "but not shown to be more than primer:atlas loses or than primer:reading loses." in text
    assert "running text suffers too" not in text.partition("Running")[0] or "Running text suffers too" in text


@pytest.mark.parametrize(
    ("low", "high", "alone"), [(0.01, 0.2, True), (0.0, 0.2, False), (-0.1, 0.2, False), (-0.3, -0.1, False)]
)
def test_beyond_random_weights_needs_an_interval_above_zero(low, high, alone):
    text = said(skill(only("mathneuro", random={"draws": 2, "beyond": {"value": 0.1, "low": low, "high": high}})))
    assert (ALONE in text) == alone
    assert ("but not shown to be more than under random weights." in text) == (not alone)


def test_without_random_controls_nothing_is_said_to_take_the_skill_alone():
    text = said(skill(only("mathneuro", random=None)))
    assert ALONE not in text
    assert "no random control was measured" in text


@pytest.mark.parametrize(
    "change",
    [{"value": 0.02, "low": -0.01, "high": 0.05}, {"p_corrected": 0.051}, {"p_corrected": None},
     {"low": None, "high": None}],
)  # fmt: skip
def test_a_loss_needs_an_interval_above_zero_and_a_small_corrected_p(change):
    assert "20.0 %: not shown to be a loss." in said(skill(only("mathneuro", change=change)))


def test_nothing_is_said_of_a_skill_without_a_drop():
    assert not skill(only("mathneuro", change={"value": None}))


def boosted():
    """A boost that gains 7 points."""
    values = made.evaluation() | {"choice": None}
    key = made.key("mathneuro", 0.05, 1.1)
    values["edits"] = [edit for edit in values["edits"] if edit["edit"] == key]
    for task in values["tasks"]:
        task["cells"] = [cell for cell in task["cells"] if cell["edit"] == key]
    cell = values["tasks"][0]["cells"][0]
    cell["result"]["value"] = 0.95
    cell["change"] |= {"value": -0.07, "low": -0.1, "high": -0.04, "p_corrected": 0.001}
    cell["random"]["beyond"] = {"value": -0.06, "low": -0.1, "high": -0.02}
    values["selectivity"] = [entry for entry in values["selectivity"] if entry["edit"] == key]
    for entry in values["selectivity"]:
        entry["difference"] = {"value": -0.09, "low": -0.13, "high": -0.05}
    return values, cell


def test_a_boost_is_judged_by_gains():
    text = said(skill(boosted()[0]))
    assert "rises from 88.0 % to 95.0 %, more than any informative control and more than under random weights." in text
    assert "corrected p .001); the difference to random weights (3 draws) is +6.0 points [+2.0, +10.0]." in text


@pytest.mark.parametrize(("low", "high", "alone"), [(-0.08, -0.02, True), (-0.08, 0.02, False)])
def test_the_block_that_a_boost_is_compared_with_stands_beside_the_gain(low, high, alone):
    values, cell = boosted()
    values["edits"].append(
        values["edits"][0] | {"edit": "13×1.1", "label": "block 13", "method": "custom", "keep": None, "repeat": None,
                              "achieved": None, "rival_of": values["edits"][0]["edit"]}
    )  # fmt: skip
    cell["rivals"] = [
        {"edit": "13×1.1", "result": {"value": 0.9}, "beyond": {"value": -0.05, "low": low, "high": high}}
    ]
    text = said(skill(values))
    assert ("more than under random weights and whole blocks." in text) == alone
    assert ("but not shown to be more than under the whole block or MLP." in text) == (not alone)
    assert f"Block 13, ×1.1 reaches 90.0 % (the boost +5.0 points [{'+2.0' if alone else '−2.0'}, +8.0])." in text


def test_it_is_said_when_no_control_has_to_be_generated():
    assert "no control is generated" not in said(skill(only("mathneuro"))).lower()
    values = only("mathneuro")
    for task in values["tasks"][1:3]:
        task["kind"] = "choose"
    assert "no control is generated, so that damage to all generation is not ruled out" in said(skill(values))


@pytest.mark.parametrize(
    ("rates", "text"),
    [({"truncated": 0.6}, "60 % of the answers hit the token limit"),
     ({"unparsed": 0.7}, "70 % of the answers cannot be read")],
)  # fmt: skip
def test_losses_that_may_be_of_stopping_or_reading_are_named(rates, text):
    assert text in said(skill(only("mathneuro", rates=rates)))
    assert text not in said(skill(only("mathneuro")))


@pytest.mark.parametrize(
    ("low", "random", "suffers"),
    [(1.75, 1.1, True), (1.75, 1.8, False), (1.75, None, True), (1.04, 1.0, False), (1.051, 1.0, True)],
)
def test_running_text_that_gets_worse_than_under_random_weights_is_named(low, random, suffers):
    values = only("mathneuro")
    (cell,) = values["tasks"][3]["cells"]
    cell["change"] = {"value": 1.99, "low": low, "high": 2.27}
    cell["random"] = None if random is None else {"draws": 3, "mean": 3.2 * random, "lowest": 3, "highest": 9}
    expected = f"unning text suffers too, perplexity ×1.99 [{low:.3g}, 2.27] on primer:text"
    assert (expected in said(skill(values))) == suffers


def test_a_control_at_the_floor_does_not_count_and_without_any_the_skill_alone_cannot_be_told():
    assert ALONE in said(skill(floored(only("mathneuro"), made.CONTROLS[0])))
    text = said(skill(floored(only("mathneuro"), *made.CONTROLS, chance=0.25, kind="choose")))
    assert "20.0 %; whether other tasks lose as much cannot be told." in text
    assert text.endswith("; no informative control was answered.")
    values = only("mathneuro")
    del values["tasks"][1:3]
    assert "whether other tasks lose as much cannot be told" in said(skill(values))


def test_a_control_not_yet_answered_under_an_edit_withholds_the_claim():
    values = only("mathneuro")
    values["selectivity"].pop()
    assert "but not shown to be more than primer:reading loses." in said(skill(values))


@pytest.mark.parametrize(
    ("low", "high", "p", "shown"),
    [(0.01, 0.03, 0.01, True), (-0.02, 0.03, 0.8, False), (-0.05, -0.01, 0.01, True), (0.01, 0.03, 0.06, False)],
)
def test_the_chosen_edit_is_judged_by_test_items(low, high, p, shown):
    values = made.evaluation()
    values["choice"]["gain"] = {"value": 0.005, "low": low, "high": high, "p": p}
    text = said(claims.what_the_chosen_edit_does(made.evaluated(values)))
    assert text.startswith("On 200 test items that chose nothing, MathNeuro, share 5 %, ×1.1 takes primer:arithmetic")
    assert ("from 88.0 % to 88.5 %: not shown to be a change." in text) == (not shown)
    assert "on the 100 items that chose it among 3 edits +3.0 points." in text


def test_an_uninformative_control_is_not_said_to_be_spared_by_the_choice():
    values = made.evaluation()
    assert "Primer:atlas changes by −1.0 points" in said(claims.what_the_chosen_edit_does(made.evaluated(values)))
    floored(values, made.CONTROLS[0])
    assert "atlas" not in said(claims.what_the_chosen_edit_does(made.evaluated(values)))


def without_roles(**change):
    values = made.evaluation(boost=False) | {"choice": None}
    for task in values["tasks"]:
        task["role"] = None
        for cell in task["cells"]:
            cell["change"] |= change
    evaluation = made.evaluated(values)
    return claims.what_changes_most(evaluation, measured(evaluation))


def test_without_a_skill_the_largest_loss_of_every_task_is_said_or_the_largest_gain():
    first, *_ = without_roles()
    text = said([first])
    assert text.startswith("Without the 132,710 weights that Wanda selects, primer:arithmetic falls from 88.0 % to")
    assert "The change is −88.0 points [−92.0, −84.0] (corrected p < .0001), the largest of 12 edits; under" in text
    gains = without_roles(value=-0.02, low=-0.04, high=0.1, p_corrected=0.001)
    assert all("not shown to be a change." in claim.sentences[0] for claim in gains)
    assert "The change is +2.0 points" in said(gains)


def test_a_change_that_is_shown_is_said_before_those_that_are_not():
    values = made.evaluation(boost=False) | {"choice": None}
    for task in values["tasks"]:
        task["role"] = None
        for cell in task["cells"]:
            cell["change"] |= {"value": 0.02, "low": -0.01, "high": 0.05, "p": 0.3, "p_corrected": 1.0}
    gains = {"value": -0.2, "low": -0.3, "high": -0.1, "p": 1e-6, "p_corrected": 1e-5}
    values["tasks"][1]["cells"][0]["change"] |= gains
    evaluation = made.evaluated(values)
    first, *others = claims.what_changes_most(evaluation, measured(evaluation))
    assert values["tasks"][1]["name"] in first.sentences[0]
    assert "not shown" not in first.sentences[0]
    assert "+20.0 points" in said([first])
    assert others
    assert all("not shown to be a change" in claim.sentences[0] for claim in others)


def test_without_an_edit_the_unedited_model_is_said_and_without_an_answer_that_nothing_is_measured():
    values = made.evaluation() | {"edits": [], "selectivity": [], "choice": None}
    for task in values["tasks"]:
        task["cells"] = []
    text = said(claims.what_the_model_can(made.evaluated(values)))
    assert "Unedited, 88.0 % [82.8, 91.8] of 200 items of primer:arithmetic are right." in text
    assert "Unedited, the perplexity of primer:text is 3.2 [3.1, 3.3] (60 items)." in text
    assert "Nothing has been measured" in said(claims.what_the_model_can(made.evaluated(values | {"tasks": []})))


def test_where_the_weights_lie_is_said_in_counts():
    text = said(claims.where_the_weights_lie(Isolation.model_validate(made.isolation())))
    assert "magnitude, share 15 %: 228,033 of 1,540,096 weights (14.81 %) are selected, as many in every block." in text


@pytest.mark.parametrize("repeats", [5, 2])
def test_what_other_texts_select_is_said_at_the_most_texts(repeats):
    values = made.isolation()
    if repeats == 2:
        for entry in values["overlaps"]:
            entry |= {"repeats": 2, "iou": entry["iou"][2:3], "mean": {"value": entry["mean"]["value"]}}
    text = said(claims.what_other_texts_select(Isolation.model_validate(values)))
    interval = "" if repeats == 2 else " [0.94, 0.96]"
    assert f"Selections from {repeats} draws of 500 texts share 0.95{interval}" in text
    assert ("one pair, no interval" in text) == (repeats == 2)
