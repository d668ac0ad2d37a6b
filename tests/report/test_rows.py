"""Rows: one declaration is the JSON, the file, the table on a page and the one in a terminal."""

import csv
import io

import pytest
from made_rows import MadeBlock, MadeTask, block, made, rows, task
from rich.console import Console

from lesion.report import wording
from lesion.report.publishing import spreadsheet
from lesion.report.rows import Row, Rows, column, columns_of, derived, flat, shown_of, subject, text_of, value_of
from lesion.report.table import Table, Wide
from lesion.report.values import ByUnit, Estimate, Form, decimals


def headings(shown: Rows) -> list[str]:
    return [column.title for column in Table.of(shown).columns]


def cells(shown: Rows) -> list[list[str]]:
    return [[cell.text for cell in line] for _, line in Table.of(shown).shown]


def printed(table: Table, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(Wide(table.terminal()))
    return console.file.getvalue()


def test_a_line_of_a_file_has_every_declared_column_and_no_other_field():
    line = flat(made()[1], (MadeTask, MadeBlock))
    assert line == {
        "model": "m", "task": "sums", "baseline": 0.75, "unit": "share", "layer": 1, "items": 9,
        "drop": 0.5, "drop_low": 0.25, "drop_high": 0.75, "drop_p": 0.001, "drop_p_corrected": 0.002,
        "score": None, "from": None, "to": None, "amount": None, "critical": True, "share_kept": 0.5,
    }  # fmt: skip
    assert "raw" in MadeBlock.model_fields


def test_csv_has_every_line_unrounded_and_nothing_where_a_number_is_missing():
    records = [(task(), block(0, 1 / 3, 0.1, 0.2)), (task(), block(1, None))]
    first, second = csv.DictReader(io.StringIO(spreadsheet(Table.of(rows(records)).frame)))
    assert float(first["drop"]) == 1 / 3
    assert float(first["share_kept"]) == 1 - 1 / 3
    assert second["drop"] == second["drop_low"] == second["share_kept"] == ""


def test_the_json_of_a_row_is_that_of_its_fields_alone():
    row = block(1, 0.5)
    assert set(row.model_dump()) == {"layer", "items", "drop", "score", "amount", "critical", "raw"}
    assert MadeBlock.model_validate_json(row.model_dump_json()) == row


def test_labels_stand_in_the_table_only_where_they_tell_lines_apart():
    assert headings(rows())[:3] == ["Model", "Task", "Block"]
    assert headings(rows(made(models=("m",))))[0] == "Task"
    assert headings(rows(made(models=("m",), tasks=("sums",))))[0] == "Block"
    alone = rows(made(models=("m",), tasks=("sums",))[:1])
    assert headings(alone)[:2] == ["Model", "Task"]  # a single line keeps its name


def test_the_columns_of_an_excerpt_are_those_of_the_whole():
    whole = made()
    few = rows(whole[:2], whole=whole)
    assert headings(few) == headings(rows(whole))


@pytest.mark.parametrize(("p", "heading"), [((None, None), []), ((0.01, None), ["p"]), ((0.01, 0.02), ["Corrected p"])])
def test_a_test_stands_beside_its_number_corrected_where_it_is(p, heading):
    drop = Estimate(value=0.5, p=p[0], p_corrected=p[1])
    titles = headings(rows([(task(), MadeBlock(layer=0, items=1, drop=drop))]))
    at = titles.index("Drop, points")
    assert [title for title in titles[at + 1 : at + 2] if "p" in title.split()] == heading


def test_a_column_without_any_value_is_not_shown_and_a_single_missing_number_is_a_dash():
    titles = headings(rows())
    assert "Score, nats" not in titles
    assert "Amount" not in " ".join(titles)
    line = cells(rows())[2]
    assert line[titles.index("Drop, points")] == wording.DASH
    assert line[titles.index("Corrected p")] == wording.DASH


def test_an_estimate_is_written_with_its_interval_and_keeps_its_sign():
    titles = headings(rows())
    first, second = cells(rows())[:2]
    assert first[titles.index("Drop, points")] == f"−12.5 [−25.0,{wording.SPACE}0.0]"
    assert second[titles.index("Drop, points")] == f"50.0 [25.0,{wording.SPACE}75.0]"
    assert (first[titles.index("Kept, %")], second[titles.index("Critical")]) == ("112.5", "yes")


def test_numbers_of_one_unit_have_it_in_the_heading_and_of_several_in_every_cell():
    one = [(task(unit="nats"), block(0, 0.1, amount=1.5)), (task(unit="nats"), block(1, 0.1, amount=-0.25))]
    assert "Amount, nats" in headings(rows(one))
    assert [line[headings(rows(one)).index("Amount, nats")] for line in cells(rows(one))] == ["1.500", "−0.250"]
    mixed = [*one, (task(unit="share"), block(2, 0.1, amount=0.5))]
    at = headings(rows(mixed)).index("Amount")
    assert [line[at] for line in cells(rows(mixed))] == [
        f"1.500{wording.SPACE}nats", f"−0.250{wording.SPACE}nats", f"50.0{wording.SPACE}%",
    ]  # fmt: skip
    assert text_of(mixed[2], "amount") == "50.0"
    assert isinstance(columns_of(MadeBlock)[4].form, ByUnit)


def test_a_missing_row_leaves_its_columns_empty():
    records = [(task(), None), (task("n"), block(1, 0.5))]
    frame = Table.of(rows(records)).frame
    assert frame["drop"].isna().tolist() == [True, False]
    assert frame["model"].tolist() == ["m", "n"]
    assert value_of(records[0], "drop") is None


def test_people_see_lines_in_their_order_and_the_file_keeps_its_own():
    ordered = rows(order="size")
    table = Table.of(ordered)
    assert table.frame["layer"].tolist() == [0, 1, 2] * 4
    assert [record["layer"] for record in table.records] == [2] * 4 + [0] * 4 + [1] * 4
    assert ordered.first(5) == [made()[at] for at in (2, 5, 8, 11, 0)]


def test_an_excerpt_has_marked_lines_then_the_largest_in_the_order_of_all():
    assert rows(marked="critical", most="size").first(5) == [made()[at] for at in (0, 1, 4, 7, 10)]
    assert rows(most="size").first(2) == [made()[at] for at in (1, 4)]
    assert rows().first(2) == made()[:2]


def test_what_is_claimed_of_stands_in_an_excerpt_first():
    assert rows(most="size").first(2, [made()[6]]) == [made()[1], made()[6]]


def test_a_subject_is_what_tells_a_line_apart_from_the_others():
    tasks = [task("m", "sums"), task("m", "facts")]
    assert [subject(each, tasks) for each in tasks] == ["sums", "facts"]
    assert subject(tasks[0], tasks[:1]) == ""
    several = [task("m", "sums"), task("n", "facts")]
    assert subject(several[0], several) == "m · sums"


def test_no_cell_of_the_terminals_table_is_broken_at_80_columns():
    text = printed(Table.of(rows()))
    assert max(map(len, text.splitlines())) <= 80
    words = set(text.split())
    for line in cells(rows()):
        for cell in line:
            assert set(cell.replace(wording.SPACE, " ").split()) <= words


def test_a_name_that_no_row_has_is_an_error_and_an_undeclared_one_is_shown_as_it_is():
    with pytest.raises(AttributeError, match="has nothing"):
        value_of(made()[0], "nothing")
    assert shown_of(made()[0], "raw").title == "raw"


def test_a_class_may_inherit_columns_and_declare_its_keys():
    class Longer(MadeTask):
        share: Estimate = column("Share", Form(0, 100.0, "%"), key="s", ends=("a", "b"), p="q")
        left_out: int = column(default=0, omitted=True)

        @derived.column("Twice", decimals(1))
        def twice(self) -> float | None:
            return None if self.share.value is None else 2 * self.share.value

    row: Row = Longer(model="m", task="t", baseline=0.5, share=Estimate(value=0.5, low=0.251, high=0.749, p=0.1))
    assert flat(row, (Longer,)) == {
        "model": "m", "task": "t", "baseline": 0.5, "unit": "share",
        "s": 0.5, "a": 0.251, "b": 0.749, "q": 0.1, "q_corrected": None, "left_out": 0, "twice": 1.0,
    }  # fmt: skip
    assert "left_out" not in row.model_dump()
    assert text_of(row, "share") == f"50 [25,{wording.SPACE}75]"  # outward: 25.1 and 74.9 lie within
