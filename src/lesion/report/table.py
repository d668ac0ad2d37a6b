"""Tables as values: one table is sortable HTML on a page, text in a terminal, and a CSV or parquet file.

A table has its numbers unrounded in a data frame; its columns say how each is written for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Column as TerminalColumn
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.plain import plain as one_line
from lesion.report import wording
from lesion.report.names import Names
from lesion.report.rows import Rows, Shown, flat
from lesion.report.values import ByUnit, Estimate, Mean, Write, plain, unknown

MOST_COLUMNS = 12
"""Of `Table.essential`."""
MOST_ROWS = 1500
"""A page shows at most so many rows of a table; its file has them all."""


@dataclass(frozen=True)
class Column:
    """A column as people see it.

    Attributes:
        key: the column of the data frame that it shows, and is sorted by.
        title: its heading.
        form: how a value is written.
        row: how a whole row is written in this column, in place of `form`: `0.52 ± 0.01` is made of two columns.
        number: whether it stands right-aligned, and is sorted as a number.
        ends: the columns of the data frame with its interval or spread.
    """

    key: str
    title: str
    form: Write = plain
    row: Callable[[Any], str] | None = None
    number: bool = True
    ends: tuple[str, ...] = ()

    def write(self, row: Any) -> str:
        """The text of the cell of a row, one of `Table.records`."""
        return self.row(row) if self.row is not None else self.form(row[self.key])

    def in_short(self, names: Names) -> Column:
        """The same with short names of models and tasks."""
        return replace(self, title=names(self.title), row=lambda row: names(self.write(row)))


def _keys(columns: Sequence[Shown]) -> list[str]:
    return list(dict.fromkeys(key for shown in columns for key, _ in shown.columns(None)))


def _columns(shown: Shown, frame: pd.DataFrame) -> list[Column]:
    """The columns that people see of one that rows declare: an estimate with its interval, and its test beside it."""
    units = list(frame["unit"].unique()) if isinstance(shown.form, ByUnit) else []
    if len(units) == 1:
        shown = shown.within(units[0])
    if not shown.estimate and not shown.mean and not isinstance(shown.form, ByUnit):
        text = frame[shown.key].map(lambda value: isinstance(value, str | bool)).any()
        return [Column(shown.key, shown.heading, shown.form, number=not shown.label and not text)]
    ends = (shown.low, shown.high) if shown.estimate else (f"{shown.key}_std",) if shown.mean else ()
    columns = [Column(shown.key, shown.heading, row=lambda row: _cell(shown, row), ends=ends)]
    corrected = f"{shown.p}_corrected"
    if shown.p and shown.corrected and frame[corrected].notna().any():
        columns.append(Column(corrected, "Corrected p", wording.p_value))
    elif shown.p and frame[shown.p].notna().any():
        columns.append(Column(shown.p, "p", wording.p_value))
    return columns


def _cell(shown: Shown, row: Any) -> str:
    """A number, with its interval or spread where it has one; with its unit, where that differs from row to row."""
    value = row[shown.key]
    if shown.estimate:
        value = Estimate(value=value, low=row[shown.low], high=row[shown.high])
    elif shown.mean:
        value = None if unknown(value) else Mean(mean=value, std=row[f"{shown.key}_std"])
    form = shown.within(row.get("unit"))
    return form.write(value) if form is shown else form.sentence(value)


def plain_columns(*, number: bool = True, **titles: str) -> tuple[Column, ...]:
    """Columns that show a value as it is, by their keys."""
    return tuple(Column(key, title, number=number) for key, title in titles.items())


class Cell(NamedTuple):
    """A cell of the page's table: its text, and the value that it is sorted by."""

    text: str
    value: Any
    column: Column


@dataclass(frozen=True)
class Table:
    """Rows with the columns that people see.

    Attributes:
        name: of its file, `NAME.csv`; of none where it is empty.
        frame: all rows with all numbers, as the file has them.
        columns: those shown; none for a table that is only a file.
        title: above it in a terminal.
        caption: beneath it on a page.
        mark: whether a row is marked (bold in a terminal, boxed on a page).
        marked: what a box is called that leaves only the marked rows on a page; no box where it is empty.
        order: the places of the rows in the order in which people see them; by default that of the file.
    """

    name: str
    frame: pd.DataFrame
    columns: tuple[Column, ...] = ()
    title: str = ""
    caption: str = ""
    mark: Callable[[Any], bool] | None = None
    marked: str = ""
    order: Sequence[int] = ()
    kind: str = field(default="table", init=False)

    def essential(self, first: Sequence[str] = ()) -> pd.DataFrame:
        """The columns that people need, `MOST_COLUMNS` at most, unrounded: those that they see, with intervals.

        Args:
            first: columns that stand before all others, whatever they hold.
        """
        labels = [column.key for column in self.columns if not column.number]
        numbers = [column for column in self.columns if column.number]
        wanted = dict.fromkeys([*first, *labels, *(column.key for column in numbers)])
        there = (key for key in wanted if key in self.frame and (key in first or self.frame[key].notna().any()))
        keys = list(there)[:MOST_COLUMNS]
        for column in numbers:
            ends = [end for end in column.ends if end not in keys]
            if column.key in keys and len(keys) + len(ends) <= MOST_COLUMNS:
                place = keys.index(column.key) + 1
                keys[place:place] = ends
        return self.frame[keys]

    @classmethod
    def of(cls, rows: Rows) -> Table:
        """The table of rows with the columns that they declare."""
        frame = pd.DataFrame([flat(record, rows.of) for record in rows.records], columns=_keys(rows.columns))
        numbers = {
            key: float for shown in rows.columns if shown.estimate or shown.mean for key, _ in shown.columns(None)
        }
        missing = [key for key in frame if len(frame) and frame[key].isna().all()]
        whole = (shown.key for shown in rows.columns if shown.whole and frame[shown.key].isna().any())
        brief = bool(rows.whole and rows.brief)
        return cls(
            rows.name,
            frame.astype(dict.fromkeys(missing, float) | numbers | dict.fromkeys(whole, "Int64")),
            tuple(column for shown in rows.visible for column in _columns(shown, frame)[: 1 if brief else None]),
            rows.title,
            rows.caption,
            (lambda row: bool(row[rows.marked])) if rows.marked else None,
            rows.only_marked,
            rows.ordered,
        )

    def in_short(self, names: Names) -> Table:
        """The same table as people see it, with short names of models and tasks; the file keeps the full ones."""
        columns = tuple(column if column.number else column.in_short(names) for column in self.columns)
        return replace(self, title=names(self.title), caption=names(self.caption), columns=columns)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, with Python's own numbers; what is missing is None."""
        frame = self.frame.iloc[list(self.order)] if self.order else self.frame
        rows = frame.astype(object).to_dict("records")
        return [{str(key): _own(value) for key, value in row.items()} for row in rows]

    @property
    def shown(self) -> Iterator[tuple[bool, list[Cell]]]:
        """The page's rows: whether each is marked, and its cells."""
        for row in self.records[:MOST_ROWS]:
            marked = self.mark is not None and self.mark(row)
            yield marked, [Cell(column.write(row), row.get(column.key), column) for column in self.columns]

    @property
    def left_out(self) -> int:
        """How many rows the page does not show."""
        return max(0, len(self.frame) - MOST_ROWS)

    def terminal(self) -> TerminalTable:
        """The table for a terminal; its texts act on nothing."""
        table = terminal_table(self.title, [(column.title, column.number) for column in self.columns])
        for row in self.records:
            style = "bold" if self.mark is not None and self.mark(row) else None
            table.add_row(*(Text(one_line(column.write(row))) for column in self.columns), style=style)
        return table


def terminal_table(title: str, headings: Sequence[tuple[str, bool]]) -> TerminalTable:
    """An empty table for a terminal in the house style; a heading and whether its column is right-aligned."""
    table = TerminalTable(
        title=Text(one_line(title)),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1),
    )
    for heading, number in headings:
        table.add_column(Text(one_line(heading)), justify="right" if number else "left", overflow="fold")
    return table


@dataclass(frozen=True)
class Wide:
    """A terminal's table with any number of columns, none of whose cells is broken.

    What does not fit side by side stands in further tables, each with the names on the left; all have about as many
    columns. A heading is broken between words.

    Attributes:
        rest: how to see the columns that do not fit, in place of further tables; behind a title that does not say it.
    """

    table: TerminalTable
    rest: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[TerminalTable]:
        widths = [self._width(column, console, options) for column in self.table.columns]
        if self.rest:
            fitting = [at for at in range(len(widths)) if at == 0 or _together(widths[: at + 1]) <= options.max_width]
            known = len(fitting) == len(widths) or self.rest in str(self.table.title)
            yield self._part(fitting, widths, "" if known else f" ({self.rest})")
            return
        names = self._names(widths, options.max_width)
        others = range(len(names), len(widths))
        for count in range(1, max(1, len(others)) + 1):
            ends = [round(len(others) * part / count) for part in range(count + 1)]
            parts = [others[start:end] for start, end in pairwise(ends)]
            if all(_together(widths[at] for at in (*names, *part)) <= options.max_width for part in parts):
                break
        for number, part in enumerate(parts, 1):
            yield self._part((*names, *part), widths, f" ({number} of {count})" if count > 1 else "")

    def _names(self, widths: Sequence[int], room: int) -> Sequence[int]:
        """The columns on the left that say what a row is: the texts before the first number, where these leave room."""
        texts = next((at for at, column in enumerate(self.table.columns) if column.justify == "right"), len(widths))
        names = range(max(1, min(texts, len(widths) - 1)))
        return names if _together(widths[at] for at in names) <= room / 2 else range(1)

    def _width(self, column: TerminalColumn, console: Console, options: ConsoleOptions) -> int:
        heading = console.measure(column.header, options=options)
        cells = [console.measure(cell, options=options).maximum for cell in column.cells]
        return max(*cells, heading.minimum, 1) if cells else heading.maximum

    def _part(self, columns: Sequence[int], widths: Sequence[int], which: str) -> TerminalTable:
        """The table of some of the columns, by number."""
        part = terminal_table(f"{self.table.title}{which}", [])
        for at in columns:
            column = self.table.columns[at]
            part.add_column(column.header, justify=column.justify, overflow=column.overflow, min_width=widths[at])
        cells = zip(*(self.table.columns[at].cells for at in columns), strict=True)
        for row, shown in zip(self.table.rows, cells, strict=True):
            part.add_row(*shown, style=row.style, end_section=row.end_section)
        return part


def _together(widths: Iterable[int]) -> int:
    """The width of columns side by side, with the space around them."""
    return sum(width + 3 for width in widths) + 1


def _own(value: Any) -> Any:
    plain_value = value.item() if hasattr(value, "item") else value
    return None if unknown(plain_value) else plain_value
