"""A summary seen as figures: what is drawn, what is missing."""

import pytest
from made import study

from lesion.errors import LesionError
from lesion.report.views import drop_scale, lines, runs, views


def test_several_models_share_a_view_with_one_line_each_and_one_panel_per_task():
    (view,) = views(study()[0])
    assert view.labels == ("base", "child")
    assert list(view.panels) == ["sums", "facts"]
    assert view.layers == (0, 1, 2, 3)
    assert all(len(of_task) == 2 for of_task in view.panels.values())


def test_one_model_with_several_factors_has_one_line_per_factor():
    summary = study(models=("base",))[0]
    for task in summary["models"][0]["tasks"]:
        task["layers"] += [{**layer, "factor": 0.5} for layer in task["layers"]]
    (view,) = views(summary)
    assert view.factor is None
    assert view.labels == ("factor 0", "factor 0.5")


def test_units_are_views_of_their_own():
    summary = study()[0]
    for model in summary["models"]:
        for task in model["tasks"]:
            task["layers"] += [{**layer, "unit": "mlp"} for layer in task["layers"]]
    assert [(view.unit, view.slug) for view in views(summary)] == [("block", "block-0"), ("mlp", "mlp-0")]


def test_a_point_names_the_edit_under_which_its_answers_are_stored():
    assert [point.edit for point in lines(study()[0])[0].points] == ["0×0", "1×0", "2×0", "3×0"]


def test_a_layer_that_another_task_has_is_missing():
    summary = study(models=("base",))[0]
    del summary["models"][0]["tasks"][1]["layers"][2]
    sums, facts = lines(summary)
    assert (sums.missing, facts.missing) == ((), (2,))


def test_a_planned_layer_is_missing_although_no_task_has_it():
    summary = study(models=("base",), tasks=("sums",))[0]
    summary["models"][0]["tasks"][0]["planned"] = list(range(6))
    assert lines(summary)[0].missing == (4, 5)


def test_layers_left_out_on_purpose_are_not_missing():
    summary = study(models=("base",))[0]
    for task in summary["models"][0]["tasks"]:
        del task["layers"][1]
    assert all(line.missing == () for line in lines(summary))


def test_an_accuracy_that_is_not_a_number_counts_as_missing():
    summary = study(models=("base",), tasks=("sums",))[0]
    summary["models"][0]["tasks"][0]["layers"][3]["accuracy"] = float("nan")
    assert lines(summary)[0].missing == (3,)


def test_a_stroke_breaks_where_a_layer_is_missing():
    summary = study(models=("base",))[0]
    del summary["models"][0]["tasks"][0]["layers"][1]
    (view,) = views(summary)
    pieces = runs(view.panels["sums"][0], view.layers)
    assert [[point.layer for point in piece] for piece in pieces] == [[0], [2, 3]]


def test_the_colour_scale_covers_the_largest_drop_and_never_blows_up_noise():
    summary = study(models=("base",))[0]
    assert drop_scale(lines(summary)) == 0.9
    for task in summary["models"][0]["tasks"]:
        for layer in task["layers"]:
            layer["drop"] = 0.01
    assert drop_scale(lines(summary)) == 0.2


@pytest.mark.parametrize("summary", [{}, {"models": [{"model": "m"}]}, {"models": 3}])
def test_what_is_not_a_summary_is_said_to_be_none(summary):
    with pytest.raises(LesionError, match="Run the study again"):
        lines(summary)
