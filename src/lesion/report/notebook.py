"""What a notebook shows of a value: HTML that makes no request and runs nothing, in which every text is escaped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_float_dtype, is_numeric_dtype

from lesion.markup import CELL, HEADLINE, QUIET, TABLE, boxed, line, seen
from lesion.report import drawing, wording
from lesion.report.blocks import Figure
from lesion.report.figures import Drawing
from lesion.report.table import Column, Table
from lesion.report.values import decimals, plain

MOST_ROWS, MOST_COLUMNS, MOST_PANELS, MOST_SENTENCES, MOST_NOTES = 12, 10, 2, 3, 3
"""Of a table, of a figure, of the findings and of the notes; the report has them all."""


def result(
    title: str, findings: Sequence[str], table: Table, figure: Figure | None, report: str, notes: Sequence[str] = ()
) -> str:
    """A result: its first findings with the notes that limit them, the first rows of its table and its first chart.

    Args:
        title: what was done.
        findings: as sentences, the verdict first.
        table: the main one.
        figure: the first of the page; None where it has none.
        report: how to see everything else, as a sentence.
        notes: what a reader should know of the numbers.
    """
    head, *more = findings[:MOST_SENTENCES] or ("Nothing has been measured yet.",)
    parts = [line(title, QUIET), line(head, HEADLINE)]
    parts += [line(sentence) for sentence in more]
    parts += [line(f"Note: {note}") for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        parts.append(line(f"… and {wording.counted(len(notes) - MOST_NOTES, 'note')} more: result.notes", QUIET))
    if figure is not None:
        parts.append(chart(figure))
    parts += [_rows(table), line(report, QUIET)]
    return boxed(parts)


def chart(figure: Figure) -> Markup:
    """The first panels of a figure as SVG, with its caption."""
    shown = replace(figure, panels=figure.panels[:MOST_PANELS], columns=1)
    drawn = drawing.svg(Drawing.of(shown).specified)
    prefix = f"n{hashlib.sha256(drawn.encode()).hexdigest()[:8]}-"
    left_out = len(figure.panels) - len(shown.panels)
    more = f" {left_out} more panels: result.plot()." if left_out else ""
    return Markup("{}{}").format(Markup(drawing.apart(drawn, prefix)), line(figure.caption + more, QUIET))


def _rows(table: Table) -> Markup:
    """The first rows of a table, and how many there are more."""
    columns = table.columns or _columns(table.frame)
    head = Markup("").join(
        Markup('<th style="{}">{}</th>').format(f"{CELL};{_side(column.number)}", seen(column.title))
        for column in columns
    )
    body = Markup("")
    for row in table.records[:MOST_ROWS]:
        weight = ";font-weight:600" if table.mark is not None and table.mark(row) else ""
        cells = (
            Markup('<td style="{}">{}</td>').format(f"{CELL};{_side(column.number)}{weight}", seen(column.write(row)))
            for column in columns
        )
        body += Markup("<tr>{}</tr>").format(Markup("").join(cells))
    left_out = max(0, len(table.frame) - MOST_ROWS)
    more = line(f"… and {wording.counted(left_out, 'row')} more: result.table") if left_out else ""
    whole = Markup('<table style="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>').format(TABLE, head, body)
    return whole + more


def _columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    """The first columns of a table that is only a file."""
    chosen = [str(key) for key in frame.columns if frame[key].notna().any()][:MOST_COLUMNS]
    forms = {key: decimals(3) if is_float_dtype(frame[key]) else plain for key in chosen}
    return tuple(
        Column(key, key.replace("_", " "), form, number=is_numeric_dtype(frame[key])) for key, form in forms.items()
    )


def _side(number: bool) -> str:
    return "text-align:right;white-space:nowrap" if number else "text-align:left"
