"""Question files: the same questions in every format, in the form they were written, and every fault with its row."""

import csv
import datetime
import gzip
import io
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from lesion.errors import LesionError, UsageError
from lesion.tasks import question_files
from lesion.tasks.catalogue import canonical, find
from lesion.tasks.given import task
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item
from tiny import model

ROWS = [
    {"prompt": 'Say "a, b;\tc"\nand more', "answer": "007", "group": "odd", "aliases": ["7", "VII"]},
    {"prompt": "2 + 2 =", "answer": "4"},
    {"prompt": "naïve 😀", "answer": "1e3", "solution": "ten cubed"},
]


def as_lines(rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def as_table(rows, delimiter: str) -> bytes:
    names = ["prompt", "answer", "group", "aliases", "solution"]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, delimiter=delimiter)
    writer.writeheader()
    writer.writerows({**row, "aliases": json.dumps(row["aliases"]) if "aliases" in row else ""} for row in rows)
    return text.getvalue().encode()


def as_parquet(rows, **kinds) -> bytes:
    table = pa.Table.from_pylist(
        [{name: row.get(name) for name in ("prompt", "answer", "group", "aliases", "solution")} for row in rows]
    )
    for name, kind in kinds.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    out = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue().to_pybytes()


FORMATS = {
    "q.jsonl": as_lines(ROWS),
    "lines.json": as_lines(ROWS),
    "list.json": json.dumps(ROWS, indent=1).encode(),
    "list.jsonl": json.dumps(ROWS).encode(),
    "nulls.jsonl": as_lines(
        [
            {"group": None, "aliases": None, "id": None, "choices": None, "tempting": None, "judge": None} | row
            for row in ROWS
        ]
    ),
    "comma.csv": as_table(ROWS, ","),
    "semicolon.csv": as_table(ROWS, ";"),
    "tabs.csv": as_table(ROWS, "\t"),
    "tabs.tsv": as_table(ROWS, "\t"),
    "q.parquet": as_parquet(ROWS),
    "dictionary.parquet": as_parquet(ROWS, group=pa.dictionary(pa.int32(), pa.string())),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_the_same_questions_are_read_from_every_format(tmp_path, name, packed):
    file = tmp_path / (name + ".gz" * packed)
    mark = b"" if name.endswith("parquet") else b"\xef\xbb\xbf"
    file.write_bytes(gzip.compress(mark + FORMATS[name]) if packed else mark + FORMATS[name])
    items = find(str(file)).load()
    expected = task("x", ROWS).load()
    assert [item.__dict__ | {"metadata": None} for item in items] == [
        item.__dict__ | {"metadata": None} for item in expected
    ]
    assert canonical(str(file)) == f"jsonl:{file}"


def test_one_object_over_several_lines_is_one_question(tmp_path):
    file = tmp_path / "one.json"
    file.write_text(json.dumps(ROWS[0], indent=2), encoding="utf-8")
    (item,) = find(str(file)).load()
    assert (item.id, item.gold) == ("1", "007")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("q.csv", b"", "is empty"),
        ("q.json", b"[]", "is empty"),
        ("q.json", b"[1]", "item 1: this is not a JSON object"),
        ("q.json", b'[{"prompt": "a", "answer": null}]', "item 1: 'answer' must be a text, not null"),
        ("q.csv", b"question,reply\na,b\n", "names its columns, 'prompt' and 'answer' among them"),
        ("q.csv", b"prompt|answer\na|b\n", "parted by commas here; there are 'prompt|answer'"),
        ("q.csv", b"prompt,answer\na,b,c\n", r"row 1 \(line 2\): there are 3 cells for 2 columns"),
        ("q.csv", b'prompt,answer\n"a,b\n', "this is not a table"),
        ("q.csv", b"prompt,answer,choices\na,b,b|c\n", "'choices' in a table is a JSON list"),
        ("q.parquet", b"PAR1 nothing", "cannot be read as Parquet"),
        ("q.jsonl.gz", b'{"prompt": "a", "answer": "b"}', "is not packed with gzip, though its name ends in .gz"),
        ("q.jsonl.gz", gzip.compress(b"abc" * 100, mtime=0)[:-9], "cannot be unpacked"),
        ("q.jsonl.gz", gzip.compress(b"0" * 3000, mtime=0), "unpacks to more than 2,000 bytes"),
        ("q.csv", b"prompt,answer\n" + b"a,b\n" * 21, "at most 20 are read"),
        ("q.jsonl", as_lines([{"prompt": "a", "answer": "b"}] * 21), "has 21 questions; at most 20 are read"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path, monkeypatch, name, content, says):
    monkeypatch.setattr(question_files, "MOST_BYTES", 2000)
    monkeypatch.setattr(question_files, "MOST_ROWS", 20)
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        find(str(file))


@pytest.mark.parametrize(
    ("cell", "stop"),
    [
        ('[" a", "\\nQ:"]', (" a", "\nQ:")), ("[]", ()), ("\\nQ:", ("\nQ:",)), ("\nQ:", ("\nQ:",)),
        ('"\\nQ:"', ("\nQ:",)), ("[END]", ("[END]",)), ('"', ('"',)),
    ],
)  # fmt: skip
def test_a_cell_of_a_table_holds_one_stop_or_a_list(tmp_path, cell, stop):
    file = tmp_path / "q.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["prompt", "answer", "stop", "judge"], ["a", "2", cell, "math"]])
    assert find(str(file)).stop == stop


@pytest.mark.parametrize(
    ("answers", "golds"),
    [
        ([4, 0.5], ["4", "0.5"]),
        (np.array([4, 0.1], dtype=np.float32), ["4", "0.1"]),
        (pd.Series([4, 0.5], dtype=object), ["4", "0.5"]),
        (pd.Series([4.0, "x"], dtype=object), ["4.0", "x"]),
        ([2**70, 3], [str(2**70), "3"]),
        ([2.0**60, 0.5], ["1.152921504606847e+18", "0.5"]),
        (["007", "1e3"], ["007", "1e3"]),
        ([Decimal("1.50"), Decimal("2")], ["1.50", "2"]),
        (pd.Categorical(["a", "b"]), ["a", "b"]),
        (pd.Categorical(np.array([4, 0.1], dtype=np.float32)), ["4", "0.1"]),
        (pd.Series([4, 0.1], dtype=pd.SparseDtype("float32")), ["4", "0.1"]),
    ],
)
def test_answers_of_a_data_frame_keep_their_form(tmp_path, answers, golds):
    frame = pd.DataFrame({"prompt": ["one", "two"], "answer": answers, "group": [None, np.nan], "id": [pd.NA, pd.NaT]})
    items = task("x", frame).load()
    assert [(item.gold, item.group, item.id) for item in items] == [(golds[0], "", "1"), (golds[1], "", "2")]


@pytest.mark.parametrize("width", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("of", [pa.list_, pa.large_list, lambda numbers: pa.list_(numbers, 2)])
def test_floating_point_numbers_of_any_width_are_as_short_as_they_can_be(tmp_path, width, of):
    numbers = np.array([4, 0.1, 3, 0.7], dtype=width.to_pandas_dtype())
    answers, aliases = pa.array(numbers[:2]), pa.array([numbers[2:]] * 2, of(width))
    table = pa.table({"prompt": ["a", "b"], "answer": answers, "aliases": aliases})
    file = tmp_path / "q.parquet"
    pyarrow.parquet.write_table(table, file)
    arrow = table.to_pandas(types_mapper=pd.ArrowDtype)
    for items in (find(str(file)).load(), task("x", table.to_pandas()).load(), task("x", arrow).load()):
        assert [(item.gold, item.aliases) for item in items] == [("4", ("3", "0.7")), ("0.1", ("3", "0.7"))]


def test_lists_of_floating_point_numbers_in_a_data_frame_are_as_columns_of_them():
    rows = [
        {"prompt": "a", "answer": 3.0, "choices": [3.0, 4.5]},
        {"prompt": "b", "answer": 4.5, "choices": (4.5, 3.0)},
    ]
    assert [item.choices for item in task("x", pd.DataFrame(rows)).load()] == [("3", "4.5"), ("4.5", "3")]
    assert [item.choices for item in task("x", rows).load()] == [("3.0", "4.5"), ("4.5", "3.0")]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (True, "must be a text, not true or false"),
        (float("inf"), "not a finite number"),
        (datetime.date(2026, 1, 2), "is a date or a time"),
        (None, "the field 'answer' is missing"),
        ({"a": 1}, "must be a text, not an object"),
        (b"x", "must be a text, not a value of the type bytes"),
        pytest.param(10**5000, "a number of thousands of digits", id="digits"),
    ],
)
def test_an_answer_of_no_certain_form_is_refused(answer, says):
    for questions in (
        [{"prompt": "a", "answer": answer}],
        pd.DataFrame({"prompt": ["a"], "answer": pd.Series([answer], dtype=object)}),
    ):
        with pytest.raises(UsageError, match=says):
            task("x", questions)


@pytest.mark.parametrize("of", [list, tuple, np.array, pd.Series])
def test_choices_of_a_data_frame_are_lists_of_any_kind(of):
    frame = pd.DataFrame({"prompt": ["a", "b"], "answer": ["x", "y"], "choices": [of(["x", "y"]), of(["y", "z", "w"])]})
    assert [item.choices for item in task("x", frame).load()] == [("x", "y"), ("y", "z", "w")]


@pytest.mark.parametrize(
    ("choices", "answer", "gold"),
    [
        (["a", "b", "c"], 1, "b"), (["10", "20"], 1, "20"), (["0", "1"], 1, "1"), ([3, 4], 4, "4"),
        (["3", "4", "0", "1"], "1", "1"), (["3", "4", "0", "1"], 1, None), (["1.0", "2"], 1, None),
        (["a", "b"], 2, None), (["a", "b"], 1.0, None), (["a", "b"], "1", None), (["A", "B", "C"], "B", "B"),
        (["B", "A"], "B", "B"), (["Paris", "Rome"], "B", "Rome"), (["Paris", "Rome"], "b", None),
        (["b", "a"], "A", None),
    ],
)  # fmt: skip
def test_a_whole_number_is_a_place_among_choices_where_no_other_choice_reads_like_it(tmp_path, choices, answer, gold):
    row = {"prompt": "p", "answer": answer, "choices": choices}
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps(row), encoding="utf-8")
    for read in (lambda: find(str(file)).load(), lambda: task("x", [row]).load()):
        if gold is None:
            with pytest.raises(UsageError, match="among the choices"):
                read()
        else:
            assert read()[0].gold == gold


@pytest.mark.parametrize(
    ("alike", "answer"),
    [
        *(
            (text, 2)
            for text in ("2. y", "(2) y", "$2", "2 cm", "2cm", "+2", "№ 2", "２", "②", "**2**", "Option 2: y", "x = 2")
        ),
        *((text, 2) for text in ("2nd", "Type 2 diabetes", "about 2 cm", "Two", "two cm", "the second", "ii) y", "Ⅱ")),
        *((text, "B") for text in ("B) y", "b. y", "(B) y", "[b]", "B flat", "Option B: y", "plan B", "Ⓑ", "**B** y")),
        *((text, "A") for text in ("A) y", "a: y", "Option A")),
        *((text, 1) for text in ("one", "1 to go", "I. y", "First")),
    ],
)
def test_a_place_is_refused_where_another_choice_reads_like_it(alike, answer):
    for choices in (["some", "more", "less", alike], [alike, "some", "more", "less"][:: -1 if answer == "A" else 1]):
        with pytest.raises(UsageError, match=r"may be the choice .* or the place of .* counted from [0A]"):
            task("x", [{"prompt": "p", "answer": answer, "choices": choices}])
        assert task("x", [{"prompt": "p", "answer": alike, "choices": choices}]).load()[0].gold == alike


@pytest.mark.parametrize(
    ("other", "answer"),
    [
        *(
            (text, 2)
            for text in ("20", "2.5", "-2", "−2", "1/2", "2/3", "2:30", "1, 2", "x²", "x^2", "3 × 2", "1 and 2")
        ),
        *((text, 2) for text in ("We met at 2 o'clock", "One of the two that we saw", "b) y", "twofold")),
        *((text, "B") for text in ("Both A and B", "A and B", "B and C", "Bob", "2. y", "ab")),
        *((text, "A") for text in ("A dog", "a dog that barks", "An ant")),
        *((text, 1) for text in ("I am", "11", "No. 10")),
    ],
)
def test_a_place_is_taken_where_no_other_choice_reads_like_it(other, answer):
    choices = ["some", "more", "less", other]
    place = answer if isinstance(answer, int) else "AB".index(answer)
    assert task("x", [{"prompt": "p", "answer": answer, "choices": choices}]).load()[0].gold == choices[place]


def test_a_place_is_taken_where_the_choice_there_reads_like_it():
    for choices, answer in ((["A) x", "B) y"], "B"), (["0. x", "1. y"], 1), (["zero", "one", "two"], 1)):
        assert task("x", [{"prompt": "p", "answer": answer, "choices": choices}]).load()[0].gold == choices[1]


def test_a_prompt_of_megabytes_is_refused_before_it_is_put_into_tokens():
    asked = Item("big", "a" * 10_000_000, "4")
    with pytest.raises(LesionError, match="its prompt has 10,000,000 characters, and the context has 256 tokens"):
        encode(model("llama"), task("x", ROWS), asked)
