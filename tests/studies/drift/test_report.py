"""A drift study's files: a page that asks for nothing and holds texts as texts, tables, figures."""

import io
import itertools
from pathlib import Path

import made_drift as made
import pandas as pd
import pytest
from made_drift import changed
from page_checks import HOSTILE, Elements, assert_asks_for_nothing, colours_of, scripts
from rich.console import Console

from lesion.report.blocks import Figure
from lesion.report.drawing import specification
from lesion.report.publishing import html
from lesion.statistics.paired import wilson
from lesion.studies.drift.report import DriftResult
from lesion.studies.drift.result import DriftSummary
from runs import page_of


@pytest.fixture(scope="module")
def whole():
    return made.study()


@pytest.fixture(scope="module")
def whole_figures(whole):
    return figures(whole)


@pytest.fixture(scope="module")
def single():
    return made.study(families=("llama",), variants=("base",), clusters=(50,))


@pytest.fixture(scope="module")
def text(written):
    return written.read_text("utf-8")


@pytest.fixture(scope="module")
def written(whole, tmp_path_factory):
    return DriftResult(tmp_path_factory.mktemp("drift") / "deep", whole).report()


@pytest.fixture(scope="module")
def page_of_one(single):
    return html(page_of(DriftResult, single))


def shown(summary, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(DriftResult(Path("none"), summary).text(every=True))
    return console.file.getvalue()


def texts(page: str, tag: str, name: str) -> list[str]:
    """The texts of the elements of a class."""
    pieces = page.split(f'<{tag} class="{name}">')[1:]
    return [piece.split(f"</{tag}>")[0] for piece in pieces]


def figures(summary) -> list[Figure]:
    blocks = page_of(DriftResult, summary).blocks()
    return list({block.name: block for block in blocks if isinstance(block, Figure)}.values())


def data(chart, *columns: str) -> list[tuple]:
    """The rows of all data of a chart that have these columns."""
    every = (row for rows in specification(chart)["datasets"].values() for row in rows)
    return [tuple(row[column] for column in columns) for row in every if set(columns) <= set(row)]


def layers_of(specified: dict) -> list[dict]:
    """The layers of a specification, those within others too."""
    if "layer" not in specified:
        return [specified]
    return [inner for layer in specified["layer"] for inner in layers_of(layer)]


def rounded(*values: float) -> list[object]:
    """The values as charts have them, with six significant digits."""
    return [pytest.approx(value, rel=1e-5) for value in values]


def with_layers(summary, **entries):
    """The summary with entries of every layer of its first model replaced."""
    layers = [layer.model_dump() | entries for layer in summary.models[0].curve.layers]
    return changed(summary, curve={"layers": layers})


def test_a_study_becomes_a_page_tables_and_figures(written):
    assert written.parts[-2:] == ("deep", "report.html")
    drawn = ("drift", "cosine", "cka", "classes", "clusters")
    names = [f"figures/{name}.{form}" for name in drawn for form in ("png", "svg")]
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        "lesion.json", "report.html", "summary.json", "drift.csv", "shapes.csv", "tokens.csv", "flow.csv", *names
    }  # fmt: skip
    for path in (written.parent / "figures").glob("*.png"):
        assert colours_of(path.read_bytes()) > 50


def test_the_same_summary_is_written_as_the_same_bytes(single, tmp_path):
    first, second = (DriftResult(tmp_path / name, single).report().parent for name in "ab")
    for path in first.rglob("*.*"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_summary_is_read_back_from_its_json_as_it_was(whole):
    assert DriftSummary.model_validate_json(whole.text()) == whole


def test_a_study_of_one_model_without_critical_layers_or_hinge_is_told_as_such():
    summary = made.study(families=("llama",), variants=("base",), clusters=(50,), critical=False, bend=False)
    page = html(page_of(DriftResult, summary))
    assert "An even fall is not rejected" in page
    assert "--study FOLDER</code>" in page
    assert "data-shows" not in page.split("<main>")[1].split("</main>")[0]
    figure = figures(summary)[0]
    assert data(figure.panels[0].charts[0], "start", "through") == []
    assert not {"critical block", "step or bend"} & {series.name for series in figure.legend}


@pytest.mark.parametrize("entries", [
    {"labels": {}}, {"nmi": None}, {"null": None}, {"cosine": None}, {"cka": None}, {"nmi": {"mean": 0.5, "std": None}},
])  # fmt: skip
def test_any_measure_may_be_missing_from_every_layer(single, entries):
    summary = with_layers(single, **entries)
    page = html(page_of(DriftResult, summary))
    assert "Which tokens left their cluster?" in page
    assert "None ±" not in page
    shown(summary)


@pytest.mark.parametrize("entries", [
    {"curve": {"shape": None}}, {"critical": None, "compared": None}, {"critical": {}, "compared": None}, {"runs": []},
    {"curve": {"ceiling": None}}, {"family": "", "variant": None}, {"curve": {"shape": None, "ceiling": None}},
])  # fmt: skip
def test_what_is_not_known_of_a_model_is_left_out(single, entries):
    summary = changed(single, **entries)
    assert page_of(DriftResult, summary).sections
    assert "None" not in shown(summary)


def test_a_study_that_has_measured_nothing_says_so():
    summary = made.study(families=())
    assert DriftResult(Path("none"), summary).verdict == "Nothing has been measured yet."
    assert html(page_of(DriftResult, summary))


def test_the_page_asks_for_nothing_outside_itself(text):
    assert_asks_for_nothing(text)


def test_every_link_of_the_page_leads_to_a_section_of_it(text):
    elements = Elements(text).found
    places = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = {attributes["href"] for tag, attributes in elements if tag == "a"}
    assert {"#shapes", "#tokens", "#study"} <= links
    assert {link.removeprefix("#") for link in links} <= places


def test_hostile_names_and_tokens_add_no_element_and_no_attribute():
    def shape(page: str) -> set[tuple[str, ...]]:
        return {(tag, *sorted(attributes)) for tag, attributes in Elements(page).found}

    def named(names):
        """The made study with every free text replaced by one of the names in turn."""
        following = itertools.cycle(names)
        free = ("variant", "token", "before", "after", "item", "title")
        labels = dict(zip(("token class", "token"), names, strict=False))

        def renamed(value):
            if isinstance(value, list):
                return [renamed(part) for part in value]
            if not isinstance(value, dict):
                return value
            row = {key: renamed(part) for key, part in value.items()}
            row |= {key: next(following) for key in free if isinstance(row.get(key), str)}
            row |= {"kind": next(following)} if "share" in row and "left" in row else {}
            row |= {"name": next(following)} if "matched" in row or ("into" in row and "others" in row) else {}
            row |= {"labels": {labels[key]: part for key, part in row["labels"].items()}} if "labels" in row else {}
            return row

        made_study = made.study(families=("llama",), variants=("base", "rlvr"), clusters=(50, 10))
        summary = renamed(made_study.model_dump(mode="json"))
        summary["study"]["task"]["name"] = names[2]
        for number, model in enumerate(summary["models"]):
            model |= {"name": names[number], "family": names[3], "variant": f"{number}{names[1]}"}
            model |= {"critical": {name: [number] for name in names[:3]}, "compared": None}
        return html(page_of(DriftResult, DriftSummary.model_validate(summary | {"notes": list(names)})))

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    assert len(Elements(hostile).inside["script"]) == scripts(hostile) == 4
    assert not {tag for tag, *_ in shape(hostile)} & {"img", "iframe", "object", "embed", "base"}
    assert shape(hostile) <= shape(named([f"tame{i}" for i in range(len(HOSTILE))]))


def test_what_cannot_be_seen_in_a_token_or_its_context_is_not_written(single):
    tokens = single.models[0].tokens.model_dump()
    first = tokens["types"][0] | {"token": "\u202eevil\x1b[31m"}
    first["examples"] = [
        {"before": "a\u202e\n", "token": " x\u200b", "after": "\x00b\t", "item": "\u2066i", "run": 0, "cluster": 0,
         "into": 1}
    ]  # fmt: skip
    summary = changed(single, tokens=tokens | {"types": [first]})
    page = html(page_of(DriftResult, summary))
    for character in "\u202e\x1b\u200b\u2066\x00":
        assert character not in page
    assert "<bdi>a�⏎</bdi><mark>␣x�</mark><bdi>�b⇥</bdi>" in page


def test_numbers_that_are_not_known_are_dashes_in_the_page(single):
    layers = [layer.model_dump() for layer in single.models[0].curve.layers]
    layers[3] |= {"nmi": None, "null": None, "cka": None}
    unknown = {"hinge": {"low": None, "high": None, "p": None, "detectable": None}, "share": None}
    page = html(page_of(DriftResult, changed(single, curve={"layers": layers}, shape=unknown)))
    body = page.split("<main>")[1].split("</main>")[0]
    assert "nan" not in body.lower()
    row = next(row for row in page.split("<tr>") if '<td class="name">3</td>' in row)
    assert 'data-v="None">–</td>' in row


# -- charts


def curves(figure, number=0) -> dict[str, list[tuple]]:
    """The points of a panel's curves, by series."""
    points = data(figure.panels[number].charts[0], "series", "x", "y", "low", "high")
    return {name: [point[1:] for point in points if point[0] == name] for name in dict.fromkeys(p[0] for p in points)}


def test_a_chart_holds_the_mean_and_spread_of_every_layer_and_tells_them(single):
    figure, layers = figures(single)[0], single.models[0].curve.layers
    drawn = curves(figure)
    assert list(drawn) == ["With first clusters", "With token identity", "With first clusters, tokens whole",
                           "Shuffled tokens"]  # fmt: skip
    assert drawn["With first clusters"] == [
        (layer.layer, *rounded(nmi.mean, nmi.mean - nmi.std, nmi.mean + nmi.std))
        for layer in layers
        if (nmi := layer.nmi)
    ]
    tips = dict(data(figure.panels[0].charts[0], "x", "tip"))
    assert f"With first clusters: {layers[3].nmi.mean:.3f} ± {layers[3].nmi.std:.3f}" in tips[3].splitlines()


def test_a_curve_is_not_drawn_over_a_layer_that_is_not_known(single):
    layers = [layer.model_dump() for layer in single.models[0].curve.layers]
    layers[3]["nmi"] = None
    drawn = curves(figures(changed(single, curve={"layers": layers}))[0])["With first clusters"]
    assert [layer for layer, value, *_ in drawn if value is None] == [3]


def test_critical_blocks_stand_between_the_layers_that_they_join_and_bends_at_their_intervals(whole, whole_figures):
    figure = whole_figures[0]
    for model, panel in zip(whole.models, figure.panels, strict=True):
        *blocks, (low, high) = data(panel.charts[0], "start", "through")
        assert blocks == [(block, block + 1) for block in made.CRITICAL[model.family]]
        assert [low, high] == rounded(model.curve.shape.hinge.low, model.curve.shape.hinge.high)


def test_every_model_has_a_panel_of_its_own_under_the_drawn_number_of_clusters(whole, whole_figures):
    figure = whole_figures[0]
    assert [panel.title.lower() for panel in figure.panels] == [
        model.name.removeprefix("bundled:") for model in whole.models
    ]
    for number, model in enumerate(whole.models):
        drawn = curves(figure, number)["With first clusters"]
        assert [y for _, y, *_ in drawn] == pytest.approx([layer.nmi.mean for layer in model.curve.layers], abs=1e-5)


def test_the_page_says_what_a_layer_is_and_which_all_are_compared_with(single, page_of_one):
    assert "Layer 0 is what enters block 0, layer l the output of block l − 1" in page_of_one
    layers = [layer.model_dump() for layer in single.models[0].curve.layers[1:]]
    summary = changed(single, study={"layer_zero": "block"}, curve={"layers": layers})
    assert "with those of layer 1" in figures(summary)[0].caption


def test_other_clusters_are_curves_of_their_own(whole, whole_figures):
    (figure,) = (figure for figure in whole_figures if figure.name == "clusters")
    assert {series.name for series in figure.legend} == {"10", "30", "50", "70"}
    ten = curves(figure)["10"]
    assert [y for _, y, *_ in ten] == pytest.approx(
        [layer.nmi.mean for layer in whole.models[0].under(10).layers], abs=1e-5
    )


# -- tables and tokens


def test_layers_are_written_unrounded_with_a_row_per_model_clusters_and_layer(whole, written):
    table = pd.read_csv(written.parent / "drift.csv")
    assert len(table) == sum(len(curve.layers) for model in whole.models for curve in model.curves)
    for model in whole.models:
        for curve in model.curves:
            rows = table[(table["model"] == model.name) & (table["clusters"] == curve.clusters)]
            assert list(rows["layer"]) == [layer.layer for layer in curve.layers]
            assert list(rows["nmi"]) == pytest.approx([layer.nmi.mean for layer in curve.layers], abs=1e-15)
            assert list(rows["null_std"]) == pytest.approx([layer.null.std for layer in curve.layers], abs=1e-15)


def test_shapes_stand_in_a_table_with_their_distance_to_the_nearest_critical_block(whole, written):
    table = pd.read_csv(written.parent / "shapes.csv")
    for model in whole.models:
        row = table[(table["model"] == model.name) & (table["clusters"] == 50)].iloc[0]
        at = model.curve.shape.hinge.layer
        expected = min(
            (min((at - place for place in (block, block + 1)), key=abs) if not block <= at <= block + 1 else 0.0
             for block in made.CRITICAL[model.family]),
            key=abs,
        )  # fmt: skip
        assert row["distance"] == pytest.approx(expected)
        for kind in ("hinge", "step"):
            for name in ("layer", "low", "high", "size", "gain", "p", "detectable"):
                assert row[f"{kind}_{name}"] == pytest.approx(getattr(getattr(model.curve.shape, kind), name))
        assert (row["shape"], row["line_p"], row["f"]) == ("hinge", 0.001, 31.0)


def test_shares_that_left_carry_their_wilson_interval(single, written):
    table = pd.read_csv(written.parent / "tokens.csv", keep_default_na=False)
    rows = table[table["model"] == single.models[0].name]
    assert len(rows) == len(single.models[0].tokens.types) + len(single.models[0].tokens.classes)
    for _, row in rows.iterrows():
        low, high = wilson(int(row["left"]), int(row["count"]))
        assert (float(row["low"]), float(row["high"])) == pytest.approx((low, high))


def test_every_token_that_left_can_be_opened_without_a_script(single, page_of_one):
    tokens = single.models[0].tokens
    assert page_of_one.count('<details class="leaver"') == len(tokens.types) + len(tokens.classes)
    assert page_of_one.count("<mark>") == sum(len(row.examples) for row in tokens.types)
    controls = page_of_one.split('<input type="search"')[0].rsplit("<p ", 1)[1]
    assert "scripted" in controls  # what only a script can serve is not shown without one


def test_tokens_are_shown_with_their_white_space(page_of_one):
    names = texts(page_of_one, "span", "what")
    assert {"␣apples", "⏎", "1", "&lt;|end|&gt;"} <= set(names)


def test_the_flow_tells_where_every_cluster_went_and_how_much_stayed(single, page_of_one):
    table = page_of_one.split('aria-label="Clusters of bundled:llama-base"')[1].split("</table>")[0]
    rows = table.split("<tr>")[2:]
    flow = single.models[0].tokens.flow
    assert len(rows) == len(flow)
    for row, cluster in zip(rows, flow, strict=True):
        stayed = next(into.count for into in cluster.into if into.matched) / cluster.count
        assert f">{100 * stayed:.0f}\N{NO-BREAK SPACE}%</td>" in row
        assert float(row.split('data-v="')[2].split('"')[0]) == pytest.approx(stayed)
        assert row.count('class="to') == len(cluster.into)


# -- the terminal


def test_the_terminal_stays_within_eighty_columns_and_follows_the_verdict(whole):
    result = DriftResult(Path("none"), whole)
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(result.text())
    printed = console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= 80
    assert "Tokens leave as wholes too, beyond the spread between runs" in " ".join(printed.split())
    assert result.verdict.startswith(
        "Tokens leave their first clusters: agreement with the first clusters (NMI) falls by"
    )
    value = whole.models[0].curve.layers[3].nmi
    assert f"{value.mean:.3f} ± {value.std:.3f}" in printed


def test_markup_of_the_terminal_in_names_is_text(single):
    assert "[red]m" in shown(changed(single, name="[red]m"))
