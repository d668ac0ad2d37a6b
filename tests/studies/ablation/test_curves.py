"""The cells of a summary as curves: which belong together, and what is missing."""

from made import form, study, valid

from lesion.core.values import alike


def test_curves_are_grouped_by_what_they_share():
    summary = form()
    for model in summary["models"]:
        for task in model["tasks"]:
            task["cells"] += [{**cell, "unit": "mlp"} for cell in task["cells"]]
    sweeps = alike(valid(summary).curves, "unit", "factor")
    assert [(own[0].unit, own[0].factor, len(own)) for own in sweeps] == [("block", 0.0, 4), ("mlp", 0.0, 4)]
    assert [[curve.task for curve in own] for own in alike(sweeps[0], "model")] == [["sums", "facts"]] * 2


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
