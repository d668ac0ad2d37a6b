"""A drift study's files: a page that asks for nothing and holds texts as texts, tables, figures."""

import io
from pathlib import Path

import made_drift as made
import pandas as pd
import pytest
from made_drift import changed
from rich.console import Console

from lesion.report.blocks import Figure
from lesion.report.drawing import specification
from lesion.report.publishing import html
from lesion.statistics.paired import wilson
from lesion.studies.drift.report import DriftResult
from runs import page_of


@pytest.fixture(scope="module")
def single():
    return made.study(families=("llama",), variants=("base",), clusters=(50,))


@pytest.fixture(scope="module")
def page_of_one(single):
    return html(page_of(DriftResult, single))


def shown(summary, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(DriftResult(Path("none"), summary).text(every=True))
    return console.file.getvalue()


def figures(summary) -> list[Figure]:
    blocks = page_of(DriftResult, summary).blocks()
    return list({block.name: block for block in blocks if isinstance(block, Figure)}.values())


def data(chart, *columns: str) -> list[tuple]:
    """The rows of all data of a chart that have these columns."""
    every = (row for rows in specification(chart)["datasets"].values() for row in rows)
    return [tuple(row[column] for column in columns) for row in every if set(columns) <= set(row)]


def rounded(*values: float) -> list[object]:
    """The values as charts have them, with six significant digits."""
    return [pytest.approx(value, rel=1e-5) for value in values]


def with_layers(summary, **entries):
    """The summary with entries of every layer of its first model replaced."""
    layers = [layer.model_dump() | entries for layer in summary.models[0].curve.layers]
    return changed(summary, curve={"layers": layers})


def test_a_study_of_one_model_without_critical_layers_or_hinge_is_told_as_such():
    summary = made.study(families=("llama",), variants=("base",), clusters=(50,), critical=False, bend=False)
    page = html(page_of(DriftResult, summary))
    assert "An even fall is not rejected" in page
    assert "<span>--study</span> FOLDER</code>" in page
    assert "data-shows" not in page.split("<main>")[1].split("</main>")[0]
    figure = figures(summary)[0]
    assert data(figure.panels[0].charts[0], "start", "through") == []
    assert not {"critical block", "step or bend"} & {series.name for series in figure.legend}


@pytest.mark.parametrize("entries", [
    {"labels": {}, "null": None, "cosine": None, "cka": None}, {"nmi": None}, {"nmi": {"mean": 0.5, "std": None}},
])  # fmt: skip
def test_any_measure_may_be_missing_from_every_layer(single, entries):
    summary = with_layers(single, **entries)
    page = html(page_of(DriftResult, summary))
    assert "Which tokens left their cluster?" in page
    assert "None ±" not in page
    shown(summary)


@pytest.mark.parametrize("entries", [
    {"curve": {"shape": None}, "runs": []}, {"critical": None, "compared": None, "curve": {"ceiling": None}},
    {"critical": {}, "compared": None, "family": "", "variant": None}, {"curve": {"shape": None, "ceiling": None}},
])  # fmt: skip
def test_what_is_not_known_of_a_model_is_left_out(single, entries):
    summary = changed(single, **entries)
    assert page_of(DriftResult, summary).sections
    assert "None" not in shown(summary)


def test_a_study_that_has_measured_nothing_says_so():
    summary = made.study(families=())
    assert DriftResult(Path("none"), summary).verdict == "Nothing has been measured yet."
    assert html(page_of(DriftResult, summary))


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
    assert "“␣x�”" in page


# -- charts


def test_critical_blocks_stand_between_the_layers_that_they_join_and_bends_at_their_intervals():
    whole = made.study(variants=("base",), clusters=(50,))
    figure = figures(whole)[0]
    for model, panel in zip(whole.models, figure.panels, strict=True):
        *blocks, (low, high) = data(panel.charts[0], "start", "through")
        assert blocks == [(block, block + 1) for block in made.CRITICAL[model.family]]
        assert [low, high] == rounded(model.curve.shape.hinge.low, model.curve.shape.hinge.high)


def test_the_page_says_what_a_layer_is_and_which_all_are_compared_with(single, page_of_one):
    assert "Layer 0 is what enters block 0, layer l the output of block l − 1" in page_of_one
    layers = [layer.model_dump() for layer in single.models[0].curve.layers[1:]]
    summary = changed(single, study={"layer_zero": "block"}, curve={"layers": layers})
    assert "with those of layer 1" in figures(summary)[0].caption


# -- tables and tokens


def test_shares_that_left_carry_their_wilson_interval(single, tmp_path):
    written = DriftResult(tmp_path / "deep", single).report()
    rows = pd.read_csv(written.parent / "tokens.csv", keep_default_na=False)
    assert len(rows) == len(single.models[0].tokens.types) + len(single.models[0].tokens.classes)
    for _, row in rows.iterrows():
        low, high = wilson(int(row["left"]), int(row["count"]))
        assert (float(row["low"]), float(row["high"])) == pytest.approx((low, high))


def test_tokens_are_shown_with_their_white_space(page_of_one):
    assert all(f">{name}<" in page_of_one for name in ("␣apples", "⏎", "1", "&lt;|end|&gt;"))


def test_the_flow_tells_where_every_cluster_went_and_how_much_stayed(single):
    flow = next(block for block in page_of(DriftResult, single).blocks() if getattr(block, "name", "") == "flow").frame
    for cluster in single.models[0].tokens.flow:
        into = flow[flow["cluster"] == cluster.name]
        assert len(into) == len(cluster.into)
        shares = [pytest.approx(each.count / cluster.count) for each in cluster.into if each.matched]
        assert list(into["share"][into["matched"]]) == shares
