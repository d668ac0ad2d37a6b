"""What a layer study claims: rows made for each outcome of its rules."""

import pytest
from made import form, records, scores, study, valid

from lesion.report import wording
from lesion.report.claims import MOST
from lesion.studies.ablation import claims
from lesion.studies.ablation.analyses import unfinished
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.result import Material


def told(summary) -> list[str]:
    """The claims of all rules, the first as the page begins with it."""
    material = Material(summary)
    rules = (
        claims.unedited, claims.which_blocks, claims.what_rises, claims.form_or_choice, claims.what_was_decided,
    )  # fmt: skip
    made = [claim for rule in rules for claim in rule(material)]
    assert all(len(claim.sentences) <= MOST for claim in made)
    return [claim.text.replace(wording.SPACE, " ") for claim in made]


def first(summary) -> str:
    return told(summary)[0].partition(". ")[0] + "."


def test_the_answer_names_the_task_that_needs_a_block_and_those_that_it_spares():
    assert first(study(models=("base",))[0]) == "Block 2 is critical for sums and spares facts."


def test_the_loss_follows_with_both_accuracies_and_their_intervals():
    assert "on sums falls from 90.0 % [59.6, 98.2] to 0.0 % [0.0, 27.8]" in told(study(models=("base",))[0])[0]


def test_a_task_that_is_not_shown_to_be_spared_is_not_said_to_do_without_a_block():
    summary = form(models=("base",), tasks=("sums", "facts"))
    for cell in summary["models"][0]["tasks"][1]["cells"][1:]:
        cell["spared"] = False
    assert first(valid(summary)) == "Block 2 is critical for sums."


def test_a_task_that_falls_too_is_said_not_to_be_told_apart():
    summary = form(models=("base",), tasks=("capitals", "days"))
    days = summary["models"][0]["tasks"][1]["cells"][2]
    days |= {**scores(3, 10), "spared": False, "drop": {"value": 0.6, "low": 0.3, "high": 0.9}}
    summary["models"][0]["tasks"][0]["cells"][2] |= {"critical": True}
    capitals = summary["models"][0]["tasks"][0]["cells"][2]
    capitals |= {**scores(0, 10), "drop": {"value": 0.9, "low": 0.6, "high": 1.0}}
    text = told(valid(summary))[0]
    assert text.startswith("Block 2 is critical for capitals.")
    apart = "There days falls too, from 90.0 % to 30.0 %: whether by less than capitals cannot be told."
    assert text.endswith(apart)
    days["drop"] |= {"p": 0.004, "p_corrected": 0.016}  # that it falls is shown, and said once
    assert " ".join(told(valid(summary))).count("days") == 1


def test_a_task_that_one_model_tells_apart_is_not_said_to_be_untold_for_both():
    summary = form(tasks=("sums", "facts"))
    cells = [model["tasks"][task]["cells"] for model in summary["models"] for task in (0, 1)]
    cells[3][2] |= {**scores(8, 10), "spared": False, "drop": {"value": 0.1, "low": -0.1, "high": 0.4}}
    assert any("block 2 in child facts falls too, from 90.0 % to 80.0 %" in text for text in told(valid(summary)))
    cells[2][2]["apart"] = [{"task": "facts", "difference": {"value": 0.8, "low": 0.4, "high": 1.0}}]
    assert not any("falls too" in text for text in told(valid(summary)))


def test_a_task_that_falls_at_another_block_than_that_of_the_example_has_its_block_named():
    summary = form(models=("base",), tasks=("sums", "facts"))
    sums, facts = (task["cells"] for task in summary["models"][0]["tasks"])
    sums[3] |= {**scores(1, 10), "critical": True, "drop": {"value": 0.8, "low": 0.5, "high": 0.9}}
    facts[3] |= {**scores(7, 10), "spared": False, "drop": {"value": 0.2, "low": -0.1, "high": 0.5}}
    sums[2] |= {"truncated": 0.0}
    text = told(valid(summary))[0]
    assert "Without block 2 accuracy on sums falls" in text
    falls = "Without block 3 facts falls too, from 90.0 % to 70.0 %: whether by less than sums cannot be told."
    assert text.endswith(falls)


def test_a_larger_loss_whose_answers_are_cut_off_is_named_beside_the_example():
    summary = form(models=("base",), tasks=("sums", "facts"))
    sums, facts = (task["cells"] for task in summary["models"][0]["tasks"])
    for cells, right, cut in ((sums, 0, 0.9), (facts, 2, 0.0)):
        drop = {"value": 0.9 - right / 10, "low": 0.5, "high": 1.0}
        cells[2] |= {**scores(right, 10), "critical": True, "spared": False, "drop": drop, "truncated": cut}
    text = told(valid(summary))[0]
    assert "Without block 2 accuracy on facts falls" in text
    assert text.endswith(
        "90 % of the answers to sums hit the token limit (0 % without an edit): read them before you speak of"
        " a lost skill."
    )


def test_a_difference_of_the_relative_losses_is_said_of_a_task_that_is_not_spared():
    summary = form(models=("base",), tasks=("sums", "facts"))
    sums, facts = summary["models"][0]["tasks"]
    facts["cells"][2]["spared"] = False
    sums["cells"][2]["apart"] = [{"task": "facts", "difference": {"value": 0.6, "low": 0.2, "high": 0.9}}]
    assert first(valid(summary)) == "Block 2 is critical for sums, more than for facts."


def test_a_gain_that_its_corrected_test_supports_is_claimed():
    summary = form(models=("base",), tasks=("facts",))
    cell = summary["models"][0]["tasks"][0]["cells"][1]
    cell["drop"] |= {"value": -0.1, "p_corrected": 0.04}
    assert (
        "Without block 1 accuracy on facts rises from 90.0 % [59.6, 98.2] to 100.0 % [72.2, 100.0] (corrected p .04)."
        in told(valid(summary))
    )
    cell["drop"]["p_corrected"] = 0.06
    assert not any("rises" in text for text in told(valid(summary)))


def test_the_example_of_a_loss_is_one_whose_answers_were_not_cut_off():
    summary = form(models=("base",), tasks=("sums",))
    cells = summary["models"][0]["tasks"][0]["cells"]
    cells[3] |= {**scores(1, 10), "critical": True, "drop": {"value": 0.8, "low": 0.6, "high": 1.0}}
    assert cells[2]["truncated"] == 1.0
    assert "Without block 3 accuracy on sums falls from 90.0 % [59.6, 98.2] to 10.0 %" in told(valid(summary))[0]


def test_answers_cut_off_at_the_limit_are_not_taken_for_a_lost_skill():
    assert "100 % of the answers to sums hit the token limit" in told(study(models=("base",))[0])[0]


def test_lost_answers_that_state_the_gold_answer_are_said_where_nothing_is_called_critical():
    summary = form(models=("base",), tasks=("sums",))
    cell = summary["models"][0]["tasks"][0]["cells"][2]
    cell |= {"critical": False, "stated": 7, "lost": 9}
    cell["drop"] |= {"p_corrected": 0.001}
    (claim,) = told(valid(summary))
    assert claim.startswith("No block is shown to be critical for sums.")
    assert "Without block 2, 7 of the 9 answers lost on sums state the gold answer" in claim
    cell["stated"] = 1
    assert "state the gold answer" not in told(valid(summary))[0]


def test_a_loss_that_is_shown_and_not_its_size_is_said():
    summary = form(models=("base",), tasks=("sums",))
    cells = summary["models"][0]["tasks"][0]["cells"]
    cells[1] |= {**scores(5, 10), "critical": False, "spared": False}
    cells[1]["drop"] = {"value": 0.4, "low": 0.1, "high": 0.7, "p_corrected": 0.04}
    unsized = (
        "Without block 1 accuracy on sums falls too, from 90.0 % to 50.0 %: whether by more than half cannot be told."
    )
    assert unsized in told(valid(summary))[0]
    cells[1]["drop"]["p_corrected"] = 0.06
    assert "falls too" not in told(valid(summary))[0]


@pytest.mark.parametrize("task", [0, 1])
def test_a_loss_that_is_shown_is_said_beside_a_task_that_cannot_be_told(task):
    summary = form(models=("base",))
    unable(summary, 0, 1)
    cell = summary["models"][0]["tasks"][task]["cells"][1]
    cell |= {"critical": False, "spared": False}
    cell["drop"] = {"value": 0.4, "low": 0.1, "high": 0.7, "p_corrected": 0.04}
    first, second, *_ = told(valid(summary))
    assert first.endswith("What is critical cannot be told for facts (3 of 20 right, 7 are needed).")
    assert second.startswith(f"Without block 1 accuracy on {('sums', 'facts')[task]} falls too, from")


def test_that_a_spared_task_is_multiple_choice_is_said_where_the_lost_one_is_written():
    summary = form(models=("base",), tasks=("sums", "facts"))
    sums, facts = summary["models"][0]["tasks"]
    facts["guessing"] = 0.25
    assert first(valid(summary)) == "Block 2 is critical for sums and spares facts (multiple choice)."
    sums["guessing"] = 0.25
    assert first(valid(summary)) == "Block 2 is critical for sums and spares facts."


def test_prompts_without_the_chat_template_that_a_model_has_are_said_where_nothing_is_right():
    summary = form(models=("base",), tasks=("sums",))
    unable(summary, 0, 0)
    assert "chat" not in told(valid(summary))[0]
    summary["models"][0]["tasks"][0]["without_chat"] = True
    assert "The model has a chat template, and the prompts were sent without it" in told(valid(summary))[0]


def test_what_all_models_share_is_said_once_and_a_model_of_which_more_holds_follows():
    texts = told(study()[0])
    assert texts[0].startswith("In both models block 2 is critical for sums and spares facts.")
    assert not any(text.startswith(("base:", "child:")) for text in texts)
    summary = form()
    summary["models"][1]["tasks"][0]["cells"][1]["critical"] = True
    texts = told(valid(summary))
    assert [text.partition(":")[0] for text in texts[1:2]] == ["child"]


def test_a_model_of_which_only_more_tasks_are_spared_is_not_said_again():
    summary = form()
    summary["models"][0]["tasks"][1]["cells"][2]["spared"] = False
    texts = told(valid(summary))
    assert texts[0].startswith("In both models block 2 is critical for sums.")
    assert not any(text.startswith(("base:", "child:")) for text in texts)


def test_blocks_of_models_of_different_depth_are_not_compared_by_their_number():
    summary = form(models=("a", "b", "c"))
    for task in summary["models"][2]["tasks"]:
        task["cells"].pop()
    texts = told(valid(summary))
    depth = len(summary["models"][0]["tasks"][0]["cells"])
    assert texts[0].startswith(f"In both models of {depth} blocks, block 2 is critical for sums")
    assert not any("all 3 models" in text for text in texts)


def test_the_answer_names_every_shared_block_also_those_critical_for_every_task():
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"][0]["critical"] = True
    assert first(valid(summary)) == (
        "In both models block 2 is critical for sums and spares facts; block 0 is critical for every task."
    )


def test_an_answer_of_more_words_than_allowed_leaves_out_what_is_spared_and_then_the_less_selective_places(monkeypatch):
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"][0]["critical"] = True
    monkeypatch.setattr(claims, "WORDS", 14)
    assert first(valid(summary)) == "In both models block 2 is critical for sums; block 0 for every task."
    monkeypatch.setattr(claims, "WORDS", 8)
    assert first(valid(summary)) == "In both models block 2 is critical for sums; others stand in the chart."


def test_blocks_of_one_task_are_named_together_where_there_is_no_room_for_what_they_spare(monkeypatch):
    summary = form(models=("base",))
    sums, facts = summary["models"][0]["tasks"]
    sums["cells"][0] |= {"critical": True, "drop": {"value": 0.8}}
    facts["cells"][0]["spared"] = False
    assert first(valid(summary)) == "Block 0 is critical for sums; block 2 is critical for sums and spares facts."
    monkeypatch.setattr(claims, "WORDS", 9)
    assert first(valid(summary)) == "Blocks 0 and 2 are critical for sums."


def test_a_unit_or_a_factor_is_said_of_the_loss_and_of_what_is_not_critical():
    summary = form(models=("base",), tasks=("sums",))
    for cell in summary["models"][0]["tasks"][0]["cells"]:
        cell |= {"unit": "attention", "factor": 0.5}
    assert "With the attention of block 2 scaled by 0.5 accuracy on sums falls from" in told(valid(summary))[0]
    summary["models"][0]["tasks"][0]["cells"][2]["critical"] = False
    assert "No block's attention is shown to be critical for sums." in told(valid(summary))[0]


def test_models_that_share_nothing_are_said_to_share_nothing():
    summary = form()
    summary["models"][1]["tasks"][0]["cells"][2]["critical"] = False
    assert first(valid(summary)) == "In both models no block is shown to be critical for the same task."


def test_where_nothing_is_critical_the_largest_drop_is_said():
    text = told(study(models=("base",), tasks=("facts",))[0])[0]
    assert text.startswith("No block is shown to be critical for facts. The largest drop is ")


def test_a_layer_measured_on_one_task_only_is_not_called_selective():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    assert "spares" not in told(valid(summary))[0]


def test_what_is_missing_is_told_per_gap_and_nothing_of_a_complete_study():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    answers, items = records(models=("base",))
    fourth = (answers["edit"] == "3×0") & (answers["task"] == "sums")
    kept = answers[~fourth | (answers["item"].str[-1].astype(int) < 4)]
    missing = [line.replace(wording.SPACE, " ") for line in unfinished.missing(Material(valid(summary), kept, items))]
    assert missing == ["base on sums: block 3: 4 of 10 items.", "base on facts: block 2 not measured."]
    assert unfinished.missing(Material(*study())) == []


def unable(summary, model: int, task: int) -> None:
    """Make a model have 3 of 20 items of a task right, which is too few for any cut of 4 to be critical."""
    result = summary["models"][model]["tasks"][task]
    result["items"], result["baseline"] = 20, scores(3, 20)
    # Losing all three has a chance of 2^-3 each way: four corrected tests cannot reach .05.
    assert 4 * 0.5**3 > 0.05
    reach = {"unit": "block", "factor": 0.0, "tests": 4, "right": 3, "fewest_right": 7, "power": 0.8}
    result["sensitivity"] = [{**reach, "smallest_loss": None, "shares": []}]
    for cell in result["cells"]:
        cell["critical"] = False


def test_of_a_task_that_the_model_cannot_do_nothing_is_told():
    summary = form(models=("base",))
    unable(summary, 0, 1)
    text = told(valid(summary))[0]
    assert text.startswith("Block 2 is critical for sums.")
    assert text.endswith("What is critical cannot be told for facts (3 of 20 right, 7 are needed).")


def test_what_cannot_be_told_is_said_once_whatever_the_edits():
    summary = form(models=("base",), tasks=("facts",))
    unable(summary, 0, 0)
    (result,) = summary["models"][0]["tasks"]
    result["cells"] += [cell | {"factor": 0.5} for cell in result["cells"]]
    result["sensitivity"] += [reach | {"factor": 0.5} for reach in result["sensitivity"]]
    assert told(valid(summary)) == ["What is critical cannot be told for facts (3 of 20 right, 7 are needed)."]


def test_what_models_share_leaves_out_a_task_that_one_of_them_cannot_do():
    summary = form()
    unable(summary, 1, 1)
    texts = told(valid(summary))
    assert texts[0].startswith("In both models block 2 is critical for sums.")
    assert texts[0].endswith("What is critical cannot be told for facts (3 of 20 right, 7 are needed).")
    assert texts[1].startswith("base: Block 2 is critical for sums and spares facts.")


def test_of_three_tasks_two_are_not_every_task():
    summary = form(models=("base",), tasks=("sums", "sums2", "facts"))
    summary["models"][0]["tasks"][1]["cells"] = summary["models"][0]["tasks"][0]["cells"]
    unable(summary, 0, 2)
    assert first(valid(summary)) == "Block 2 is critical for sums and sums2."


def guessed(summary, task: int, guessing: float) -> None:
    """Make the model have 11 of 20 items of a task right, which guessing would give, too."""
    result = summary["models"][0]["tasks"][task]
    result |= {"items": 20, "baseline": scores(11, 20), "guessing": guessing}


def test_of_a_task_near_guessing_nothing_is_told():
    summary = form(models=("base",))
    guessed(summary, 1, 0.5)
    assert told(valid(summary))[0].endswith(
        "What is critical cannot be told for facts (11 of 20 right, near guessing)."
    )
    guessed(summary, 1, 0.2)
    assert "guessing" not in told(valid(summary))[0]


def test_the_notes_stand_beside_the_verdict_in_a_notebook(tmp_path):
    summary, answers, items = study()
    html = AblationResult(tmp_path, summary, stored=(answers, items))._repr_html_()
    assert html.index("In both models block 2") < html.index("Note: A note.") < html.index("<svg")


@pytest.mark.parametrize(
    ("p_lost", "p_kept", "said"),
    [
        (1.0, 0.011, "mostly the form of the answers to sums changes."),
        (0.011, 1.0, "the choice among the rivals of sums is lost as well."),
        (0.4, 0.4, None),
    ],
)
def test_whether_the_choice_among_rivals_goes_too_is_claimed_by_its_own_test(p_lost, p_kept, said):
    summary = form(models=("base",), tasks=("sums",))
    task = summary["models"][0]["tasks"][0]
    task["forced"] = {"items": 10, "accuracy": {"value": 0.96}, "guessing": 0.5}
    accuracy = {"value": 0.78, "low": 0.695, "high": 0.846}
    task["cells"][2]["forced"] = task["forced"] | {"accuracy": accuracy, "p_lost": p_lost, "p_kept": p_kept}
    made = claims.form_or_choice(Material(valid(summary)))
    if said is None:
        assert made == ()
        return
    (claim,) = made
    assert claim.sentences[0].replace(wording.SPACE, " ") == f"Without block 2 {said}"
    assert "from 96.0 % to 78.0 % [69.5, 84.6]" in claim.sentences[1].replace(wording.SPACE, " ")


def test_before_any_cut_the_unedited_model_is_told_and_before_that_nothing(tmp_path):
    summary = form(models=("base",), tasks=("sums",))
    summary["models"][0]["tasks"][0]["cells"] = []
    assert told(valid(summary)) == [
        "Unedited, 90.0 % [59.6, 98.2] of 10 items of sums are right; no cut has been measured yet."
    ]
    assert told(valid(form((), ()))) == ["Nothing has been measured yet."]
    summary = form(models=("base",), tasks=("days", "sums"))
    summary["models"][0]["tasks"][0]["cells"] = []
    result = AblationResult(tmp_path, valid(summary))
    assert "critical for sums" in result.verdict
    assert any("no cut has been measured yet" in claim for claim in result.findings[1:])
