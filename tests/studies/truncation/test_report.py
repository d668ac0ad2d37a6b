"""The truncation search's files: a page that asks for nothing and holds texts as texts, tables, the summary."""

import io
import itertools
import json
import math

import made_truncation as made
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from page_checks import HOSTILE, Elements, assert_asks_for_nothing
from rich.console import Console

from lesion.errors import LesionError
from lesion.studies.truncation import report as truncation
from lesion.studies.truncation import tables as truncation_tables


@pytest.fixture(scope="module")
def whole():
    return made.study()


@pytest.fixture(scope="module")
def text(whole):
    return truncation.page(whole)


def shown(summary, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(truncation.text_tables(summary))
    return console.file.getvalue()


def test_a_whole_search_becomes_a_page_and_tables(whole, tmp_path):
    written = truncation.write(tmp_path / "deep", whole)
    assert {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")} == {
        "lesion.json",
        "figures/map.png",
        "figures/map-1.png",
        "figures/map-2.png",
        "report.html", "summary.json", "baseline.csv", "cells.csv", "test.csv", "composition.csv", "spectra.csv",
        "tokens.csv", "revisions.csv",
    }  # fmt: skip
    assert json.loads((written.parent / "summary.json").read_text("utf-8")) == whole
    for path in (written.parent / "figures").iterdir():
        assert matplotlib.image.imread(io.BytesIO(path.read_bytes()))[..., :3].std() > 0


def test_a_search_that_finds_nothing_says_so_and_why(tmp_path):
    summary = made.nothing()
    summary["cells"] = [cell for cell in summary["cells"] if cell["layer"] == 5]
    page = truncation.write(tmp_path, summary).read_text("utf-8")
    assert f'<p class="lead">{summary["nothing"]}</p>' in page
    assert "best, not chosen" in page
    assert "improves" not in page
    assert "revisions.csv" not in {path.name for path in tmp_path.iterdir()}
    assert summary["nothing"] in " ".join(shown(summary).split())


def test_any_of_the_summary_s_parts_may_be_absent(whole):
    few = whole | {"cells": whole["cells"][:6], "spectra": whole["spectra"][:2], "revisions": whole["revisions"][:6]}
    for name in whole:
        page = truncation.page(few | {name: None})
        assert '<h2 id="findings-title">Findings</h2>' in page
        shown(few | {name: None})
    assert "Nothing has been searched yet." in shown({})


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
        """The made search with every free text replaced by one of the names in turn."""
        following = itertools.cycle(names)
        tasks = {task: f"{i}{next(following)}" for i, task in enumerate(made.BASE)}

        def renamed(value):
            if isinstance(value, list):
                return [renamed(part) for part in value]
            if not isinstance(value, dict):
                return value
            found = {key: renamed(part) for key, part in value.items()}
            found |= {"task": tasks[found["task"]]} if "task" in found else {}
            free = ("title", "version", "label", "reason", "revision", "family", "matrix", "address", "edit", "added")
            return found | {key: next(following) for key in free if isinstance(found.get(key), str)}

        summary = renamed(made.study())
        for task, name in zip(summary["search"]["tasks"], tasks.values(), strict=True):
            task["name"] = name
        summary["cells"] = summary["cells"][:12]
        return truncation.page(summary | {"notes": list(names)})

    hostile = named([name.replace("\ud800", "\ufffd") for name in HOSTILE])
    for tag, _ in shape(hostile):
        assert tag not in ("img", "iframe", "object", "embed", "base")
    assert len(Elements(hostile).inside["script"]) == 2
    assert {(tag, *names) for tag, names in shape(hostile)} <= {
        (tag, *names) for tag, names in shape(named([f"tame{i}" for i in range(len(HOSTILE))]))
    }


def test_numbers_that_are_not_finite_are_null_in_the_summary_and_dashes_in_the_page(tmp_path):
    summary = made.study()
    summary["cells"] = summary["cells"][:6]
    summary["baseline"][0]["gold"] = -math.inf
    summary["cells"][0]["tasks"][0] |= {"gold": math.nan, "drop": math.nan}
    page = truncation.write(tmp_path, summary).read_text("utf-8")
    again = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert again["baseline"][0]["gold"] is None
    assert again["cells"][0]["tasks"][0]["drop"] is None
    assert "nan" not in page.split("<body>")[1].split('<div id="tip"')[0]


def test_a_summary_of_another_form_is_an_error_that_says_what_to_do(whole):
    summary = whole | {"cells": [{"edit": "3.mlp.up top 0.1"}]}
    with pytest.raises(LesionError, match="Run the search again on the same folder"):
        truncation.page(summary)
    with pytest.raises(LesionError, match="address"):
        truncation.text_tables(summary)


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        truncation.write(blocked, {})


def test_cells_have_a_row_per_task_and_one_where_they_were_not_asked(whole):
    table = truncation_tables.csv(whole)["cells.csv"]
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    assert len(read) == sum(max(1, len(cell["tasks"])) for cell in whole["cells"])
    unasked = read[read["task"].isna()]
    assert sorted(unasked["edit"]) == sorted(cell["edit"] for cell in whole["cells"] if not cell["tasks"])
    best = read[(read["edit"] == made.edit(*made.BEST)) & (read["task"] == made.IOI)].iloc[0]
    before = made.right(made.IOI, "validation", made.BASE[made.IOI], 0).mean()
    assert before - best["accuracy"] == pytest.approx(best["drop"])


def test_spectra_and_tests_are_written_unrounded(whole):
    tables = truncation_tables.csv(whole)
    for one in whole["spectra"]:
        rows = tables["spectra.csv"].query("address == @one['address']")
        assert list(rows["value"]) == one["values"]
        assert list(rows["index"]) == one["index"]
    tests = tables["test.csv"]
    assert list(tests["what"]) == ["chosen", "chosen", "composed", "composed"]
    assert np.allclose(tests["accuracy"] - tests["baseline"], tests["gain"])


def test_the_terminal_shows_the_best_cells_first_and_no_more_than_ten(whole):
    text = shown(whole, 120)
    of_best = text.split("The best 10 of")[1].split("On test items")[0]
    lines = [line.split() for line in of_best.splitlines()]
    scores = [float(line[4]) for line in lines if len(line) > 5 and line[1] in ("top", "bottom")]
    known = sorted((c["score"] for c in whole["cells"] if c["score"] is not None), reverse=True)
    assert scores == [round(100 * score, 1) for score in known[:10]]


def test_the_terminal_tells_the_test_the_path_and_the_revisions_in_eighty_columns(whole):
    text = shown(whole)
    assert max(map(len, text.splitlines())) <= 80
    plain = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    test = whole["chosen"]["tasks"][0]
    gain = f"[{100 * test['gain_low']:.1f}, {100 * test['gain_high']:.1f}]"
    for expected in ("chosen: 5.mlp.up top 0.05", f"+{100 * test['gain']:.1f}", gain, "rolled back", "step4000"):
        assert expected in plain


def test_no_number_of_the_tokens_is_cut_in_eighty_columns_with_revisions_however_long_its_task_and_large_its_ranks():
    summary = made.study()
    for row in summary["tokens"]:
        row |= {"task": "shuffled:facts:places/known_1000.json", "revision": row["revision"] and "step143000"}
        row |= {"rank_right": 31234.5, "rank_tempting": 41234.5, "margin": -11.1, "margin_low": -12.25}
        row |= {"margin_high": -10.05, "p_right": 1.0, "p_right_low": 0.994, "p_right_high": 1.0}
    text = shown(summary)
    assert max(map(len, text.splitlines())) <= 80
    table = text[text.index("The right and the tempting token") : text.index("Along the revisions")]
    assert "…" not in table
    for number in ("31,234.5", "41,234.5", "−11.10", "[−12.25, −10.05]", "100.0"):
        assert number in table.replace("\N{NO-BREAK SPACE}", " ")


def test_a_collapsed_cell_stands_behind_the_others_in_the_terminal():
    summary = made.study()
    for cell in summary["cells"]:
        if cell["edit"] == made.edit(*made.COLLAPSED):
            cell["score"] = 1.0
    of_best = shown(summary, 120).split("The best 10 of")[1].split("On test items")[0]
    assert made.edit(*made.COLLAPSED) not in of_best
