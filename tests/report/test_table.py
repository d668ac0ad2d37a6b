"""Tables: one value is a sortable table on a page, text in a terminal, CSV and parquet."""

import io
import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from page_checks import Elements
from rich.console import Console

from lesion.report import table as module
from lesion.report import wording
from lesion.report.blocks import Page, Section
from lesion.report.publishing import html, spreadsheet
from lesion.report.table import Column, Table, Wide, plain_columns, terminal_table
from lesion.report.values import decimals, plain

FRAME = pd.DataFrame(
    {
        "model": ["a:b.c", "other", "third"],
        "items": pd.array([1200, None, 3], dtype="Int64"),
        "drop": [0.12345678901234567, -0.5, math.nan],
        "low": [0.1, None, None],
    }
)
COLUMNS = (
    Column("model", "Model", number=False),
    Column("items", "Items"),
    Column("drop", "Drop", decimals(3, signed=True)),
    Column("low", "From", row=lambda row: "none" if row["low"] is None else f"{row['low']:.1f} of {row['model']}"),
)


@pytest.fixture
def table():
    return Table(
        "drops", FRAME, COLUMNS, title="All drops", caption="Points.", mark=lambda row: row["model"] == "other"
    )


def page_of(*tables: Table) -> str:
    return html(Page("A study", "made", (Section("Findings", "Findings", tables),)))


class Cells(HTMLParser):
    """The rows of the tables of a page: of every cell its text and its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, dict[str, str | None]]]] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        self._inside = tag in ("td", "th")
        if self._inside:
            self.rows[-1].append(("", dict(attributes)))

    def handle_endtag(self, tag):
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self._inside:
            text, attributes = self.rows[-1][-1]
            self.rows[-1][-1] = (text + data, attributes)


def shown(table: Table, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table.terminal())
    return console.file.getvalue()


WRITTEN = [["a:b.c", "1,200", "+0.123", "0.1 of a:b.c"], ["other", "–", "−0.500", "none"], ["third", "3", "–", "none"]]


def test_the_page_shows_what_people_read_and_carries_what_it_is_sorted_by(table):
    heading, *rows = Cells(page_of(table)).rows
    assert [text for text, _ in heading] == ["Model", "Items", "Drop", "From"]
    assert [[text for text, _ in row] for row in rows] == WRITTEN
    values = [[attributes.get("data-v") for _, attributes in row] for row in rows]
    assert values[0] == [None, "1200", str(0.12345678901234567), "0.1"]
    assert values[1] == [None, "None", "-0.5", "None"]
    assert values[2][2] == "None"
    marked = [tag for tag in Elements(page_of(table)).found if tag[1].get("class") == "is-critical"]
    assert len(marked) == 1


def test_the_terminal_shows_the_same(table):
    lines = [" ".join(line.split()) for line in shown(table).splitlines()]
    assert lines[0] == "All drops"
    assert [line for line in lines if line.startswith(("a:b.c", "other", "third"))] == [
        " ".join(row) for row in WRITTEN
    ]


@pytest.mark.parametrize(("width", "parts"), [(87, [6]), (86, [3, 3]), (48, [3, 3]), (47, [2, 2, 2]), (30, [1] * 6)])
def test_columns_that_do_not_fit_stand_in_further_tables_with_the_first_column_again(width, parts):
    whole = terminal_table("drops", [("block", True), *((f"t{number}", True) for number in range(6))])
    for row in range(2):
        whole.add_row(f"{row:5}", *(f"{row}.{number} [1, 2]" for number in range(6)), end_section=row == 0)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(Wide(whole))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    headings = [line[1:] for line in lines if line[:1] == ["block"]]
    assert [len(heading) for heading in headings] == parts
    assert [name for heading in headings for name in heading] == [f"t{number}" for number in range(6)]
    titles = [" ".join(line) for line in lines if line[:1] == ["drops"]]
    several = [f"drops ({number} of {len(parts)})" for number in range(1, len(parts) + 1)]
    assert titles == (several if len(parts) > 1 else ["drops"])
    cells = " ".join(" ".join(line[1:]) for line in lines if line[:1] == ["1"])
    assert cells == " ".join(f"1.{number} [1, 2]" for number in range(6))


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), pd.NA])
def test_whatever_is_missing_is_none_in_a_row_and_a_dash_for_people(missing):
    frame = pd.DataFrame({"a": [1, 2], "b": pd.Series([missing, 0.5], dtype=object)})
    table = Table("t", frame, (Column("b", "B"), Column("b", "B", decimals(2))))
    assert table.records[0] == {"a": 1, "b": None}
    assert [cell.text for cell in next(iter(table.shown))[1]] == [wording.DASH, wording.DASH]


def test_numbers_are_written_with_thousands_a_minus_and_never_a_minus_zero():
    assert plain(12345) == "12,345"
    assert plain(True) == "yes"
    assert plain("a") == "a"
    assert decimals(3)(-0.07849) == "−0.078"
    assert decimals(1)(-0.04) == "0.0"
    assert decimals(1, signed=True)(0.04) == "0.0"
    assert decimals(1, signed=True)(2) == "+2.0"


def test_nothing_acts_on_the_terminal_and_spaces_that_do_not_break_are_spaces():
    frame = pd.DataFrame({"name": ["[red]a[/red]", "b\x1b[31m\u202e", "29\N{NO-BREAK SPACE}%"]})
    text = shown(Table("t", frame, (Column("name", "[b]N\x07", number=False),), "[i]T\x1b"))
    assert "[red]a[/red]" in text
    assert "29\N{NO-BREAK SPACE}%" in text
    assert "[b]N" in text
    assert "[i]T" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_a_page_shows_so_many_rows_and_says_how_many_more_there_are(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 5)
    table = Table("t", pd.DataFrame({"n": range(12)}), (Column("n", "N"),))
    page = page_of(table)
    assert len(Cells(page).rows) == 1 + 5
    assert "7 more rows are in the file. Unrounded: <code>t.csv</code>." in page
    assert len(spreadsheet(table.frame).splitlines()) == 1 + 12


def test_columns_that_do_not_fit_a_terminal_are_left_out_where_it_says_how_to_see_them():
    frame = pd.DataFrame({f"column {number}": ["a long cell"] for number in range(12)})
    table = Table("", frame, plain_columns(**{name: name for name in frame}), title="Wide").terminal()
    console = Console(width=80, file=io.StringIO())
    console.print(Wide(table, "--all: every column"))
    text = console.file.getvalue()
    assert text.count("Wide") == 1
    assert "Wide (--all: every column)" in text
    assert "column 1" in text
    assert "column 11" not in text
    assert text.count("a long cell") == text.count("column ")


def test_the_columns_that_people_need_are_twelve_at_most_and_intervals_stand_whole():
    names = [f"n{number}" for number in range(10)]
    frame = pd.DataFrame({"model": ["a"], "empty": [None], **{name: [1.0] for name in (*names, "low", "high")}})
    columns = [
        Column("model", "Model", number=False),
        Column("empty", "Nothing"),
        *(Column(name, name) for name in names),
    ]
    assert list(Table("", frame, (*columns,)).essential(("n3", "empty")).columns) == [
        "n3",
        "empty",
        "model",
        *names[:3],
        *names[4:],
    ]
    columns[3] = Column("n1", "n1", ends=("low", "high"))  # 11 columns so far: both ends would make 13
    assert len(Table("", frame, (*columns,)).essential().columns) == 11
    assert list(Table("", frame, (*columns[:5],)).essential().columns) == ["model", "n0", "n1", "low", "high", "n2"]
