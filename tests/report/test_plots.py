"""The plots that studies share: what data they hold, and how these are encoded."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
from page_checks import marks
from palettes import contrast, palettes

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


def drawn(chart) -> dict[str, Any]:
    return drawing.specification(chart)


def layers(chart) -> dict[str, dict[str, Any]]:
    """The layers of a chart by their mark."""
    return {layer["mark"]["type"]: layer for layer in drawn(chart)["layer"]}


def rows(chart, layer: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of a layer."""
    specified = drawn(chart)
    return specified["datasets"][layer.get("data", specified.get("data"))["name"]]


def encodings(value: Any):
    """Every encoding of a specification that shows a field."""
    if isinstance(value, dict):
        if "field" in value:
            yield value
        for part in value.values():
            yield from encodings(part)
    elif isinstance(value, list):
        for part in value:
            yield from encodings(part)


@pytest.fixture
def curves():
    return plots.curves(pd.DataFrame(ROWS), LAYER, SHARE, SERIES)


def test_curves_hold_every_row_and_name_their_fields_and_types(curves):
    found = layers(curves)
    assert list(found) == ["area", "line", "point"]
    for layer in found.values():
        data = rows(curves, layer)
        assert [(row["series"], row["x"], row["tip"]) for row in data] == [
            (r["series"], r["x"], r["tip"]) for r in ROWS
        ]
        assert [row["y"] for row in data] == [None if r["y"] is None else pytest.approx(r["y"]) for r in ROWS]
    area = found["area"]["encoding"]
    assert (area["y"]["field"], area["y2"]["field"], area["x"]["field"]) == ("low", "high", "x")
    assert found["line"]["encoding"]["y"]["field"] == "y"
    assert found["point"]["encoding"]["tooltip"]["field"] == "tip"
    for encoding in encodings(drawn(curves)):
        assert encoding["field"] in ("series", "x", "y", "low", "high", "tip")


def test_a_curve_breaks_where_there_is_no_number_and_has_no_mark_there(curves):
    found = layers(curves)
    assert found["line"]["mark"]["invalid"] == "break-paths-show-path-domains"
    assert found["point"]["transform"] == [{"filter": "isValid(datum.y)"}]
    picture = drawing.svg(drawn(curves))
    [broken] = [
        mark["d"] for mark in marks(picture) if mark.get("stroke") == theme.TONES[0] and "L" in mark.get("d", "")
    ]
    assert broken.count("M") == 2


def test_series_have_colours_and_marks_in_order_or_by_the_numbers_given():
    for numbers, expected in ((None, (0, 1)), ((5, 2), (5, 2))):
        point = layers(plots.curves(pd.DataFrame(ROWS), LAYER, SHARE, SERIES, numbers=numbers))["point"]["encoding"]
        assert point["color"]["scale"] == {"domain": list(SERIES), "range": [theme.TONES[i] for i in expected]}
        assert point["shape"]["scale"] == {"domain": list(SERIES), "range": [theme.SHAPES[i] for i in expected]}


@pytest.mark.parametrize(("spread", "mark"), [("bars", "rule"), ("none", None)])
def test_a_spread_is_a_band_or_bars_or_none(spread, mark):
    found = layers(plots.curves(pd.DataFrame(ROWS), LAYER, SHARE, SERIES, spread=spread, marks=False))
    assert set(found) == {"line", *([mark] if mark else [])}
    if mark:
        assert found[mark]["encoding"]["y2"] == {"field": "high"}


@pytest.mark.parametrize("missing", ["drop", "none"])
def test_without_a_spread_in_the_data_none_is_drawn(missing):
    frame = pd.DataFrame(ROWS)
    frame = frame.drop(columns=["low", "high"]) if missing == "drop" else frame.assign(low=None, high=None)
    assert set(layers(plots.curves(frame, LAYER, SHARE, SERIES))) == {"line", "point"}


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


def test_a_guide_in_one_place_alone_answers_for_the_whole_axis():
    guide = pd.DataFrame({"x": [2], "tip": ["two"]})
    [row] = rows(plots.guides(guide, Axis("a", 0.0, 5.0)), {})
    assert (row["begin"], row["end"]) == (0, 5)
    plots.guides(guide.iloc[:0], Axis("a"))


def test_no_colour_is_written_but_by_role(curves):
    heat = plots.heat(
        pd.DataFrame([{"x": 1, "y": "a", "value": 0.1, "text": "10", "tip": "", "marked": False}]),
        "layer",
        "",
        full=1.0,
    )
    for chart in (curves, heat, plots.legend([Series("a"), Series("b", area=True, colour=theme.SOFT)], 200)):
        assert not re.search(r'"#[0-9a-fA-F]{3,8}"|rgb\(', str(drawn(chart)).replace("'", '"'))


@pytest.mark.parametrize(
    ("axis", "scale"),
    [
        (Axis("a"), {}),
        (Axis("a", 0.0, 2.0), {"domain": [0.0, 2.0]}),
        (Axis("a", low=1.0), {"domainMin": 1.0}),
        (Axis("a", high=1.0), {"domainMax": 1.0}),
        (Axis("a", 0.001, 1.0, kind="log"), {"domain": [0.001, 1.0], "type": "log"}),
    ],
)
def test_an_axis_has_the_ends_that_it_is_given(axis, scale):
    plain = {"type": "linear", "nice": False} | ({} if axis.kind == "log" else {"zero": False})
    assert axis.scale.to_dict() == plain | scale


@pytest.mark.parametrize(("high", "ticks"), [(1.0, [0, 1]), (2.0, [0, 1, 2]), (2.5, [0, 1, 2]), (60.0, None)])
def test_a_short_axis_of_whole_numbers_has_a_tick_at_each(high, ticks):
    made = Axis("step", 0.0, high, whole=True).axis.to_dict()
    assert made.get("values") == ticks


def test_an_axis_of_whole_numbers_has_no_tick_between_them(curves):
    line = layers(curves)["line"]["encoding"]
    assert (line["x"]["axis"]["tickMinStep"], line["x"]["axis"]["format"]) == (1, "d")
    assert line["y"]["axis"]["format"] == ".0%"
    assert line["x"]["scale"]["domain"] == [0, 3]
    assert Axis("a", ticks=(1.0, 10.0)).axis.to_dict()["values"] == [1.0, 10.0]


CELLS = pd.DataFrame(
    [
        {"x": 0, "y": "a: b.c", "value": 0.5, "text": "50", "tip": "half", "marked": True, "edit": "0×0"},
        {"x": 1, "y": "a: b.c", "value": -0.25, "text": "−25", "tip": "less", "marked": False, "edit": "1×0"},
        {"x": 0, "y": "d", "value": None, "text": "", "tip": "not measured yet", "marked": False, "edit": None},
    ]
)


def test_a_heat_map_holds_a_row_per_cell_with_what_a_click_opens():
    chart = plots.heat(CELLS, "layer", "task", full=0.5)
    for layer in drawn(chart)["layer"]:
        data = rows(chart, layer)
        assert [(row["x"], row["y"], row["value"], row["edit"]) for row in data] == [
            (0, "a: b.c", 0.5, "0×0"), (1, "a: b.c", -0.25, "1×0"), (0, "d", None, None),
        ]  # fmt: skip
        assert [row["size"] for row in data] == [0.5, 0.25, None]
    opacity = [
        encoding["scale"] for layer in drawn(chart)["layer"] for encoding in encodings(layer)
        if encoding["field"] == "size"
    ]  # fmt: skip
    assert opacity == [{"clamp": True, "domain": [0, 0.5], "range": [0, 1]}]
    x, y = (drawn(chart)["encoding"][name] for name in "xy")
    assert (x["scale"]["domain"], y["scale"]["domain"]) == ([0, 1], ["a: b.c", "d"])


def test_a_heat_map_has_its_rows_and_columns_in_the_order_given():
    chart = plots.heat(CELLS, "layer", "task", full=0.5, columns=[2, 1, 0], rows=["d", "a: b.c"])
    x, y = (drawn(chart)["encoding"][name] for name in "xy")
    assert (x["scale"]["domain"], y["scale"]["domain"]) == ([2, 1, 0], ["d", "a: b.c"])
    assert drawn(chart)["height"] == 2 * 28


def test_losses_and_gains_have_their_colours_and_a_marked_cell_a_box():
    picture = drawing.svg(drawn(plots.heat(CELLS, "layer", "task", full=0.5)))
    filled = [
        (mark["fill"], mark.get("fill-opacity")) for mark in marks(picture) if mark["fill"] in (theme.LOSS, theme.GAIN)
    ]
    assert sorted(filled) == [(theme.GAIN, "0.5"), (theme.LOSS, None)]
    assert [mark.get("stroke") for mark in marks(picture)].count(theme.INK) == 1


def test_a_heat_map_of_nothing_but_missing_numbers_is_drawn():
    chart = plots.heat(CELLS.assign(value=None), "layer", "task", full=0.5)
    assert not re.search(r'fill="var\(--(loss|gain)\)"', drawing.svg(drawn(chart)))


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
    kinds = plots.legend([Series("a", dashed=True, area=True), Series("b", dashed=True), Series("c")], 520)
    drawn_as = [
        {kind for kind in ("area", "line", "mark") if row[kind]} for row in drawn(kinds)["datasets"].popitem()[1]
    ]
    assert drawn_as == [{"area", "line"}, {"line"}, {"mark"}]


def seen_on(colours: dict[str, str], role: str, opacity: float) -> str:
    """The colour of a cell: one colour laid over the shade of the page, channel by channel."""
    above, below = ([int(colours[name][place : place + 2], 16) for place in (1, 3, 5)] for name in (role, "shade"))
    return "#" + "".join(
        f"{round(opacity * over + (1 - opacity) * under):02x}" for over, under in zip(above, below, strict=True)
    )


@pytest.mark.parametrize("colours", [(theme.LOSS, theme.GAIN), (theme.SHARE, theme.GAIN)], ids=str)
def test_the_text_of_every_cell_stands_out_from_its_colour_on_light_and_on_dark_pages(colours):
    values = [value / 50 for value in range(-60, 61)]
    frame = pd.DataFrame(
        [
            {"x": 0, "y": str(row), "value": value, "text": "1", "tip": "", "marked": False}
            for row, value in enumerate(values)
        ]
    )
    shown = rows(plots.heat(frame, "", "", full=1.0, colours=colours), {})
    for row in shown:
        fill = colours[row["value"] < 0].removeprefix("var(--").removesuffix(")")
        text = row["ink"].removeprefix("var(--").removesuffix(")")
        for page in palettes():
            cell = seen_on(page, fill, min(1.0, abs(row["value"])))
            assert contrast(page[text], cell) >= 4.5, row  # WCAG 1.4.3
    assert len({row["ink"] for row in shown}) > 1


def test_a_text_that_is_too_wide_for_its_cell_hides_no_other():
    rows_of = [
        {"x": x, "y": "a", "value": 0.1, "text": text, "tip": "", "marked": False}
        for x, text in enumerate(["12\n[1, 2]", "a text of many more letters than a cell has room for", "–"])
    ]
    drawn_texts = re.findall(r">([^<>]+)</t", drawing.svg(drawn(plots.heat(pd.DataFrame(rows_of), "", "", full=1.0))))
    assert {"12", "[1, 2]", "–"} <= set(drawn_texts)
    assert not [text for text in drawn_texts if "letters" in text]


@pytest.mark.parametrize("size", [1, 4])
def test_charts_that_are_made_without_a_check_keep_to_the_schema_of_vega_lite(size, curves):
    cells = pd.concat([CELLS] * size)
    legend = plots.legend([Series("a"), Series("b", area=True, colour=theme.SOFT)], 200)
    for chart in (curves, plots.heat(cells, "layer", "task", full=0.5), legend):
        chart.to_dict(validate=True)
