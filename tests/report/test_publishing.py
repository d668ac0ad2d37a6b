"""A page published: its files, its policy, pictures and specifications of its charts, and texts that stay texts."""

import base64
import csv
import hashlib
import io
import json
import re
import time
import xml.dom.minidom
from dataclasses import replace

import chromium
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing, colours_of, inflated, marks

from lesion.report import drawing, plots, theme
from lesion.report.blocks import Claims, Facts, Figure, Folded, Link, Opening, Page, Panel, Prose, Section, Series
from lesion.report.claims import Claim
from lesion.report.plots import Axis
from lesion.report.publishing import html, publish
from lesion.report.table import Column, Table

NAMES = ("first", "param", "third")


def curves(names, height=0.1):
    """A chart of curves with guides."""
    frame = pd.DataFrame(
        [
            {"series": name, "x": x, "y": height * (x + number)}
            for number, name in enumerate(names)
            for x in range(4)
        ]
    )  # fmt: skip
    guide = pd.DataFrame({"x": range(4), "tip": [f"{x}\n" + "\n".join(names) for x in range(4)]})
    return plots.curves(frame, Axis("layer", 0.0, 3.0, whole=True), Axis("share", 0.0, 1.0), names, guide=guide)


def cells(names):
    """A heat map."""
    rows = [
        {"x": x, "y": name, "value": 0.1 * x, "text": f"{x}", "tip": name, "marked": x == 2, "edit": name}
        for name in names
        for x in range(3)
    ]  # fmt: skip
    return plots.heat(pd.DataFrame(rows), names[0], names[1], full=0.2)


def page(names=NAMES, title="A study") -> Page:
    """A page with every kind of block."""
    frame = pd.DataFrame({"name": list(names), "value": [0.5] * len(names)})
    columns = (Column("name", names[0], number=False), Column("value", names[1]))
    legend = tuple(Series(name, index) for index, name in enumerate(names))
    large = Figure(
        "curves", (Panel((cells(names), curves(names)), names[0]), Panel((curves(names, 0.2),), names[1])), names[2],
        legend,
    )  # fmt: skip
    small = Figure("small", (Panel((curves(names, 0.3),)),), "Unlabelled.", small=True)
    return Page(
        title=title,
        eyebrow=names[0],
        version=names[1],
        sections=(
            Section(
                "Findings",
                names[0],
                (Claims((Claim((names[1], names[2]), subject=names[0]), *[Claim((names[2],))] * 3)),),
            ),
            Section(
                "Charts",
                names[1],
                (large, Folded(names[0], (small, Table("folded", frame, columns, names[1], names[2])))),
            ),
            Section("Study", "The study", (Facts(((names[0], names[1]),)), Prose((names[0],), tuple(names), names[1]))),
        ),
        tables=(Table("beside", frame),),
        opening=Opening(names[0], replace(large, name="", panels=large.panels[:1])),
    )


@pytest.fixture(scope="module")
def text():
    return html(page())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "deep"
    assert publish(place, "drift", page()) == place / "report.html"
    return place


def specifications(text: str) -> tuple[dict, list[dict]]:
    """The configuration and the specifications that the page's script reads."""
    config, *charts = json.loads(inflated(text, "charts"))
    return config, charts


def test_a_page_its_figures_and_its_tables_are_written(folder, text):
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == {
        "lesion.json", "report.html", "beside.csv", "folded.csv",
        "figures/curves.png", "figures/curves.svg", "figures/small.png", "figures/small.svg",
    }  # fmt: skip
    assert (folder / "report.html").read_text("utf-8") == text
    rows = list(csv.reader(io.StringIO((folder / "beside.csv").read_text("utf-8"))))
    assert rows == [["name", "value"], *([name, "0.5"] for name in NAMES)]
    for path in (folder / "figures").glob("*.png"):
        assert colours_of(path.read_bytes()) > 50


def test_the_same_page_is_written_as_the_same_bytes(folder, tmp_path):
    publish(tmp_path, "drift", page())
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


def test_what_a_report_no_longer_has_is_gone_and_nothing_else(tmp_path):
    publish(tmp_path, "drift", page())
    (tmp_path / "own.csv").write_text("mine")
    noted = json.loads((tmp_path / "lesion.json").read_text("utf-8"))
    outside = tmp_path.parent / "outside.csv"
    outside.write_text("not of this folder")
    noted["written"] += ["../outside.csv", "summary.json", 7]
    (tmp_path / "lesion.json").write_text(json.dumps(noted), "utf-8")
    (tmp_path / "summary.json").write_text("{}")
    publish(tmp_path, "drift", replace(page(), sections=(), opening=Opening()))
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert left - {"own.csv", "summary.json"} == {"lesion.json", "report.html", "beside.csv"}
    assert {"own.csv", "summary.json"} <= left
    assert outside.exists()


def test_a_file_of_a_figure_has_all_its_panels_their_titles_and_one_legend(folder):
    root = xml.dom.minidom.parse(str(folder / "figures/curves.svg")).documentElement
    texts = ["".join(node.data for node in part.childNodes) for part in root.getElementsByTagName("text")]
    for name in NAMES:
        # Titles of the two panels, of the heat map's axis and rows, and once in the legend.
        assert texts.count(name) == {"first": 4, "param": 4, "third": 2}[name]
    drawn = (folder / "figures/curves.svg").read_text("utf-8")
    assert "var(--" not in drawn
    assert theme.light()["t1"] in drawn


def test_what_follows_the_pointer_is_not_in_a_file_and_a_series_called_param_is(folder):
    drawn = (folder / "figures/curves.svg").read_text("utf-8")
    lines = [mark["stroke"] for mark in marks(drawn) if "L" in mark.get("d", "") and mark.get("fill") == "none"]
    assert sorted(lines) == sorted([theme.light()[tone] for tone in ("t0", "t1", "t2")] * 2)


def test_every_chart_has_a_picture_on_the_page_and_a_specification_for_the_script(text):
    places = re.findall(
        r'<div class="vega" data-chart="(\d+)" role="img" aria-label="[^"]+">(<svg .*?</svg>)</div>', text
    )
    config, charts = specifications(text)
    assert [int(number) for number, _ in places] == [0, 1, 0, 1, 2, 3]  # the first panel stands in the first screen too
    assert len(charts) == 4
    assert config == theme.config()
    assert all("config" not in chart and "datasets" in chart for chart in charts)
    assert all("var(--t1)" in picture for number, picture in places if number != "0")
    named = [name for number, picture in places for name in re.findall(r' id="([^"]*)"', picture)]
    assert len(set(named)) == len(named)


def test_a_figure_has_one_legend_and_a_figure_without_one_leaves_it_to_its_charts(text):
    _, first, second = re.split("<figure [^>]*>", text)[1:]
    assert first.count('<div class="legend">') == 1
    assert first.count('<svg class="swatch"') == len(NAMES)
    assert "legend" not in second.split("<figcaption>")[0]
    *_, own = specifications(text)[1]

    def legends(chart):
        return [
            encoding.get("legend", {})
            for layer in chart["layer"]
            for name, encoding in layer.get("encoding", {}).items()
            if name in ("color", "shape")
        ]

    assert set(map(str, legends(specifications(text)[1][1]))) == {"None"}
    assert None not in legends(own)
    assert "third" in second.split('data-chart="3"')[1].split("</svg>")[0]
    assert ">third<" not in first.split('data-chart="1"')[1].split("</svg>")[0]


def test_figures_are_numbered_in_reading_order_the_folded_ones_too(text):
    assert re.findall(r"<b>Figure (\d)\.</b>", text) == ["1", "2", "3"]


def test_the_policy_allows_these_scripts_by_their_hash_and_nothing_else(text):
    policy = next(a["content"] for _, a in Elements(text).found if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in rules["script-src"]
    own = Elements(text).inside["script"][-1]
    scripts = [own, inflated(text, "vega")]
    assert scripts[1] == drawing.bundle()
    assert [a.get("type") for tag, a in Elements(text).found if tag == "script"] == [*["text/plain"] * 3, None]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert sorted(rules["script-src"].split()) == sorted(f"'sha256-{one}'" for one in hashes)
    assert_asks_for_nothing(text)


def test_a_page_without_charts_carries_no_library_and_has_its_style_by_hash():
    plain = html(Page("A study", "made", (Section("Findings", "Findings", (Prose(("Nothing.",)),)),)))
    assert len(plain) < 100_000
    [style] = Elements(plain).inside["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in plain
    assert "unsafe" not in plain.split("<style>")[0]
    assert_asks_for_nothing(plain)


def test_texts_of_others_add_no_element_and_no_attribute_anywhere():
    hostile = [name.replace("\ud800", "\ufffd") for name in HOSTILE]
    tame = [f"tame{number}" for number in range(len(hostile))]

    def shape(names):
        return {(tag, *sorted(attributes)) for tag, attributes in Elements(html(page(names, names[0]))).found}

    assert shape(hostile) <= shape(tame)
    text = html(page(hostile, hostile[0]))
    assert_asks_for_nothing(text)
    shown = {row["series"] for chart in specifications(text)[1] for data in chart["datasets"].values() for row in data
             if "series" in row}  # fmt: skip
    assert {drawing.seen(name) for name in hostile} == shown


def places(text: str) -> list[tuple[str, str]]:
    """The parts of the page with the name of their sections, in reading order."""
    named = [(a.get("data-part"), a.get("id")) for tag, a in Elements(text).found if "data-part" in a]
    return [(str(part), str(name)) for part, name in named]


def test_verdict_evidence_charts_tables_and_method_follow_one_another_whatever_the_order_of_sections():
    facts, frame = Facts((("seed", "1"),)), pd.DataFrame({"a": [1.0]})
    a, b = (Figure(name, (Panel((curves(NAMES),)),), "A.") for name in "ab")
    sections = (
        Section("Study", "The study", (facts,)),
        Section("Numbers", "Numbers", (Table("numbers", frame, (Column("a", "A"),)),)),
        Section("Curves", "Curves", (a, Prose(("More.",)), b)),
        Section("Findings", "Findings", (Claims((Claim(("From 1 to 0 [0, 1].",)),)),)),
        Section("Plan", "Plan", (Prose(("A plan.",)), Table("", frame, (Column("a", "A"),))), within="method"),
    )  # fmt: skip
    text = html(Page("A study", "made", sections, opening=Opening("It is so.", a)))
    assert places(text) == [
        ("verdict", "verdict"), ("evidence", "findings"), ("charts", "curves"), ("tables", "numbers"),
        ("method", "study"), ("method", "plan"),
    ]  # fmt: skip
    links = [a["href"] for tag, a in Elements(text).found if tag == "a" and a.get("class") != "skip"]
    assert links == [f"#{name}" for _, name in places(text)]
    opening = text.split('id="verdict"')[1].split("</section>")[0]
    assert "It is so." in opening
    assert opening.count('class="vega"') == 1  # moved there from its section
    assert text.count('class="vega"') == 2


def test_a_study_says_itself_what_its_first_screen_shows():
    section = Section("Findings", "Findings", (Claims((Claim(("Long.",)),)),))
    own = Opening("Short, 5 %.", Figure("own", (Panel((curves(NAMES),)),), "Own."))
    page = Page("A study", "made", (section,), opening=own, back=Link("all", "../report.html"))
    opening = html(page).split('id="verdict"')[1].split("</section>")[0]
    assert "Short, 5 %." in opening
    assert "Own." in opening
    assert [block.name for block in page.blocks() if isinstance(block, Figure)] == ["own"]
    assert '<a href="../report.html">all</a>' in html(page)


def test_every_figure_and_every_table_names_the_file_that_it_is_downloaded_as(text):
    figures = [a["data-name"] for tag, a in Elements(text).found if tag == "figure"]
    assert figures == ["figure-1", "curves", "small"]
    assert [a["data-name"] for tag, a in Elements(text).found if tag == "table"] == ["folded"]


def test_a_map_says_how_wide_it_must_be_for_its_texts():
    frame = pd.DataFrame([{"x": x, "y": "a", "value": 0.1, "text": "12.5", "tip": "", "marked": False}
                          for x in range(40)])  # fmt: skip
    wide = plots.heat(frame, "", "", full=1.0).to_dict()["usermeta"]["least"]
    narrow = plots.heat(frame[:5], "", "", full=1.0).to_dict()["usermeta"]["least"]
    assert wide > 40 * 0.5 * 11 * 4 > 300 > narrow


@pytest.mark.slow
@pytest.mark.skipif(chromium.found() is None, reason="no Chromium is installed")
def test_downloads_hold_the_data_the_picture_and_the_specification_and_request_nothing(tab, tmp_path):
    publish(tmp_path, "drift", page())
    address = (tmp_path / "report.html").as_uri()
    tab.open(address)
    tab.ask("window.saved = {}; URL.createObjectURL = (blob) => { window.saved[blob.type] = blob; return '#'; }")
    buttons = "[...document.querySelectorAll('figure[data-name=small] .downloads button')]"
    tab.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert tab.ask(f"{buttons}.map(b => b.textContent)") == ["CSV", "PNG", "SVG", "Vega-Lite"]
    tab.ask(f"{buttons}.forEach(b => b.click())")
    for _ in range(100):
        if tab.ask("Object.keys(window.saved).length") == 4:
            break
        time.sleep(0.05)
    rows = list(csv.DictReader(io.StringIO(tab.ask("window.saved['text/csv'].text()"))))
    expected = [(name, float(x), 0.3 * (x + number)) for number, name in enumerate(NAMES) for x in range(4)]
    assert [(row["series"], float(row["x"]), pytest.approx(float(row["y"]))) for row in rows] == expected
    chart = json.loads(tab.ask("window.saved['application/json'].text()"))
    assert chart["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert "var(--" not in json.dumps(chart)
    drawn = tab.ask("window.saved['image/svg+xml'].text()")
    assert "var(--" not in drawn
    xml.dom.minidom.parseString(drawn)
    assert tab.ask("window.saved['image/png'].size") > 5_000
    assert tab.complaints == []
    assert [request for request in tab.requests if not request.startswith("data:")] == [address]
