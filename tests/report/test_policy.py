"""What every report writes: tables in which a spreadsheet finds no formula; and which errors are those of a folder."""

import csv
import io
import json
import shutil
import subprocess

import jinja2
import pandas as pd
import pytest

from lesion.errors import LesionError, UsageError
from lesion.report.publishing import HERE, received, spreadsheet


def test_no_text_of_a_table_is_a_formula_and_numbers_stay_numbers():
    texts = ["=1+1", "@SUM(A1)", "+cmd", "-2+3", "\t=1", "\r=1", "plain", "a\r=b", None]
    table = pd.DataFrame({"=name": texts, "drop": [-0.5] * 9, "critical": [True] * 9, "mixed": [-1, "-1", *[2.5] * 7]})
    rows = list(csv.reader(io.StringIO(spreadsheet(table), newline="")))
    assert rows[0] == ["'=name", "drop", "critical", "mixed"]
    assert [row[0] for row in rows[1:]] == [
        "'=1+1",
        "'@SUM(A1)",
        "'+cmd",
        "'-2+3",
        "'\t=1",
        "'\\r=1",
        "plain",
        "a\\r=b",
        "",
    ]
    assert {row[1] for row in rows[1:]} == {"-0.5"}
    assert {row[2] for row in rows[1:]} == {"True"}
    assert [row[3] for row in rows[1:4]] == ["-1", "-1", "2.5"]
    assert next(iter(table["=name"])) == "=1+1"


LIVE = (
    *(
        "=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "-cmd", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-1-1",
        "--1",
    ),
    *("-1e5+1", "-.5x", "-", "- 5", "-5\n", "\uff1d1", "\uff0b1", "\uff0d2+3", "\uff20A1", "\ufe661", "\ufe631", " =1"),
    *("\u00a0=1", "\u3000=1", "\u200b=1", "\ufeff=1", "\x00=1", "\x1f=1", "\u2028=1", '"=1', "'=1", ' "\t =1', "`=1"),
    *("\u2060@A", "-1,2", "-\u0661", "-\uff11", "+5", "-1 234"),
)  # fmt: skip
DEAD = (
    "a", "a=b", "3-4", "(-1, 2)", "-5", "-0.5", "-.5", "-5.", "-1e-05", "-1E+20", "5", "a; b;-5",
    "a\rb\u2028\u202e\U000e0001",
)  # fmt: skip


def test_a_formula_behind_a_semicolon_is_guarded_too():
    cells = {"x;=1+1;y": "x;'=1+1;y", "a; @b": "a;' @b", "2;-5;b=c": "2;-5;b=c", ";": ";"}
    rows = list(csv.reader(io.StringIO(spreadsheet(pd.DataFrame({"x": [*cells]})))))[1:]
    assert [row[0] for row in rows] == [*cells.values()]


def test_every_formula_is_guarded_and_nothing_else():
    rows = list(csv.reader(io.StringIO(spreadsheet(pd.DataFrame({"x": [*LIVE, *DEAD], "y": 0})), newline="")))[1:]
    assert [text for text, (cell, _) in zip(LIVE, rows, strict=False) if not cell.startswith("'")] == []
    assert [text for text, (cell, _) in zip(DEAD, rows[len(LIVE) :], strict=True) if cell.startswith("'")] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node is installed")
def test_the_buttons_of_the_page_write_the_csv_that_the_files_hold():
    script = (HERE / "downloads.js").read_text("utf-8")
    writer = script[script.index("const FORMULA") : script.index("// Colours")]
    table = pd.DataFrame({"=x": [*LIVE, *DEAD], "number": -0.25})
    rows = json.dumps([[*table.columns], *table.to_numpy().tolist()])
    code = f"{writer}; process.stdout.write(csv({rows}))"
    written = subprocess.run(["node", "-"], input=code.encode(), capture_output=True, check=True, timeout=60).stdout
    assert written.decode() == spreadsheet(table)


@pytest.mark.parametrize(
    "error",
    [KeyError("a"), ValueError("a"), TypeError("a"), AssertionError(), ZeroDivisionError(), jinja2.UndefinedError("a")],
)
def test_what_does_not_fit_in_a_received_folder_is_its_damage(error, tmp_path):
    with pytest.raises(LesionError, match=r"The study in .* is damaged .*get the folder anew"), received(tmp_path):
        raise error


@pytest.mark.parametrize(
    "error",
    [NameError("a"), RuntimeError("a"), jinja2.TemplateSyntaxError("a", 1), FileNotFoundError("a"), UsageError("a")],
)
def test_errors_of_our_own_of_the_disk_and_of_use_are_told_as_they_are(error, tmp_path):
    with pytest.raises(type(error)) as caught, received(tmp_path):
        raise error
    assert caught.value is error
