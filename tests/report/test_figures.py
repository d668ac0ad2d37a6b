"""A figure as one specification: in a notebook it has the titles and the one legend that its files have."""

import json
import xml.dom.minidom
from collections import Counter

import pandas as pd
import pytest
import vl_convert
from page_checks import marks

from lesion.report import notebook, plots, theme
from lesion.report.blocks import Figure, Page, Panel, Section, Series
from lesion.report.figures import Drawing
from lesion.report.plots import Axis
from lesion.report.publishing import publish

MODELS = ("./base", "./tuned")


def curves(height=0.1):
    """A curve for each of two models, with what pointing at a place shows."""
    frame = pd.DataFrame(
        [{"series": name, "x": x, "y": height * (x + n)} for n, name in enumerate(MODELS) for x in range(4)]
    )
    guide = pd.DataFrame({"x": range(4), "tip": [f"block {x}" for x in range(4)]})
    return plots.curves(frame, Axis("block", 0.0, 3.0, whole=True), Axis("share", 0.0, 1.0), MODELS, guide=guide)


def figure(panels: int) -> Figure:
    legend = (*(Series(name, number) for number, name in enumerate(MODELS)), Series("unedited", dash=(2.0, 4.0)))
    tasks = [Panel((curves(0.1 + 0.01 * number),), f"task {number}, n = 100") for number in range(panels)]
    return Figure("drops", tuple(tasks), "What falls.", legend)


def texts(picture: str) -> Counter[str]:
    """The texts of a picture, each with how often it stands there."""
    root = xml.dom.minidom.parseString(picture.encode()).documentElement
    return Counter("".join(node.data for node in text.childNodes) for text in root.getElementsByTagName("text"))


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_a_notebook_shows_the_titles_and_the_one_legend_of_the_file(panels, tmp_path):
    drawn = figure(panels)
    publish(tmp_path, "ablation", Page("Drops", "drops", (Section("C", "Charts", (drawn,)),)))
    filed = texts((tmp_path / "figures" / "drops.svg").read_text("utf-8"))
    shown = Drawing.of(drawn)._repr_mimebundle_()
    of_vega = vl_convert.vegalite_to_svg(json.dumps(shown["application/vnd.vegalite.v6+json"]))
    for picture in (shown["image/svg+xml"], of_vega):
        assert +texts(picture) == filed
    assert [filed[name] for name in (*MODELS, "unedited")] == [1, 1, 1]
    assert [filed[panel.title] for panel in drawn.panels] == [1] * panels


def test_the_legend_of_a_notebook_has_the_colour_of_every_curve():
    shown = Drawing.of(figure(1))._repr_mimebundle_()["image/svg+xml"]
    colours = Counter(mark.get("fill") for mark in marks(shown) if "d" in mark)
    for number in range(2):  # four points of the curve, and one mark of the legend
        assert colours[theme.light()[f"t{number}"]] == 5


def test_a_notebook_follows_the_pointer_in_every_panel():
    specified = Drawing.of(figure(2)).specified
    views = [view for param in specified["params"] for view in param["views"]]
    assert len(views) == len({*views}) == 2
    assert all(json.dumps(specified).count(f'"name": "{view}"') == 1 for view in views)
    assert json.dumps(specified).count('"tooltip"') == 2


def test_equal_panels_are_drawn_too():
    drawn = Drawing.of(Figure("drops", (Panel((curves(),), "one"), Panel((curves(),), "two")), "", figure(1).legend))
    found = texts(drawn._repr_mimebundle_()["image/svg+xml"])
    assert found["one"] == found["two"] == found["./base"] == 1


def test_the_cell_of_a_result_has_titles_and_one_legend():
    html = str(notebook.chart(figure(3)))
    assert html.count(">./base<") == html.count(">task 0, n = 100<") == html.count(">task 1, n = 100<") == 1
    assert "1 more panels: result.plot()." in html
