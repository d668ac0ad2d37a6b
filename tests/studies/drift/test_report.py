"""A drift study's files: a page that asks for nothing and holds texts as texts, tables, figures, the summary."""

import copy
import io
import itertools
import json
import math

import made_drift as made
import matplotlib.image
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing
from rich.console import Console

from lesion.errors import LesionError
from lesion.statistics.paired import wilson
from lesion.studies.drift import report as drift


@pytest.fixture(scope="module")
def whole():
    return made.study()


@pytest.fixture(scope="module")
def one():
    return made.study(families=("llama",), variants=("base",), clusters=(50,))


@pytest.fixture(scope="module")
def text(whole):
    return drift.page(whole)


@pytest.fixture(scope="module")
def written(whole, tmp_path_factory):
    return drift.write(tmp_path_factory.mktemp("drift") / "deep", whole)


def shown(summary, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(drift.text_tables(summary))
    return console.file.getvalue()


def texts(page: str, tag: str, name: str) -> list[str]:
    """The texts of the elements of a class."""
    pieces = page.split(f'<{tag} class="{name}">')[1:]
    return [piece.split(f"</{tag}>")[0] for piece in pieces]


def test_a_study_becomes_a_page_tables_and_figures(whole, written):
    assert written.parts[-2:] == ("deep", "report.html")
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        "lesion.json",
        "figures/drift.png", "figures/checks.png",
        "report.html", "summary.json", "drift.csv", "shapes.csv", "tokens.csv", "flow.csv",
    }  # fmt: skip
    assert json.loads((written.parent / "summary.json").read_text("utf-8")) == whole
    for path in (written.parent / "figures").iterdir():
        assert matplotlib.image.imread(io.BytesIO(path.read_bytes()))[..., :3].std() > 0


def test_the_same_summary_is_written_as_the_same_bytes(one, tmp_path):
    first, second = (drift.write(tmp_path / name, one).parent for name in "ab")
    for path in first.rglob("*.*"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_study_of_one_model_without_critical_layers_or_hinge_is_told_as_such(tmp_path):
    summary = made.study(families=("llama",), variants=("base",), clusters=(50,), critical=False, bend=False)
    page = drift.write(tmp_path, summary).read_text("utf-8")
    assert "A straight line is not rejected" in page
    assert "no layer study was given" in page
    assert 'class="place"' not in page
    assert "data-shows" not in page.split("<main>")[1].split("</main>")[0]


@pytest.mark.parametrize("name", ["labels", "null", "nmi", "cosine", "cka", "nmi_std"])
def test_any_measure_may_be_missing_from_every_layer(one, name):
    summary = copy.deepcopy(one)
    for layer in summary["models"][0]["layers"]:
        layer.pop(name)
    page = drift.page(summary)
    assert '<h2 id="findings-title">Findings</h2>' in page
    assert "None ±" not in page
    shown(summary)


@pytest.mark.parametrize(
    "name",
    ["shape", "by_clusters", "critical", "runs", "tokens", "classes", "flow", "overall", "ceiling", "family", "blocks"],
)
@pytest.mark.parametrize("absent", [True, False])
def test_any_part_of_a_model_may_be_absent_or_null(one, name, absent, tmp_path):
    summary = copy.deepcopy(one)
    summary["models"][0] |= {name: None}
    if absent:
        summary["models"][0].pop(name)
    assert '<h2 id="findings-title">Findings</h2>' in drift.write(tmp_path, summary).read_text("utf-8")
    shown(summary)


@pytest.mark.parametrize("summary", [{}, {"models": []}, {"models": None, "study": None, "notes": None}])
def test_a_study_that_has_measured_nothing_says_so(summary, tmp_path):
    assert "Nothing has been measured yet." in drift.write(tmp_path, summary).read_text("utf-8")
    assert "Nothing has been measured yet." in shown(summary)


def test_the_page_asks_for_nothing_outside_itself(text):
    assert_asks_for_nothing(text)


def test_every_link_of_the_page_leads_to_a_section_of_it(text):
    elements = Elements(text).found
    places = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = {attributes["href"] for tag, attributes in elements if tag == "a"}
    assert {"#drift", "#shapes", "#checks", "#tokens", "#layers"} <= links
    assert {link.removeprefix("#") for link in links} <= places


def test_hostile_names_and_tokens_add_no_element_and_no_attribute():
    def shape(value: str) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in Elements(value).found]

    def named(names):
        """The made study with every free text replaced by one of the names in turn."""
        following = itertools.cycle(names)
        free = ("model", "family", "variant", "token", "class", "before", "after", "item", "cluster", "title", "task")
        labels = dict(zip(("token class", "token"), names, strict=False))

        def renamed(value):
            if isinstance(value, list):
                return [renamed(part) for part in value]
            if not isinstance(value, dict):
                return value
            found = {labels.get(key, key) if "nmi" not in value else key: renamed(part) for key, part in value.items()}
            found |= {key: next(following) for key in free if isinstance(found.get(key), str)}
            return found

        summary = renamed(made.study(families=("llama",), variants=("base", "rlvr"), clusters=(50, 10)))
        for number, model in enumerate(summary["models"]):
            model["family"] = names[0]
            model["variant"] = f"{number}{names[1]}"
            model["critical"] = {name: [number] for name in names[:3]}
        return drift.page(summary | {"notes": list(names)})

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    for tag, _ in shape(hostile):
        assert tag not in ("img", "iframe", "object", "embed", "base")
    assert len(Elements(hostile).inside["script"]) == 2
    assert {(tag, *names) for tag, names in shape(hostile)} <= {
        (tag, *names) for tag, names in shape(named([f"tame{i}" for i in range(len(HOSTILE))]))
    }


def test_what_cannot_be_seen_in_a_token_or_its_context_is_not_written(one):
    summary = copy.deepcopy(one)
    first = summary["models"][0]["tokens"][0]
    first["token"] = "\u202eevil\x1b[31m"
    first["examples"] = [{"before": "a\u202e\n", "token": " x\u200b", "after": "\x00b\t", "item": "\u2066i"}]
    page = drift.page(summary)
    for character in "\u202e\x1b\u200b\u2066\x00":
        assert character not in page
    assert "<bdi>a�⏎</bdi><mark>␣x�</mark><bdi>�b⇥</bdi>" in page
    assert "�evil�[31m" in shown(summary)


def test_numbers_that_are_not_finite_are_null_in_the_summary_and_dashes_in_the_page(one, tmp_path):
    summary = copy.deepcopy(one)
    model = summary["models"][0]
    model["layers"][3] |= {"nmi": math.nan, "null": math.inf, "cka": -math.inf, "cosine_std": math.nan}
    model["shape"]["hinge"] |= {"low": math.nan, "p": math.nan, "detectable": math.nan}
    model["shape"] |= {"share": math.nan}
    model["tokens"][0]["share"] = math.nan
    page = drift.write(tmp_path, summary).read_text("utf-8")
    again = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert again["models"][0]["layers"][3]["nmi"] is None
    assert "nan" not in page.split("<body>")[1].split('<div id="tip"')[0].replace("pan", "")
    row = next(row for row in page.split("<tr>") if '<td class="n" data-v="3">3</td>' in row)
    assert '<td class="n" data-v="None">–</td>' in row


def test_a_curve_is_not_drawn_over_a_layer_that_is_not_known(one):
    summary = copy.deepcopy(one)
    summary["models"][0]["layers"][3]["nmi"] = None
    chart = drift.page(summary).split('aria-label="NMI with layer 0')[1].split("</svg>")[0]
    strokes = [piece.split('"')[0] for piece in chart.split('class="stroke" d="')[1:]]
    whole = drift.page(one).split('aria-label="NMI with layer 0')[1].split("</svg>")[0]
    assert len(strokes) == 2
    assert whole.count('class="stroke"') == 1


def test_a_summary_of_another_form_is_an_error_that_says_what_to_do(whole):
    with pytest.raises(LesionError, match="Run the study again on the same folder"):
        drift.page(whole | {"models": [{"layers": []}]})
    with pytest.raises(LesionError, match="KeyError"):
        drift.text_tables(whole | {"models": [{"model": "a", "tokens": [{"token": "x"}]}]})


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        drift.write(blocked, {})


def test_layers_are_written_unrounded_with_a_row_per_model_clusters_and_layer(whole, written):
    table = pd.read_csv(written.parent / "drift.csv")
    assert len(table) == sum(len(curve["layers"]) for model in whole["models"] for curve in model["by_clusters"])
    for model in whole["models"]:
        for curve in model["by_clusters"]:
            rows = table[(table["model"] == model["model"]) & (table["clusters"] == curve["clusters"])]
            assert list(rows["layer"]) == [layer["layer"] for layer in curve["layers"]]
            assert list(rows["nmi"]) == pytest.approx([layer["nmi"] for layer in curve["layers"]], abs=1e-15)


def test_shapes_stand_in_a_table_with_their_distance_to_the_nearest_critical_block(whole, written):
    table = pd.read_csv(written.parent / "shapes.csv")
    for model in whole["models"]:
        row = table[(table["model"] == model["model"]) & (table["clusters"] == 50)].iloc[0]
        at = model["shape"]["hinge"]["layer"]
        expected = min(
            (min((at - place for place in (block, block + 1)), key=abs) if not block <= at <= block + 1 else 0.0
             for block in model["critical"]),
            key=abs,
        )  # fmt: skip
        assert row["distance"] == pytest.approx(expected)
        for kind in ("hinge", "step"):
            for name in ("layer", "low", "high", "size", "gain", "p", "detectable"):
                assert row[f"{kind}_{name}"] == pytest.approx(model["shape"][kind][name])
        assert (row["shape"], row["line_p"], row["f"]) == ("hinge", 0.001, 31.0)


def test_shares_that_left_carry_their_wilson_interval(one, tmp_path):
    table = pd.read_csv(drift.write(tmp_path, one).parent / "tokens.csv", keep_default_na=False)
    assert len(table) == len(one["models"][0]["tokens"]) + len(one["models"][0]["classes"])
    for _, row in table.iterrows():
        low, high = wilson(int(row["left"]), int(row["count"]))
        assert (float(row["low"]), float(row["high"])) == pytest.approx((low, high))


def test_every_token_that_left_can_be_opened_without_a_script(one):
    page = drift.page(one)
    model = one["models"][0]
    assert page.count('<details class="leaver"') == len(model["tokens"]) + len(model["classes"])
    assert page.count("<mark>") == sum(len(token["examples"]) for token in model["tokens"])
    controls = page.split('<input type="search"')[0].rsplit("<p ", 1)[1]
    assert "scripted" in controls  # what only a script can serve is not shown without one


def test_tokens_are_shown_with_their_white_space(one):
    names = texts(drift.page(one), "span", "what")
    assert {"␣apples", "⏎", "1", "&lt;|end|&gt;"} <= set(names)


def test_the_flow_tells_where_every_cluster_went_and_how_much_stayed(one):
    page = drift.page(one)
    table = page.split('aria-label="Clusters of bundled:llama-base"')[1].split("</table>")[0]
    rows = table.split("<tr>")[2:]
    flow = one["models"][0]["flow"]
    assert len(rows) == len(flow)
    for row, told in zip(rows, flow, strict=True):
        stayed = next(into["count"] for into in told["into"] if into["matched"]) / told["count"]
        assert f'data-v="{stayed}">{100 * stayed:.0f}\N{NO-BREAK SPACE}%' in row
        assert row.count('class="to') == sum(into["count"] > 0 for into in told["into"])


def test_models_of_one_family_share_a_chart_and_other_depths_have_their_own():
    summary = made.study()
    assert drift.page(summary).count("layer 0 by layer, ") == 2 * 2  # a narrow and a wide one of two families
    for model in summary["models"]:
        model["family"] = "same"
    page = drift.page(summary)
    assert page.count("layer 0 by layer, same, 8 blocks") == 2
    assert page.count("layer 0 by layer, same, 10 blocks") == 2


def test_models_without_a_family_are_drawn_together_by_their_depth():
    summary = made.study()
    for model in summary["models"]:
        model["family"] = model["variant"] = None
    page = drift.page(summary)
    assert page.count("layer 0 by layer, models of 8 blocks") == 2
    assert "</svg>bundled:llama-base</span>" in page


def test_the_axis_says_what_a_layer_is(text):
    assert "layer (0: embeddings; l: the output of block l − 1)" in text
    summary = made.study(families=("llama",), variants=("base",))
    summary["study"]["layer_zero"] = "block"
    for curve in (summary["models"][0], *summary["models"][0]["by_clusters"]):
        curve["layers"] = curve["layers"][1:]
    page = drift.page(summary)
    assert ">layer (l: the output of block l − 1)<" in page
    assert "layer (0: embeddings" not in page
    assert "NMI with layer 1" in page


def test_the_terminal_stays_within_eighty_columns_and_tells_the_verdict(whole):
    told = shown(whole)
    assert max(map(len, told.splitlines())) <= 80
    plain = " ".join(told.replace("\N{NO-BREAK SPACE}", " ").split())
    assert "falls along a straight line over layers is rejected in all 8 models" in plain
    value = whole["models"][0]["layers"][4]
    assert f"{value['nmi']:.2f}±{value['nmi_std']:.2f}" in plain


def test_markup_of_the_terminal_in_names_and_tokens_is_text(one):
    summary = copy.deepcopy(one)
    summary["models"][0] |= {"model": "[red]m[/red]"}
    summary["models"][0]["tokens"][0]["token"] = "[bold]t"
    told = shown(summary)
    assert "[red]m[/red]" in told
    assert "[bold]t" in told
