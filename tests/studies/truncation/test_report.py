"""The truncation search's page and files: it asks for nothing and holds texts as texts; tables, terminal, summary."""

import io
import itertools
import math

import made_truncation as made
import numpy as np
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing
from rich.console import Console

from lesion.errors import LesionError
from lesion.report.publishing import html
from lesion.studies.truncation import tables, terminal
from lesion.studies.truncation.report import TruncationResult
from lesion.studies.truncation.result import TruncationSummary
from runs import page_of


@pytest.fixture(scope="module")
def whole():
    return made.summary()


@pytest.fixture(scope="module")
def written(whole, tmp_path_factory):
    return TruncationResult(tmp_path_factory.mktemp("report") / "deep", whole).report()


@pytest.fixture(scope="module")
def text(written):
    return written.read_text("utf-8")


def shown(summary, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(terminal.text_tables(summary))
    return console.file.getvalue()


def test_a_whole_search_becomes_a_page_tables_and_figures(written):
    figures = ("test", "map", "map-1", "map-2", "tokens", "revisions-1", "revisions-2", "composition", "spectra")
    csv = ("baseline", "cells", "test", "composition", "spectra", "tokens", "revisions")
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        "lesion.json",
        "report.html",
        "summary.json",
        *(f"{name}.csv" for name in csv),
        *(f"figures/{name}.{form}" for name in figures for form in ("png", "svg")),
    }


def test_a_summary_is_read_back_from_its_json_as_it_was(whole):
    assert TruncationSummary.model_validate_json(whole.text()) == whole


def test_a_search_that_finds_nothing_says_so_and_why():
    json = made.few()
    summary = made.summary(json)
    page = html(page_of(TruncationResult, summary))
    assert f'<p class="lead">{json["nothing"]}' in page
    assert "best, not chosen" in page
    assert "improves" not in page
    assert tables.revisions(summary).name == tables.composition(summary).name == ""


def test_the_page_asks_for_nothing_outside_itself(text):
    assert_asks_for_nothing(text)


def test_every_link_of_the_page_leads_to_a_section_of_it(text):
    elements = Elements(text).found
    places = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = {attributes["href"] for tag, attributes in elements if tag == "a"}
    assert {"#map", "#test", "#tokens", "#revisions", "#composition", "#spectra", "#cells"} <= links
    assert {link.removeprefix("#") for link in links} <= places


def test_hostile_names_add_no_element_and_no_attribute():
    def shape(value: str) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(attributes)) for tag, attributes in Elements(value).found]

    def named(names):
        """The page of the made search with every free text replaced by one of the names in turn, always by the same."""
        following = itertools.cycle(names)
        given = {made.edit(*made.BEST): made.edit(*made.BEST), "baseline": "baseline"}
        free = (
            "title",
            "version",
            "label",
            "reason",
            "revision",
            "family",
            "matrix",
            "address",
            "edit",
            "added",
            "task",
        )

        def renamed(value, key=""):
            if isinstance(value, list):
                return [renamed(part) for part in value]
            if isinstance(value, dict):
                return {key: renamed(part, key) for key, part in value.items()}
            if not isinstance(value, str) or key not in free:
                return value
            return given.setdefault(value, f"{len(given)}{next(following)}")

        json = renamed(made.study())
        for task in json["tasks"]:
            task["name"] = given[task["name"]]
        (chosen,) = (cell for cell in json["cells"] if cell["edit"] == json["best"])
        json |= {"composed": given[json["composed"]], "cells": [*json["cells"][:3], chosen]}
        return html(page_of(TruncationResult, made.summary(json, notes=list(names))))

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    for tag, _ in shape(hostile):
        assert tag not in ("img", "iframe", "object", "embed", "base")
    assert len(Elements(hostile).inside["script"]) == 4
    assert {(tag, *names) for tag, names in shape(hostile)} <= {
        (tag, *names) for tag, names in shape(named([f"tame{i}" for i in range(len(HOSTILE))]))
    }


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


def test_a_folder_that_cannot_be_written_is_named_with_advice(whole, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        TruncationResult(blocked, whole).report()


def test_cells_have_a_row_per_task_and_one_where_they_were_not_evaluated(whole, written):
    read = pd.read_csv(written.parent / "cells.csv")
    assert len(read) == sum(max(1, len(cell.outcomes)) for cell in whole.cells)
    without = read[read["task"].isna()]
    assert sorted(without["edit"]) == sorted(cell.edit for cell in whole.cells if not cell.outcomes)
    best = read[(read["edit"] == made.edit(*made.BEST)) & (read["task"] == made.IOI)].iloc[0]
    before = made.right(made.IOI, "validation", made.BASE[made.IOI], 0).mean()
    assert before - best["accuracy"] == pytest.approx(best["drop"])


def test_spectra_and_tests_are_written_unrounded(whole, written):
    frame = pd.read_csv(written.parent / "spectra.csv")
    for spectrum in whole.spectra:
        rows = frame[frame["address"] == spectrum.address]
        assert tuple(rows["value"]) == pytest.approx(spectrum.values, rel=1e-15)
        assert tuple(rows["index"]) == spectrum.index
    tests = pd.read_csv(written.parent / "test.csv")
    assert list(tests["what"]) == ["chosen", "chosen", "composed", "composed"]
    assert np.allclose(tests["accuracy"] - tests["baseline"], tests["gain"])


def test_the_page_s_table_has_a_row_per_cell_the_best_first_and_the_chosen_one_marked(whole):
    table = tables.best_cells(whole)
    assert len(table.frame) == len(whole.cells)
    scores = [row["score"] for row in table.records if row["score"] is not None and row["state"] != "one label"]
    assert scores == sorted(scores, reverse=True)
    assert [row["edit"] for row in table.records if table.mark(row)] == [whole.chosen]
    headings = [column.title for column in table.columns]
    assert [name for name in headings if "accuracy" in name] == [f"{task}, accuracy" for task in made.BASE]
    assert {row["state"] for row in table.records} == {
        "chosen", "evaluated in full", "one label", "screened out", "given up after 16"
    }  # fmt: skip


def test_the_terminal_shows_the_best_cells_first_and_no_more_than_ten(whole):
    text = shown(whole, 120)
    of_best = text.split("The best 10 of")[1].split("On test items")[0]
    lines = [line.split() for line in of_best.splitlines()]
    scores = [float(line[4]) for line in lines if len(line) > 5 and line[1] in ("top", "bottom")]
    known = sorted((cell.score for cell in whole.cells if cell.score is not None), reverse=True)
    assert scores == [round(100 * score, 1) for score in known[:10]]


def test_the_terminal_tells_the_test_the_path_and_the_revisions_in_eighty_columns(whole):
    text = shown(whole)
    assert max(map(len, text.splitlines())) <= 80
    plain = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    gain = whole.best_tests[0].gain
    ends = f"[{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
    for expected in ("chosen: 5.mlp.up top 0.05", f"+{100 * gain.value:.1f}", ends, "rolled back", "step4000"):
        assert expected in plain


def test_no_number_of_the_tokens_is_cut_in_eighty_columns_with_revisions_however_long_its_task_and_large_its_ranks():
    json = made.study()
    for row in json["tokens"]:
        row |= {"task": "shuffled:facts:places/known_1000.json", "revision": row["revision"] and "step143000"}
        row |= {"rank_right": 31234.5, "rank_tempting": 41234.5, "margin": made.estimate(-11.1, -12.25, -10.05)}
        row |= {"p_right": made.estimate(1.0, 0.994, 1.0)}
    text = shown(made.summary(json))
    assert max(map(len, text.splitlines())) <= 80
    table = text[text.index("The right and the tempting token") : text.index("Along the revisions")]
    assert "…" not in table
    for number in ("31,234.5", "41,234.5", "−11.10", "[−12.25, −10.05]", "100.0"):
        assert number in table.replace("\N{NO-BREAK SPACE}", " ")


def test_no_text_of_a_task_or_model_acts_on_the_terminal():
    json = made.study()
    json["model"]["name"] = "a\x1b[31mred"
    json["unedited"][0]["label"] = json["path"][0]["added"] = json["path"][0]["reason"] = "b\x1b]0;title\x07"
    assert "\x1b" not in shown(made.summary(json))


def test_a_collapsed_cell_stands_behind_the_others_in_the_terminal():
    json = made.study()
    for cell in json["cells"]:
        if cell["edit"] == made.edit(*made.COLLAPSED):
            cell["score"] = 1.0
    of_best = shown(made.summary(json), 120).split("The best 10 of")[1].split("On test items")[0]
    assert made.edit(*made.COLLAPSED) not in of_best
