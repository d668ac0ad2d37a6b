"""The plots that studies share: what data they hold, and how these are encoded."""

import re

import pandas as pd
import pytest
from chart_parts import CELLS, drawn, layers
from page_checks import marks

from lesion.report import drawing, plots, theme
from lesion.report.blocks import Series
from lesion.report.plots import Axis

LAYER, SHARE = Axis("layer", 0.0, 3.0, whole=True), Axis("share", 0.0, 1.0, form=".0%")
SERIES = ("bundled:a-b", "x.y[0]")
ROWS = [
    {"series": name, "x": x, "y": None if (name, x) == (SERIES[0], 1) else 0.1 * x, "low": 0.1 * x - 0.05,
     "high": 0.1 * x + 0.05, "tip": f"{name}\n{x}"}
    for name in SERIES
    for x in range(4)
]  # fmt: skip


@pytest.fixture
def curves():
    return plots.curves(pd.DataFrame(ROWS), LAYER, SHARE, SERIES)


def test_a_curve_breaks_where_there_is_no_number_and_has_no_mark_there(curves):
    found = layers(curves)
    assert found["line"]["mark"]["invalid"] == "break-paths-show-path-domains"
    assert found["point"]["transform"] == [{"filter": "isValid(datum.y)"}]
    picture = drawing.svg(drawn(curves))
    [broken] = [
        mark["d"] for mark in marks(picture) if mark.get("stroke") == theme.TONES[0] and "L" in mark.get("d", "")
    ]
    assert broken.count("M") == 2


def test_guides_tell_of_all_series_in_place_of_the_marks():
    guide = pd.DataFrame({"x": range(4), "tip": [f"layer {x}" for x in range(4)]})
    chart = plots.curves(pd.DataFrame(ROWS), LAYER, SHARE, SERIES, guide=guide)
    point = next(layer for layer in drawn(chart)["layer"] if layer.get("mark", {}).get("type") == "point")
    assert "tooltip" not in point["encoding"]
    guides = drawn(chart)["layer"][-1]
    lines, areas = guides["layer"]
    assert areas["encoding"]["tooltip"]["field"] == "tip"
    data = drawn(chart)["datasets"][guides["data"]["name"]]
    assert [(row["x"], row["tip"]) for row in data] == list(guide.itertuples(index=False, name=None))
    # Of every place of the axis the nearest guide tells.
    assert [(row["begin"], row["end"]) for row in data] == [(0, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 3)]
    [pointer] = drawn(chart)["params"]
    assert pointer["select"]["on"] == "pointerover"
    assert pointer["views"] == [areas["name"]]
    assert lines["encoding"]["opacity"]["condition"][0]["param"] == pointer["name"]


def test_no_colour_is_written_but_by_role(curves):
    heat = plots.heat(
        pd.DataFrame([{"x": 1, "y": "a", "value": 0.1, "text": "10", "tip": "", "marked": False}]),
        "layer",
        "",
        full=1.0,
    )
    for chart in (curves, heat, plots.legend([Series("a"), Series("b", area=0.3, colour=theme.SOFT)], 200)):
        assert not re.search(r'"#[0-9a-fA-F]{3,8}"|rgb\(', str(drawn(chart)).replace("'", '"'))


def test_a_legend_for_a_file_names_every_series_in_rows_of_its_width():
    names = [f"bundled:model-number-{number}" for number in range(7)]
    chart = plots.legend([Series(name, index) for index, name in enumerate(names)], 520)
    data = next(iter(drawn(chart)["datasets"].values()))
    assert [row["name"] for row in data] == names
    assert all(row["end"] <= 520 for row in data)
    assert [row["colour"] for row in data] == [theme.TONES[index] for index in range(7)]
    places = [(row["y"], row["x"]) for row in data]
    assert places == sorted(places)
    assert len({row["y"] for row in data}) > 1
    kinds = plots.legend([Series("a", dash=(2.0, 4.0), area=0.3), Series("b", dash=(2.0, 4.0)), Series("c")], 520)
    drawn_as = [
        {kind for kind in ("area", "line", "mark") if row[kind]} for row in drawn(kinds)["datasets"].popitem()[1]
    ]
    assert drawn_as == [{"area", "line"}, {"line"}, {"mark"}]


@pytest.mark.parametrize("size", [1, 4])
def test_charts_that_are_made_without_a_check_keep_to_the_schema_of_vega_lite(size, curves):
    cells = pd.concat([CELLS] * size)
    legend = plots.legend([Series("a"), Series("b", area=0.3, colour=theme.SOFT)], 200)
    for chart in (curves, plots.heat(cells, "layer", "task", full=0.5), legend):
        chart.to_dict(validate=True)
