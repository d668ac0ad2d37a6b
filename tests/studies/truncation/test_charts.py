"""The charts of a truncation search: values where they belong, intervals, marks, spectra with what is kept."""

import re

import made_truncation as made
import pytest

from lesion.report import drawing
from lesion.studies.truncation import charts, spectra


@pytest.fixture(scope="module")
def summary():
    return made.summary()


def specified(panel):
    (chart,) = panel.charts
    return drawing.specification(chart)


def rows_of(specification, field):
    """The longest of the chart's data sets that have a field."""
    sets = [rows for rows in specification["datasets"].values() if rows and field in rows[0]]
    return max(sets, key=len)


def along(specification):
    """Series → its known points in order."""
    points = {}
    for row in rows_of(specification, "series"):
        if row["y"] is not None:
            points.setdefault(row["series"], []).append(row)
    return {series: sorted(rows, key=lambda row: row["x"]) for series, rows in points.items()}


def axes(specification):
    """The encodings x and y of the first layer that has both, however deep."""
    for layer in specification.get("layer", ()):
        found = axes(layer)
        if found:
            return found
    encoding = specification.get("encoding", {})
    return (encoding["x"], encoding["y"]) if {"x", "y"} <= set(encoding) else None


def panel_of(figure, title):
    return next(panel for panel in figure.panels if panel.title == title)


def test_tokens_before_and_after_are_one_curve_per_token_with_their_intervals(summary):
    (figure,) = charts.token_figures(summary)
    points = along(specified(panel_of(figure, "The two tokens")))
    assert list(points) == ["right token", "tempting token"] == [series.name for series in figure.legend]
    for series, name in (("right token", "p_right"), ("tempting token", "p_tempting")):
        for point, tokens in zip(points[series], summary.searched_tokens, strict=True):
            estimate = getattr(tokens, name)
            expected = [100 * end for end in (estimate.value, estimate.low, estimate.high)]
            assert [point["y"], point["low"], point["high"]] == pytest.approx(expected, rel=1e-5)
            assert f"{series}: " in point["tip"]


def test_the_margin_has_a_line_at_zero_and_a_place_for_every_edit(summary):
    (figure,) = charts.token_figures(summary)
    chart = specified(panel_of(figure, charts.MARGIN))
    assert [point["y"] for point in along(chart)["margin"]] == pytest.approx(
        [tokens.margin.value for tokens in summary.searched_tokens], rel=1e-5
    )
    assert [{"y": 0.0}] in chart["datasets"].values()
    x, y = axes(chart["layer"][1])
    assert x["axis"]["labelExpr"] == '["unedited", "chosen", "composed"][datum.value]'
    low, high = y["scale"]["domain"]
    assert low < 0 < high


def test_names_on_an_axis_are_texts_whatever_stands_in_them():
    axis = charts.names_axis("revision", ['"]; alert(1); ["', "a\\b"])
    assert axis.axis.to_dict()["labelExpr"] == r'["\"]; alert(1); [\"", "a\\b"][datum.value]'


def test_along_revisions_every_edit_has_a_curve_of_its_own_colour(summary):
    figure = charts.revision_figures(summary)[0]
    assert [panel.title for panel in figure.panels] == [
        "Accuracy", "The right token", "The tempting token", charts.MARGIN
    ]  # fmt: skip
    assert [series.name for series in figure.legend] == ["unedited", "chosen", "composed"]
    assert len({series.index for series in figure.legend}) == 3
    for panel in figure.panels:
        points = along(specified(panel))
        assert list(points) == ["unedited", "chosen", "composed"]
        assert {len(rows) for rows in points.values()} == {4}
    tempting = along(specified(panel_of(figure, "The tempting token")))
    first = next(one for one in summary.tokens if (one.edit, one.revision) == ("baseline", "step512"))
    assert tempting["unedited"][0]["y"] == pytest.approx(100 * first.p_tempting.value, rel=1e-5)


def test_a_task_without_a_tempting_token_has_its_accuracy_alone(summary):
    figure = charts.revision_figures(summary)[1]
    assert [panel.title for panel in figure.panels] == ["Accuracy"]
    assert "tokens.csv" not in figure.caption


def test_accuracy_along_revisions_ends_with_the_model_that_was_searched(summary):
    figure = charts.revision_figures(summary)[0]
    points = along(specified(panel_of(figure, "Accuracy")))
    last = {
        "unedited": summary.base(made.IOI, "test").accuracy,
        "chosen": summary.best_tests[0].accuracy,
        "composed": summary.composed_tests[0].accuracy,
    }
    for role, accuracy in last.items():
        assert points[role][-1]["y"] == pytest.approx(100 * accuracy.value, rel=1e-5)
        assert round(points[role][-1]["x"]) == 3
        assert "searched" in points[role][-1]["tip"]


def test_the_path_joins_the_steps_that_stayed_and_leaves_the_others_apart(summary):
    figure = charts.path_figure(summary)
    chart = specified(figure.panels[0])
    points = along(chart)
    assert [(point["x"], point["y"]) for point in points["stayed"]] == [(0, 77), (2, 79)]
    assert [(point["x"], point["y"]) for point in points["rolled back"]] == [(1, 75.5), (3, 79)]
    back = [row["y"] for row in rows_of(chart, "series") if row["series"] == "rolled back"]
    assert back == [75.5, None, 79, None]
    assert [{"y": 67.5}] in chart["datasets"].values()  # before the first step


def test_a_single_step_is_no_path():
    assert charts.path_figure(made.summary(path=made.study()["path"][:1])) is None


def test_by_gold_the_path_is_in_nats():
    json = made.study()
    json["study"]["objective"] = "gold"
    for step in json["path"]:
        step["before"]["gold"], step["after"]["gold"] = -1.0 - step["step"] / 10, -1.1 - step["step"] / 10
    chart = specified(charts.path_figure(made.summary(json)).panels[0])
    assert "nats" in axes(chart["layer"][1])[1]["axis"]["title"]
    assert "−1.000 → −1.100" in along(chart)["stayed"][0]["tip"]


def test_zero_is_always_on_an_axis_of_changes_in_nats():
    for values in ([3.0, 5.0], [-7.0, -0.1], [0.0], [-1e-3, 2e-3]):
        axis = charts.nats_axis("margin", values, zero=True)
        assert axis.low < 0 < axis.high
        assert axis.low < min(values) <= max(values) < axis.high


def test_percentages_near_each_other_have_an_axis_close_around_them():
    close, wide = (charts.percent_axis("accuracy, %", values) for values in ([50.0, 60.0], [10.0, 90.0]))
    assert 40 < close.low < 50
    assert 60 < close.high < 70
    assert (wide.low, wide.high) == (-3, 103)


def test_spectra_are_a_panel_per_kind_of_matrix_with_every_value_where_it_belongs(summary):
    figure = spectra.figure(summary)
    assert [panel.title for panel in figure.panels] == ["mlp.up", "attention.o"]
    points = along(specified(figure.panels[1]))["5.attention.o"]
    (spectrum,) = (one for one in summary.spectra if one.address == "5.attention.o")
    known = dict(zip((index + 1 for index in spectrum.index), spectrum.values, strict=True))
    assert len(points) <= spectra.MOST_POINTS + 1
    assert [points[0]["x"], points[-1]["x"]] == [1, made.OF]
    for point in points:
        assert point["y"] == pytest.approx(known[point["x"]], rel=1e-5)


def test_what_the_chosen_edit_keeps_is_shaded_in_the_panel_of_its_matrix(summary):
    figure = spectra.figure(summary)
    first, second = (specified(panel) for panel in figure.panels)
    assert rows_of(first, "end") == [{"x": 1, "end": 6.5}]  # rank 6 of 5.mlp.up
    assert not any("end" in row for rows in second["datasets"].values() for row in rows)
    tips = [row["tip"] for rows in first["datasets"].values() for row in rows if "tip" in row]
    assert len(tips) == made.LAYERS
    assert sum("chosen: the top" in tip for tip in tips) == 1
    assert "kept by the chosen edit" in [series.name for series in figure.legend]


def test_what_is_kept_of_the_bottom_is_shaded_at_the_end_and_nothing_where_all_is_removed():
    bottom = made.edit("mlp.up", "bottom", 5, 0.05)
    chart = specified(spectra.figure(made.summary(best=bottom)).panels[0])
    assert rows_of(chart, "end") == [{"x": made.OF - 6 + 0.5, "end": made.OF + 0.5}]
    removed = made.summary(best=made.edit("mlp.up", "top", 5, 0.005))
    figure = spectra.figure(removed)
    assert "kept by the chosen edit" not in [series.name for series in figure.legend]


def test_values_of_0_are_not_drawn_and_a_spectrum_of_zeros_has_no_panel():
    json = made.study()
    json["spectra"] = [
        {"address": "0.mlp.up", "index": [0, 1, 2], "values": [2.0, 1.0, 0.0]},
        {"address": "0.mlp.down", "index": [0, 1], "values": [0.0, 0.0]},
    ]
    figure = spectra.figure(made.summary(json))
    assert [panel.title for panel in figure.panels] == ["mlp.up"]
    assert [point["y"] for point in along(specified(figure.panels[0]))["0.mlp.up"]] == [2, 1]


def test_of_many_blocks_only_what_the_chosen_edit_cuts_has_a_colour():
    json = made.study()
    json["spectra"] = [
        {"address": f"{layer}.mlp.up", "index": [0, 1], "values": [2.0 + layer, 1.0]} for layer in range(12)
    ]
    chart = specified(spectra.figure(made.summary(json)).panels[0])
    colours = {
        name: colour
        for layer in chart["layer"]
        if "color" in layer.get("encoding", {})
        for name, colour in zip(
            layer["encoding"]["color"]["scale"]["domain"], layer["encoding"]["color"]["scale"]["range"], strict=True
        )
    }
    assert len(colours) == 12
    assert [name for name, colour in colours.items() if colour != colours["0.mlp.up"]] == ["5.mlp.up"]


def test_the_change_on_test_items_is_drawn_in_points_with_plain_ticks(summary):
    figure = charts.test_figure(summary)
    specification = specified(figure.panels[0])
    drawn = {row["y"]: row["x"] for row in rows_of(specification, "colour")}
    tests = summary.composed_tests or summary.best_tests
    assert [drawn[f"{test.task}\ntest items"] for test in tests] == pytest.approx(
        [100 * test.gain.value for test in tests]
    )
    wide = summary.model_copy(
        update={
            "composed_tests": tuple(
                test.model_copy(update={"gain": test.gain.model_copy(update={"low": -0.06, "high": 0.13})})
                for test in tests
            )
        }
    )
    ticks = re.findall(r">([+\u2212][^<]*)<", drawing.svg(specified(charts.test_figure(wide).panels[0])))
    assert "+10" in ticks
