"""What every report writes: tables in which a spreadsheet finds no formula."""

from __future__ import annotations

import csv
import io

import pandas as pd

from lesion.report.files import spreadsheet


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
