"""The truncation search's page and files: it asks for nothing and holds texts as texts; tables, terminal, summary."""

import io
import math
from pathlib import Path

import made_truncation as made
import pytest
from rich.console import Console

from lesion.report.publishing import html
from lesion.report.values import Estimate
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.truncation.result import Rival
from runs import page_of


@pytest.fixture(scope="module")
def whole():
    return made.summary()


def shown(summary, width=80, every=False) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(TruncationResult(Path("no-folder"), summary).text(every=every))
    return console.file.getvalue()


def test_a_search_that_finds_nothing_says_so_and_why():
    json = made.few()
    summary = made.summary(json)
    page = html(page_of(TruncationResult, summary))
    assert f'<p class="lead">{json["nothing"]}' in page
    assert "best, not chosen" in page
    assert "rises" not in page.split("<body>")[1].split('<div id="tip"')[0]


def test_numbers_that_are_not_finite_are_null_in_the_summary_and_dashes_in_the_page():
    json = made.study()
    (chosen,) = (cell for cell in json["cells"] if cell["edit"] == json["best"])
    json["cells"] = [*json["cells"][:3], chosen]
    json["unedited"][0]["gold"] = -math.inf
    json["cells"][0]["outcomes"][0]["gold"] = math.nan
    json["cells"][0]["outcomes"][0]["drop"]["value"] = math.nan
    summary = made.summary(json)
    assert summary.unedited[0].gold is None
    assert summary.cells[0].outcomes[0].drop.value is None
    page = html(page_of(TruncationResult, summary))
    assert "nan" not in page.split("<body>")[1].split('<div id="tip"')[0]


def test_the_cells_table_marks_the_chosen_one_and_says_what_became_of_every_cell(whole):
    table = TruncationResult(Path("no-folder"), whole).shown()
    assert {row["edit"] for row in table.records if table.mark(row)} == {whole.chosen}
    assert {row["state"] for row in table.records} == {
        "chosen", "evaluated in full", "one answer", "screened out", "given up after 16"
    }  # fmt: skip


def test_the_cut_stands_beside_its_rivals_and_what_it_did_on_the_items_that_chose_it():
    estimate = Estimate(value=0.5, low=0.4, high=0.6)
    rival = Rival(task=made.IOI, what="branch", rival="5.mlp×0", items=240, accuracy=estimate, gain=estimate)
    single = made.summary(made.study(), **made.SINGLE).model_copy(update={"rivals": (rival,)})
    rows = TruncationResult(Path("no-folder"), single).parts()[0].rows
    assert [line.what for line in rows.records if line.task == made.IOI] == [
        "the cut", "in its place", "chosen on these items"
    ]  # fmt: skip
    cut, _, chosen, *_ = rows.records
    assert cut.gain == single.best_tests[0].gain
    assert chosen.gain.value == pytest.approx(-single.by_edit[single.best].outcomes[0].drop.value)


def test_the_terminal_tells_the_cut_and_with_all_rows_every_table():
    plain = " ".join(shown(made.summary(), 120).replace("\N{NO-BREAK SPACE}", " ").split())
    assert "On test items" in plain
    assert "step4000" not in plain
    every = shown(made.summary(), 200, every=True)
    for title in ("All cells", "The two tokens", "Revisions", "Composition"):
        assert title in every
