"""The integrity of a store: no changed row is ever believed."""

import hashlib
import json
import shutil
import sqlite3

import pytest
from test_store import STUDY, row

from damaged_stores_ways import ways
from lesion.core.database import TABLES, checksum
from lesion.core.store import Store
from lesion.errors import LesionError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with an undamaged store."""
    place = tmp_path_factory.mktemp("whole")
    with Store.open(place, *STUDY) as store:
        store.add_model("f00d", "bundled:one", {"blocks": 8})
        store.write(
            row(item, edit, scores=(-0.5, -2.0), ranks=(1, 7)) for item in range(5) for edit in ("baseline", "0×0")
        )
    return place


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def change(folder, *statements):
    connection = sqlite3.connect(folder / "answers.sqlite")
    connection.execute("PRAGMA synchronous = OFF")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def openings(folder):
    return (lambda: Store.open(folder, *STUDY), lambda: Store.read(folder))


def test_the_checksum_is_blake2b_of_the_values_as_json():
    values = ["a\0b", 3, None, "é"]
    text = '["a\\u0000b", 3, null, "é"]'.encode()
    assert json.loads(text) == values
    assert checksum(values) == hashlib.blake2b(text, digest_size=16).hexdigest()


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in TABLES for column in TABLES[table]])
def test_a_changed_cell_of_any_column_of_any_table_is_found(folder, table, column):
    where = "WHERE rowid = 1"
    [(before,)] = sqlite3.connect(folder / "answers.sqlite").execute(f"SELECT {column} FROM {table} {where}")
    after = before + 70 if isinstance(before, int) else f"{before or ''}x"
    change(folder, "PRAGMA foreign_keys = OFF", f"UPDATE {table} SET {column} = {after!r} {where}")
    for opening in openings(folder):
        with pytest.raises(LesionError, match=r"answers.sqlite is damaged: .* row"):
            opening()


WAY_OUT = "(T|t)ake the file from a copy, or run the study into another folder"


@pytest.mark.parametrize(
    ("statement", "rows"), [("DELETE FROM study", "no row"), ("INSERT INTO study SELECT * FROM study", "2 rows")]
)
def test_a_store_of_no_study_or_of_two_says_so_and_names_the_way_out(folder, statement, rows):
    change(folder, statement)
    for opening in openings(folder):
        with pytest.raises(LesionError, match=rf"its table 'study' has {rows}, .*{WAY_OUT}"):
            opening()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("ALTER TABLE study ADD COLUMN note TEXT", "table 'study' has a column 'note' too many"),
        ("ALTER TABLE answers DROP COLUMN engine", "table 'answers' lacks the column 'engine'"),
        ("ALTER TABLE models RENAME COLUMN name TO label", "has a column 'label' too many and lacks the column 'name'"),
        ("CREATE TABLE notes (text)", "table 'notes' is none that lesion makes"),
        ("DROP TABLE study", "table 'study' is missing"),
    ],
)
def test_a_table_that_another_program_changed_is_named_with_its_columns(folder, statement, fault):
    change(folder, "PRAGMA foreign_keys = OFF", statement)
    for opening in openings(folder):
        with pytest.raises(LesionError, match=rf"{fault}\. Another program .*{WAY_OUT}"):
            opening()


def test_a_table_with_the_right_columns_in_another_form_is_named(folder):
    change(folder, "ALTER TABLE study RENAME TO old", "CREATE TABLE study AS SELECT * FROM old", "DROP TABLE old")
    with pytest.raises(LesionError, match="table 'study' has the right columns in another form"):
        Store.read(folder)


def test_what_is_damaged_and_the_way_out_are_named(folder):
    change(folder, "UPDATE answers SET correct = 1 - correct WHERE edit = '0×0' AND item IN ('1', '3')")
    with pytest.raises(LesionError) as caught:
        Store.read(folder)
    message = str(caught.value)
    assert "2 rows lack the checksums" in message
    assert "answers of primer:atlas under 0×0: 2" in message
    statement = message.split('"')[1]
    change(folder, statement)  # what the message advises
    with Store.open(folder, *STUDY) as store:
        assert len(store) == 8
        stored = store.keys()
        assert row(1, "0×0").key not in stored
        assert row(1).key in stored
        assert store.write([row(1, "0×0")]) == 1


@pytest.mark.parametrize("table", ["items", "models"])
def test_answers_whose_item_or_model_is_gone_are_refused_and_not_left_out(folder, table):
    change(folder, "PRAGMA foreign_keys = OFF", f"DELETE FROM {table} WHERE position = 1")
    for opening in openings(folder):
        with pytest.raises(LesionError, match=r"belongs? to what is gone"):
            opening()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS SELECT * FROM answers",
        "CREATE TRIGGER more AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
        "CREATE INDEX more ON answers (edit)",
    ],
)
def test_a_store_with_another_schema_is_refused(folder, statement):
    change(folder, "PRAGMA foreign_keys = OFF", statement)
    for opening in openings(folder):
        with pytest.raises(LesionError, match="not a store as lesion makes it"):
            opening()


def test_a_store_whose_answers_are_an_endless_view_is_refused_at_once(folder):
    change(
        folder,
        "DROP TABLE answers",
        "CREATE VIEW answers AS WITH RECURSIVE n (key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT * FROM n",
    )
    for opening in openings(folder):
        with pytest.raises(
            LesionError, match=r"its table 'answers' is missing|its view 'answers' is none that lesion makes"
        ):
            opening()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tokens", "many"), ("tokens", -1), ("scores", "[1"), ("scores", "{}"), ("scores", '["a"]'), ("ranks", "[1.5]"),
        ("ranks", "[" * 5000), ("finish", "tired"), ("correct", 2), ("text", 5), ("parsed", 5),
    ],
)  # fmt: skip
def test_a_row_with_a_right_checksum_and_values_that_no_row_has_is_refused(folder, column, value):
    connection = sqlite3.connect(folder / "answers.sqlite")
    names = list(TABLES["answers"])
    values = list(connection.execute(f"SELECT {', '.join(names)} FROM answers WHERE rowid = 1").fetchone())
    values[names.index(column)] = value
    connection.execute(f"UPDATE answers SET {column} = ?, checksum = ? WHERE rowid = 1", (value, checksum(values)))
    connection.commit()
    stored = connection.execute(f"SELECT {column} FROM answers WHERE rowid = 1").fetchone()[0]
    connection.close()
    assert type(stored) is type(value) or isinstance(stored, str)  # SQLite turns numbers into text in a column of text
    for opening in openings(folder):
        with pytest.raises(LesionError, match="is damaged"):
            opening()


def test_bytes_that_are_not_text_are_damage(folder):
    change(folder, "UPDATE answers SET text = CAST(x'61ff62' AS TEXT) WHERE rowid = 1")
    with pytest.raises(LesionError, match="1 row lacks"):
        Store.read(folder)


@pytest.mark.parametrize("seed", range(20))
def test_no_random_damage_goes_unnoticed(folder, seed):
    with Store.read(folder) as store:
        before = store.answers(), store.items(), store.models(), store.study
    kinds = list(ways)
    ways[kinds[seed % len(kinds)]](folder / "answers.sqlite", seed)
    try:
        with Store.read(folder) as store:
            after = store.answers(), store.items(), store.models(), store.study
    except LesionError:
        return
    assert set(after[0]["key"]) <= set(before[0]["key"])  # an answer that is gone is asked again
    left = before[0][before[0]["key"].isin(after[0]["key"])].reset_index(drop=True)
    assert after[0].equals(left)
    assert set(after[1]["item"]) <= set(before[1]["item"])
    assert before[3] == after[3]
