"""Tables for files and for the terminal."""

import io

from made import form, study, valid
from rich.console import Console

from lesion.studies.ablation import tables


def shown(summary, width=120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(tables.text(summary, {}))
    return console.file.getvalue()


def test_the_table_has_a_row_per_model_task_and_layer_with_the_baseline_beside_it():
    summary = study()[0]
    table = tables.frame(summary)
    assert list(table.columns) == list(tables.COLUMNS)
    assert len(table) == 2 * 2 * 4
    row = table[(table.model == "child") & (table.task == "sums") & (table.layer == 2)].iloc[0]
    assert (row["accuracy"], row["drop"], row["baseline_accuracy"]) == (0.0, 0.9, 0.9)
    assert row.critical


def test_a_study_without_any_answer_gives_an_empty_table_with_all_columns():
    table = tables.frame(valid(form((), ())))
    assert table.empty
    assert list(table.columns) == list(tables.COLUMNS)


def test_the_terminal_shows_layers_by_tasks_with_intervals_and_marks_critical_ones():
    text = shown(study(models=("base",))[0]).replace("\N{NO-BREAK SPACE}", " ")
    (row,) = [line for line in text.splitlines() if line.split()[:1] == ["2"]]
    assert "● 0.0 [0.0, 27.8]" in row
    assert row.count("●") == 1
    assert "more than 50 %" in text


def test_nine_tasks_stand_in_80_columns_in_whole_cells_each_once():
    tasks = tuple(f"arithmetic:operation{number}" for number in range(9))
    text = shown(study(models=("base",), tasks=tasks)[0], width=80).replace("\N{NO-BREAK SPACE}", " ")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [sum(task in line for line in lines) for task in tasks] == [1] * 9
    rows = [line for line in lines if line.split()[:1] == ["baseline"]]
    assert len(rows) > 1
    assert sum(row.count("90.0 [59.6, 98.2]") for row in rows) == 9
    assert {line.split()[0] for line in lines if "[" in line and line.split()[0].isdigit()} == {"0", "1", "2", "3"}


def test_names_that_look_like_markup_are_shown_as_they_are():
    assert "[bold]x[/bold]" in shown(study(models=("[bold]x[/bold]",), tasks=("[red]t",))[0])


def test_cells_not_answered_yet_say_so():
    summary = form(models=("base",))
    del summary["models"][0]["tasks"][1]["cells"][2]
    assert shown(valid(summary)).count("not yet") == 1


def test_a_model_beside_a_deeper_one_has_its_own_layers_only():
    summary = form(models=("shallow", "deep"))
    for task in summary["models"][0]["tasks"]:
        del task["cells"][-1]
    text = shown(valid(summary))
    assert "not yet" not in text
    depth = len(summary["models"][1]["tasks"][0]["cells"])
    last = [line for line in text.splitlines() if line.split()[:1] == [str(depth - 1)] and "[" in line]
    assert len(last) == 1  # of the deeper model alone
