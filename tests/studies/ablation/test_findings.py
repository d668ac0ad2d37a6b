"""Findings in sentences."""

import json

from made import form, scores, study, valid

from lesion.report import wording
from lesion.report.blocks import PARTS, Figure, Prose, flat
from lesion.report.drawing import specification
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import forced_report
from lesion.studies.ablation.report import AblationResult, report


def told(summary) -> str:
    found = [*prose.shared(summary.views), *prose.by_model(summary.views)]
    sentences = [text for finding in found for text in (finding.subject, *finding.headline, *finding.sentences)]
    return "\n".join(sentences).replace(wording.SPACE, " ")


def test_the_headline_names_the_task_that_needs_a_block_and_those_that_do_without():
    assert "Block 2 is critical for sums, not for facts." in told(study(models=("base",))[0])


def test_a_task_is_told_with_both_accuracies_and_their_intervals():
    text = told(study(models=("base",))[0])
    assert "accuracy falls from 90.0 % [59.6, 98.2] to 0.0 % [0.0, 27.8]" in text


def test_a_task_without_critical_blocks_is_told_with_its_largest_drop():
    assert (
        "No block is shown to be critical for facts (all are spared: each takes less than a quarter); largest"
        in told(study(models=("base",))[0])
    )


def test_a_task_that_is_not_shown_to_be_spared_is_not_said_to_do_without_a_block():
    summary = form(models=("base",), tasks=("sums", "facts"))
    for cell in summary["models"][0]["tasks"][1]["cells"][1:]:
        cell["spared"] = False
    text = told(valid(summary))
    assert "Block 2 is critical for sums; for facts it cannot be told." in text
    assert "No block is shown to be critical for facts (block 0 spared; of 3 it cannot be told); largest drop" in text
    assert " not for " not in text
    assert "alone" not in text


def test_a_difference_of_the_relative_losses_is_said_of_a_task_that_is_not_spared():
    summary = form(models=("base",), tasks=("sums", "facts"))
    sums, facts = summary["models"][0]["tasks"]
    facts["cells"][2]["spared"] = False
    sums["cells"][2]["apart"] = [{"task": "facts", "difference": {"value": 0.6, "low": 0.2, "high": 0.9}}]
    assert "Block 2 is critical for sums, and takes more of it than of facts." in told(valid(summary))


def test_a_gain_that_its_corrected_test_supports_is_said():
    summary = form(models=("base",), tasks=("facts",))
    cell = summary["models"][0]["tasks"][0]["cells"][1]
    cell["drop"] |= {"value": -0.1, "p_corrected": 0.04}
    assert (
        "Without block 1 accuracy rises from 90.0 % [59.6, 98.2] to 100.0 % [72.2, 100.0] (corrected p .04)."
        in told(valid(summary))
    )
    cell["drop"]["p_corrected"] = 0.06
    assert "rises" not in told(valid(summary))


def test_the_example_of_a_loss_is_one_whose_answers_were_not_cut_off():
    summary = form(models=("base",), tasks=("sums",))
    cells = summary["models"][0]["tasks"][0]["cells"]
    cells[3] |= {**scores(1, 10), "critical": True, "drop": {"value": 0.8, "low": 0.6, "high": 1.0}}
    assert cells[2]["truncated"] == 1.0
    assert "without block 3 accuracy falls from 90.0 % [59.6, 98.2] to 10.0 %" in told(valid(summary))


def test_prompts_without_the_chat_template_that_a_model_has_are_said_where_nothing_is_right():
    summary = form(models=("base",), tasks=("sums",))
    task = summary["models"][0]["tasks"][0]
    task["baseline"]["accuracy"]["value"] = 0.0
    assert "chat" not in told(valid(summary))
    task["without_chat"] = True
    assert "The model has a chat template, and the prompts were sent without it" in told(valid(summary))


def test_answers_cut_off_at_the_limit_are_not_taken_for_a_lost_skill():
    assert "100 % of the answers hit the token limit" in told(study(models=("base",))[0])


def test_what_all_models_share_comes_first():
    text = told(study()[0])
    assert text.strip().startswith("In both models block 2 is critical for sums, in none for facts.")


def test_blocks_of_models_of_different_depth_are_not_compared_by_their_number():
    summary = form(models=("a", "b", "c"))
    for task in summary["models"][2]["tasks"]:
        task["cells"].pop()
    text = told(valid(summary))
    depth = len(summary["models"][0]["tasks"][0]["cells"])
    assert f"In both models of {depth} blocks, block 2 is critical for sums" in text
    assert "In all 3 models" not in text


def test_the_first_screen_names_every_shared_block_also_those_critical_for_every_task():
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"][0]["critical"] = True
    [lead] = prose.leads(valid(summary).views[0])
    first = form()["models"][0]["tasks"][0]["cells"][0]["layer"]
    assert lead.replace(wording.SPACE, " ") == (
        f"In both models block 2 is critical for sums alone and block {first} for every task."
    )


def test_a_lead_that_would_be_too_long_names_the_most_selective_places_and_counts_the_rest(monkeypatch):
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"][0]["critical"] = True
    first = form()["models"][0]["tasks"][0]["cells"][0]["layer"]
    monkeypatch.setattr(prose, "LEAD", 20)
    [lead] = prose.leads(valid(summary).views[0])
    assert lead.replace(wording.SPACE, " ") == (
        f"In both models block 2 is critical for sums alone; for block {first} see below."
    )


def test_the_example_of_several_models_names_model_place_and_task_in_one_sentence():
    view = study()[0].views[0]
    text = prose.example(view, view.labels[0]).replace(wording.SPACE, " ")
    assert text.startswith(f"In {view.labels[0]}, without block 2 accuracy on sums falls from 90.0 % [59.6, 98.2] to")


def test_a_unit_or_a_factor_is_said_of_the_loss_and_of_what_is_not_critical():
    summary = form(models=("base",))
    for task in summary["models"][0]["tasks"]:
        for cell in task["cells"]:
            cell |= {"unit": "attention", "factor": 0.5}
    text = told(valid(summary))
    assert "with the attention of block 2 scaled by 0.5 accuracy falls from" in text
    assert "No block's attention is shown to be critical for facts" in text


def test_models_that_share_nothing_are_said_to_share_nothing():
    summary = form()
    summary["models"][1]["tasks"][0]["cells"][2]["critical"] = False
    assert "No block is shown to be critical for the same task in both models." in told(valid(summary))


def test_a_model_that_knew_nothing_can_lose_nothing():
    summary = form(models=("base",), tasks=("sums",))
    summary["models"][0]["tasks"][0]["baseline"]["accuracy"]["value"] = 0.0
    assert "sums: the unedited model has none of 10 items right, so that no cut can show a loss." in told(
        valid(summary)
    )


def test_a_layer_measured_on_one_task_only_is_not_called_selective():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    assert "not for facts" not in told(valid(summary))


def test_what_is_missing_is_told_per_gap():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    answered = {("base", "sums", "baseline"): 10, ("base", "sums", "3×0"): 4}
    assert [line.replace(wording.SPACE, " ") for line in prose.missing(valid(summary).views, answered)] == [
        "base on sums: block 3: 4 of 10 items.",
        "base on facts: block 2 not measured.",
    ]


def test_nothing_is_missing_from_a_complete_study():
    assert prose.missing(study()[0].views, {}) == []


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


def test_a_task_that_the_model_cannot_do_is_not_said_to_do_without_a_block():
    summary = form(models=("base",))
    unable(summary, 0, 1)
    text = told(valid(summary))
    assert "Block 2 is critical for sums; it cannot be told for facts (3 of 20 right)." in text
    assert "facts: cannot be told (3 of 20 right); a cut that leaves none right is critical from 7 right on." in text
    assert "not for facts" not in text
    assert "for facts;" not in text


def test_what_models_share_leaves_out_a_task_that_one_of_them_cannot_do():
    summary = form()
    unable(summary, 1, 1)
    text = told(valid(summary))
    first = "In both models block 2 is critical for sums; it cannot be told for facts in child (3 of 20 right)."
    assert text.strip().startswith(first)
    assert "base\nBlock 2 is critical for sums, not for facts." in text


def test_of_three_tasks_two_are_not_every_task():
    summary = form(models=("base",), tasks=("sums", "sums2", "facts"))
    summary["models"][0]["tasks"][1]["cells"] = summary["models"][0]["tasks"][0]["cells"]
    unable(summary, 0, 2)
    assert "Block 2 is critical for sums and sums2; it cannot be told for facts" in told(valid(summary))


def guessed(summary, task: int, guessing: float) -> None:
    """Make the model have 11 of 20 items of a task right, which guessing would give, too."""
    result = summary["models"][0]["tasks"][task]
    result |= {"items": 20, "baseline": scores(11, 20), "guessing": guessing}


def test_a_task_near_guessing_limits_the_verdict_on_the_first_screen():
    summary, (_, answers, items) = form(models=("base",)), study(("base",))
    guessed(summary, 1, 0.5)
    text = told(valid(summary))
    assert "Block 2 is critical for sums; it cannot be told for facts (11 of 20 right, near guessing)." in text
    assert "facts: cannot be told, since the model hardly does better than guessing (11 of 20 right, guessing" in text
    assert "near guessing" in " ".join(report(valid(summary), answers, items).opening.verdict)
    guessed(summary, 1, 0.2)
    assert "guessing" not in told(valid(summary))


def test_of_no_critical_block_the_headline_says_for_which_task_that_is_not_known():
    summary = form(models=("base",), tasks=("sums", "facts"))
    guessed(summary, 1, 0.5)
    summary["models"][0]["tasks"][0]["cells"][2]["critical"] = False
    text = told(valid(summary))
    assert (
        "No block is shown to be critical for sums; it cannot be told for facts (11 of 20 right, near guessing)."
        in text
    )


def test_the_notes_stand_beside_the_verdict_on_the_page_and_in_a_notebook(tmp_path):
    summary, answers, items = study()
    html = AblationResult(tmp_path, summary, stored=(answers, items))._repr_html_()
    assert html.index("In both models block 2") < html.index("Note: A note.") < html.index("<svg")
    page = report(summary, answers, items)
    blocks = page.sections[0].blocks
    assert [block.items for block in blocks if isinstance(block, Prose) and block.title == "Notes"] == [("A note.",)]
    assert sum(isinstance(block, Prose) and block.title == "Notes" for block in page.blocks()) == 1


def test_of_many_tasks_those_without_a_mark_are_not_listed():
    text = told(study(("base",), ("sums", "facts", "ioi", "copy", "verbs"))[0])
    assert "Block 2 is critical for sums alone." in text
    assert "not for facts" not in text
    assert "Block 2 is critical for sums, not for facts, ioi or copy." in told(
        study(("base",), ("sums", "facts", "ioi", "copy"))[0]
    )


def test_a_map_in_the_first_screen_stands_nowhere_else_on_the_page():
    many = study(tuple(f"m{n}" for n in range(5)), ("sums", "facts"))
    for page in (report(*many), report(*study(("base",), ("sums",)))):
        blocks = [block for part in PARTS for section in page.parted(part) for block in flat(section.blocks)]
        figures = [page.first.figure, *(block for block in blocks if isinstance(block, Figure))]
        charts = [chart for figure in figures for panel in figure.panels for chart in panel.charts]
        assert len({json.dumps(specification(chart), sort_keys=True) for chart in charts}) == len(charts) > 2


def test_the_page_of_one_model_with_many_tasks_begins_with_the_map_of_all_drops():
    for tasks, first in ((("sums", "facts"), "accuracy"), (("sums", "facts", "ioi", "copy"), "drop-block-0")):
        summary, answers, items = study(("base",), tasks)
        figure = report(summary, answers, items).opening.figure
        assert figure is not None
        assert (figure.name or "accuracy").startswith(first)
        assert not figure.wide, "4 blocks"


def test_of_a_choice_that_falls_by_less_than_half_mostly_the_form_is_said_to_change_and_by_how_much_it_falls():
    summary = form(models=("base",), tasks=("sums",))
    task = summary["models"][0]["tasks"][0]
    task["forced"] = {"items": 10, "accuracy": {"value": 0.96}, "guessing": 0.5}
    task["cells"][2]["forced"] = task["forced"] | {
        "accuracy": {"value": 0.78, "low": 0.695, "high": 0.846},
        "p_lost": 1.0,
        "p_kept": 0.011,
    }
    (curve,) = valid(summary).curves
    assert forced_report.brief([curve]).replace(wording.SPACE, " ") == (
        "Without block 2 mostly the form of the answer changes for sums (free 90.0 → 0.0 %, forced 96.0 → 78.0 %"
        " [69.5, 84.6])."
    )
    assert "only" not in forced_report.sentence(curve)


def test_a_block_is_not_called_critical_for_one_task_alone_where_nothing_can_be_told_of_another():
    summary = form(models=("base",), tasks=("sums", "a", "b", "c", "d", "e"))
    sums, *_, floor = summary["models"][0]["tasks"]
    assert "Block 2 is critical for sums alone." in told(valid(summary))
    floor["baseline"] = scores(1, 10)
    for task in (sums, floor):
        task["sensitivity"] = [
            {"unit": "block", "factor": 0.0, "tests": 4, "right": round(task["baseline"]["accuracy"]["value"] * 10)}
            | {"fewest_right": 5, "power": 0.8, "smallest_loss": 0.8, "shares": []}
        ]
    text = told(valid(summary))
    assert "Block 2 is critical for sums, not for a, b, c or d; it cannot be told for e (1 of 10 right)." in text
    assert "alone" not in text
