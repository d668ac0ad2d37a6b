"""The cells of a summary as curves and views: what is drawn together, and what is missing."""

import pytest
from made import form, study, valid


def test_several_models_share_a_view_with_one_curve_each_and_one_panel_per_task():
    (view,) = study()[0].views
    assert view.labels == ("base", "child")
    assert list(view.panels) == ["sums", "facts"]
    assert view.layers == (0, 1, 2, 3)
    assert all(len(of_task) == 2 for of_task in view.panels.values())


@pytest.mark.parametrize(("other", "labels"), [(0.5, ("factor 0", "factor 0.5")), ("mean", ("zero", "mean"))])
def test_one_model_with_several_factors_has_one_curve_per_factor(other, labels):
    summary = form(models=("base",))
    for task in summary["models"][0]["tasks"]:
        task["cells"] += [{**cell, "factor": other} for cell in task["cells"]]
    (view,) = valid(summary).views
    assert view.factor is None
    assert view.labels == labels


def test_units_are_views_of_their_own():
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"] += [{**cell, "unit": "mlp"} for cell in task["cells"]]
    assert [(view.unit, view.slug) for view in valid(summary).views] == [("block", "block-0"), ("mlp", "mlp-0")]


def test_a_cell_names_the_edit_under_which_its_answers_are_stored():
    assert [cell.edit for cell in study()[0].curves[0].cells] == ["0×0", "1×0", "2×0", "3×0"]


def test_a_layer_that_another_task_has_is_missing():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    sums, facts = valid(summary).curves
    assert (sums.missing, facts.missing) == ((), (2,))


def test_a_planned_layer_is_missing_although_no_task_has_it():
    summary = form(models=("base",), tasks=("sums",))
    summary["models"][0]["tasks"][0]["planned"] = list(range(6))
    assert valid(summary).curves[0].missing == (4, 5)


def test_layers_left_out_on_purpose_are_not_missing():
    summary = form(models=("base",))
    for task in summary["models"][0]["tasks"]:
        del task["cells"][1]
    assert all(curve.missing == () for curve in valid(summary).curves)
