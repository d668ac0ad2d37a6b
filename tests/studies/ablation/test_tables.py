"""The table of a layer study, for files and for the terminal."""

import io
from pathlib import Path

from made import form, records, study, valid
from rich.console import Console

from lesion.studies.ablation.report import AblationResult


def shown(summary, width=120, *, every=True) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    result = AblationResult(Path("nowhere"), summary, stored=records())
    console.print(result.text(every=every))
    return console.file.getvalue()


def test_a_study_without_any_answer_gives_an_empty_table_with_all_columns():
    table = AblationResult(Path("nowhere"), valid(form((), ()))).table_full
    assert table.empty
    assert list(table.columns) == list(AblationResult(Path("nowhere"), study()[0]).table_full.columns)


def test_the_terminal_marks_critical_blocks_and_shows_few_rows_unless_all_are_wanted():
    summary = study(models=("base",))[0]
    rows = [line for line in shown(summary, width=200).splitlines() if ("[" in line and "90.0" in line) or "●" in line]
    assert sum("● critical" in line for line in rows) == 1
    few = shown(summary, every=False)
    assert "4 of 8 rows (" in few
    assert "● critical" in few
    assert len(few.splitlines()) <= 15
