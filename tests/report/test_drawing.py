"""Charts drawn: as SVG in colours of the page, as files in light colours, and as what a browser draws again."""

import json
import math
import re
import struct
import xml.dom.minidom
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert
from page_checks import HOSTILE, Elements, marks

from lesion.report import drawing, theme

NAMES = [name.replace("\ud800", "") for name in HOSTILE] + [
    'x class="y" role="z', "url(#q)", "var(--soft)", "var(--nothing)", "1.23456", "-0.000123", "\ufffe\uffff",
    "a: b.c[0]",
]  # fmt: skip


def chart(names=("a", "b"), values=None) -> alt.Chart:
    """Points of a value each, told apart by name."""
    frame = pd.DataFrame({"name": list(names), "x": range(len(names)), "y": values or [0.1] * len(names)})
    return (
        alt.Chart(frame)
        .mark_point(color=theme.SOFT)
        .encode(
            x=alt.X(field="x", type="quantitative"),
            y=alt.Y(field="y", type="quantitative", scale=alt.Scale(domain=[0, 0.0005]), axis=alt.Axis(tickCount=5)),
            color=alt.Color(field="name", type="nominal", scale=alt.Scale(domain=list(names)), legend=alt.Legend()),
        )
        .properties(width=300, height=100)
    )


def painted(picture: str) -> list[tuple[str, str, list[float]]]:
    """Fill, stroke and coordinates of every path of a picture that has a colour, groups taken into account."""
    paths = [mark for mark in marks(picture) if "d" in mark and mark.get("opacity") != "0"]
    coloured = [(mark.get("fill", "none"), mark.get("stroke", "none"), mark["d"]) for mark in paths]
    return [
        (fill, stroke, [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", d)])
        for fill, stroke, d in coloured
        if (fill, stroke) != ("none", "none")
    ]


def labels(drawn: str) -> list[str]:
    """The texts of a picture."""
    root = xml.dom.minidom.parseString(drawn.encode()).documentElement
    return ["".join(node.data for node in text.childNodes) for text in root.getElementsByTagName("text")]


def test_a_specification_is_the_chart_with_its_data_in_it_and_the_house_style():
    specified = drawing.specification(chart(values=[1 / 3, 123456789.123]))
    assert specified["config"] == theme.config()
    assert "$schema" not in specified
    [rows] = specified["datasets"].values()
    assert rows == [{"name": "a", "x": 0, "y": 0.333333}, {"name": "b", "x": 1, "y": 123457000.0}]


def test_a_number_that_is_not_finite_is_null_for_the_browser_too():
    specified = drawing.specification(chart("abc", [math.nan, np.inf, 0.5]))
    [rows] = specified["datasets"].values()
    assert [row["y"] for row in rows] == [None, None, 0.5]
    json.dumps(specified, allow_nan=False)
    drawing.svg(specified)


def test_the_rows_of_a_frame_are_those_that_altair_gives():
    frame = pd.DataFrame(
        {
            "number": [0.5, math.nan, -math.inf],
            "whole": [1, 2, 3],
            "kept": [True, False, True],
            "text": ["a", None, ""],
            "mixed": [None, np.float64(0.25), "b"],
            "nullable": pd.array([7, None, 9], dtype="Int64"),
            3: np.array([1, 2, 3], dtype="int8"),
        },
        index=[5, 5, 6],
    )
    [rows] = drawing.specification(alt.Chart(frame).mark_point())["datasets"].values()
    frame.columns = list(map(str, frame.columns))
    [expected] = alt.Chart(frame).mark_point().to_dict(validate=False)["datasets"].values()
    assert rows == expected
    assert list(map(type, rows[0].values())) == list(map(type, expected[0].values()))


def test_more_rows_than_altair_takes_by_default_are_drawn():
    frame = pd.DataFrame({"x": np.arange(6000.0)})
    many = alt.Chart(frame).mark_point().encode(x=alt.X(field="x", type="quantitative"))
    [rows] = drawing.specification(many)["datasets"].values()
    assert len(rows) == 6000


def test_a_picture_has_the_colours_of_its_page_and_no_script_style_or_address():
    drawn = drawing.svg(drawing.specification(chart()))
    assert {"var(--t0)", "var(--t1)", "var(--soft)", "var(--ink)"} <= set(re.findall(r"var\(--\w+\)", drawn))
    assert not re.search(r"#[0-9a-f]{6}", drawn)
    for tag, attributes in Elements(drawn).found:
        assert tag in ("svg", "g", "path", "text", "line", "rect", "defs", "clippath")
        assert not {"class", "style", "role", "href", "xlink:href", "onload", "aria-label"} & set(attributes)


def test_names_are_drawn_as_they_are_whatever_is_in_them():
    drawn = drawing.svg(drawing.specification(chart(NAMES)))
    texts = labels(drawn)
    for name in NAMES:
        shown = re.sub("[\ufffe\uffff]", "\ufffd", name)
        escaped = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in shown
        )
        assert escaped in texts, name
    for file in (drawn, drawing.apart(drawn, "c1-"), drawing.svg_file(drawn)):
        assert labels(file) == texts
        assert {tag for tag, _ in Elements(file).found} <= {"svg", "g", "path", "text", "line", "rect", "defs"}
    assert drawing.png_file(drawn).startswith(b"\x89PNG")


def test_labels_of_ticks_keep_their_decimals_and_coordinates_are_rounded():
    drawn = drawing.svg(drawing.specification(chart()))
    assert {"0.0001", "0.0005"} <= set(labels(drawn))
    tags = "".join(re.findall("<[^>]*>", drawn))
    assert not re.search(r"\d\.\d{3}", tags)


def test_a_file_has_the_light_colours_on_their_paper():
    file = drawing.svg_file(drawing.svg(drawing.specification(chart())))
    tags = "".join(re.findall("<[^>]*>", file))
    assert "var(" not in tags
    assert theme.light()["t0"] in tags
    first = Elements(file).found[1]
    assert first == ("rect", {"width": "100%", "height": "100%", "fill": theme.light()["paper"]})


def test_a_png_has_twice_the_pixels_of_the_chart():
    drawn = drawing.svg(drawing.specification(chart()))
    width, height = map(float, re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn).groups())
    pixels = struct.unpack(">II", drawing.png_file(drawn)[16:24])
    assert pixels == pytest.approx((2 * width, 2 * height), abs=1)


def test_parts_of_several_pictures_have_names_of_their_own():
    clipped = chart().mark_point(clip=True)
    drawn = drawing.svg(drawing.specification(clipped))
    named = set(re.findall(r' id="([^"]*)"', drawn))
    assert named
    apart = drawing.apart(drawn, "c7-")
    assert set(re.findall(r' id="([^"]*)"', apart)) == {f"c7-{name}" for name in named}
    assert set(re.findall(r"url\(#([^)]*)\)", apart)) <= {f"c7-{name}" for name in named}


def test_the_script_that_draws_is_kept_in_the_cache(cache_of_the_tests):
    script = drawing.bundle()
    kept = next(cache_of_the_tests.glob("vega-*.js"))
    assert kept.read_text("utf-8") == script


def test_without_a_cache_the_script_is_put_together_anew(tmp_path, monkeypatch):
    script = drawing.bundle()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LESION_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: "a script")
    assert drawing.bundle.__wrapped__() == "a script"
    assert drawing.bundle() is script


def test_several_lines_in_a_cell_are_all_drawn_and_parts_without_paint_are_not():
    frame = pd.DataFrame({"x": [1], "text": ["a\nb"], "shown": [0]})
    text = alt.Chart(frame).mark_text(lineBreak="\n").encode(text="text:N")
    hidden = alt.Chart(frame).mark_rect().encode(x="x:O", opacity=alt.Opacity("shown:Q", scale=None))
    drawn = drawing.svg(drawing.specification(alt.layer(text, hidden)))
    assert [node.text for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("tspan")] == ["a", "b"]
    assert 'opacity="0"' not in drawn


def test_a_picture_is_smaller_and_has_the_same_marks_in_the_same_colours_and_places():
    specified = drawing.specification(chart(NAMES[:6]))
    heavy, light = vl_convert.vegalite_to_svg(json.dumps(specified)), drawing.svg(specified)
    assert len(light) < 0.7 * len(heavy)
    assert len(painted(heavy)) == len(painted(light)) > 6
    for (fill, stroke, before), (own_fill, own_stroke, after) in zip(painted(heavy), painted(light), strict=True):
        assert (fill, stroke) == (own_fill, own_stroke)
        assert after == pytest.approx(before, abs=0.051)
