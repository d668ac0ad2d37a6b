"""What every report writes: tables in which a spreadsheet finds no formula; and which errors are those of a folder."""

from __future__ import annotations

import csv
import io

import jinja2
import pandas as pd
import pytest

from lesion.errors import LesionError, UsageError
from lesion.report.files import received, spreadsheet


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
    assert [row[3] for row in rows[1:4]] == ["-1", "'-1", "2.5"]
    assert next(iter(table["=name"])) == "=1+1"


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
