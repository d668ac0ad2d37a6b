"""The charts of a layer study, read back from their specification."""

import pytest
from made import form, records, study, valid

from lesion.report import theme
from lesion.report.drawing import specification, svg
from lesion.studies.ablation import charts, groups


def rows(chart) -> list[dict]:
    return [row for data in specification(chart)["datasets"].values() for row in data]


def accuracy(summary, task="sums") -> list[dict]:
    return rows(charts.accuracy(summary.views[0], task))


def curve(summary, label="base", task="sums") -> list[dict]:
    """The rows of one curve's line."""
    own = [row for row in accuracy(summary, task) if row.get("series") == label and "open" in row]
    return list({row["x"]: row for row in own}.values())


def test_the_line_passes_through_every_accuracy_with_its_interval():
    summary = study(models=("base",))[0]
    cells = summary.curves[0].cells
    assert [(row["x"], row["y"], row["low"], row["high"]) for row in curve(summary)] == [
        (
            cell.layer,
            *(pytest.approx(end, abs=1e-5) for end in (cell.accuracy.value, cell.accuracy.low, cell.accuracy.high)),
        )
        for cell in cells
    ]


def test_marked_layers_have_a_filled_mark_and_their_number_under_the_lowest():
    summary = study()[0]
    assert [row["x"] for row in curve(summary) if row["marked"]] == [2]
    numbers = [row for row in accuracy(summary) if "text" in row]
    assert numbers == [{"x": 2, "y": 0, "text": "2"}]


def test_a_line_breaks_where_a_layer_is_missing_and_a_place_alone_has_a_bar():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][0]["cells"][1]
    drawn = {row["x"]: row for row in curve(valid(summary))}
    assert (drawn[1]["y"], drawn[0]["alone"], drawn[2]["alone"]) == (None, True, False)


def test_every_curve_has_its_baseline_and_one_alone_has_its_interval():
    lines = [row for row in accuracy(study()[0]) if set(row) == {"series", "y"}]
    assert lines == [{"series": "base", "y": 0.9}, {"series": "child", "y": 0.9}]
    (band,) = [row for row in accuracy(study(models=("base",))[0]) if set(row) == {"low", "high"}]
    baseline = study()[0].curves[0].result.baseline.accuracy
    assert (band["low"], band["high"]) == pytest.approx((baseline.low, baseline.high), abs=1e-5)


def test_every_curve_has_its_own_colour_and_mark():
    specified = specification(charts.accuracy(study()[0].views[0], "sums"))
    colours = {tuple(layer["encoding"]["color"]["scale"]["range"]) for layer in layers(specified) if coloured(layer)}
    assert colours == {theme.TONES[:2]}
    shapes = [
        layer["encoding"]["shape"]["scale"]["range"] for layer in layers(specified) if "shape" in layer["encoding"]
    ]
    assert {tuple(each) for each in shapes} == {theme.SHAPES[:2]}


def layers(specified: dict) -> list[dict]:
    return [part for layer in specified["layer"] for part in (layers(layer) if "layer" in layer else [layer])]


def coloured(layer: dict) -> bool:
    return "scale" in layer["encoding"].get("color", {})


def test_pointing_tells_the_numbers_of_every_model_and_a_click_names_the_answers():
    (guide,) = [row for row in accuracy(study()[0]) if row.get("tip") and row["x"] == 2]
    tip = guide["tip"].replace("\N{NO-BREAK SPACE}", " ")
    assert tip.splitlines()[0] == "block 2 switched off"
    assert "base: 0.0 % [0.0, 27.8], drop 90.0 [70.0, 110.0], p .016, critical" in tip
    assert "child: 0.0 %" in tip
    assert (guide["model"], guide["task"], guide["edit"]) == ("base", "sums", "2×0")


def test_a_layer_not_answered_yet_says_so_and_opens_nothing():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][0]["cells"][3]
    (guide,) = [row for row in accuracy(valid(summary)) if row.get("tip") and row["x"] == 3]
    assert "not measured yet" in guide["tip"]
    assert guide["edit"] is None


def test_neighbouring_marked_layers_share_a_number_where_there_are_many():
    assert charts.grouped([0, 1, 5, 6, 9], 1) == [[0, 1], [5, 6], [9]]
    assert charts.grouped([0, 1, 5], 0) == [[0], [1], [5]]


def test_the_heat_maps_hold_every_drop_one_map_per_task_where_there_are_several_models():
    summary = study()[0]
    panels = charts.drop_panels(summary.views[0])
    assert [title for title, _ in panels] == ["sums", "facts"]
    for (task, chart), curves in zip(panels, summary.views[0].panels.values(), strict=True):
        drawn = {(row["y"], row["x"]): (row["value"], row["marked"], row["edit"]) for row in rows(chart)}
        assert drawn == {
            (each.label, cell.layer): (pytest.approx(cell.drop.value, abs=1e-5), cell.marked, cell.edit)
            for each in curves
            for cell in each.cells
        }, task
    ((title, alone),) = charts.drop_panels(study(models=("base",))[0].views[0])
    assert (title, {row["y"] for row in rows(alone)}) == ("", {"sums", "facts"})


def test_accuracy_by_group_has_a_cell_per_group_without_and_with_every_cut():
    summary, answers, items = study(models=("base",))
    (breakdown,) = groups.breakdowns(summary.curves, answers, items, 0.95)
    drawn = {(row["y"], row["x"]): row["value"] for row in rows(charts.by_group(breakdown))}
    assert len(drawn) == 2 * 5
    assert drawn["1 steps (5)", "unedited"] == breakdown.shares["1 steps", None].accuracy
    assert drawn["2 steps (5)", "2"] == breakdown.shares["2 steps", 2].accuracy


def test_charts_survive_names_that_are_not_plain_text_and_layers_not_answered_yet():
    names, tasks = ("a $b$ _{c}: 模型.x", '"><script>x</script>'), ("sums", "$\\undefined{x}$", "[0]")
    summary = form(names, tasks)
    del summary["models"][0]["tasks"][0]["cells"][1]
    summary["models"][1]["tasks"][1]["cells"] = []
    (view,) = valid(summary).views
    drawn = [charts.accuracy(view, task) for task in tasks] + [chart for _, chart in charts.drop_panels(view)]
    assert records(names, tasks)
    for chart in drawn:
        picture = svg(specification(chart))
        assert "<script" not in picture
        assert "模型.x" in picture or "block switched off" in picture
