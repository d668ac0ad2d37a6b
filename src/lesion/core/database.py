"""The SQLite file under a store: its tables, how it is opened, its integrity, and its errors in words to act on.

SQLite finds a damaged page only where the damage breaks the structure of the file; a changed cell it returns as it is.
So every row has the checksum that it was written with, and none may be orphaned. The checksums find accidents. They are
no signature: who writes a store on purpose can write them too, which is why the types and JSON of every row are looked
at as well.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lesion.errors import LesionError
from lesion.files import UNFIT, reason
from lesion.plain import short
from lesion.tasks.task import Finish

FILE = "answers.sqlite"
VERSION = 5
APPLICATION = 0x4C45534E  # "LESN": tells a store from any other SQLite file
SYNCHRONOUS = "NORMAL"  # with the write-ahead log: the disk is waited for at a checkpoint, not at every commit

SCHEMA = """
CREATE TABLE study (hash TEXT NOT NULL, text TEXT NOT NULL, made TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE models (
    position INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
    metadata TEXT NOT NULL, checksum TEXT NOT NULL
);
CREATE TABLE items (
    position INTEGER PRIMARY KEY, task TEXT NOT NULL, item TEXT NOT NULL, question TEXT NOT NULL,
    gold TEXT NOT NULL, "group" TEXT NOT NULL, digest TEXT NOT NULL, checksum TEXT NOT NULL, UNIQUE (task, item)
);
CREATE TABLE asked (
    position INTEGER PRIMARY KEY, task TEXT NOT NULL, item TEXT NOT NULL, checksum TEXT NOT NULL, UNIQUE (task, item),
    FOREIGN KEY (task, item) REFERENCES items (task, item)
);
CREATE TABLE answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL REFERENCES models (fingerprint), edit TEXT NOT NULL,
    task TEXT NOT NULL, item TEXT NOT NULL, decoding TEXT NOT NULL, prompt_style TEXT NOT NULL,
    text TEXT NOT NULL, tokens INTEGER NOT NULL, finish TEXT NOT NULL, correct INTEGER NOT NULL,
    parsed TEXT, scores TEXT, ranks TEXT, engine TEXT NOT NULL, checksum TEXT NOT NULL,
    FOREIGN KEY (task, item) REFERENCES items (task, item)
);
"""

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def advice(file: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise about `file` into a LesionError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(file, error) from error
    except (UnicodeError, OverflowError, MemoryError) as error:  # SQLite's own messages quote damaged bytes
        raise damaged(file, reason(error)) from error
    except OSError as error:
        if error.errno in _FULL:
            raise _full(file) from error
        raise LesionError(
            f"{file.parent} cannot be written ({error.strerror or error}); give a folder that you may "
            "write to with --out."
        ) from error


def _full(file: Path) -> LesionError:
    return LesionError(
        f"The disk is full: {file} cannot grow. Every answer stored so far is safe; make room and run the "
        "same command again, it asks only for what is missing."
    )


def _explain(file: Path, error: sqlite3.Error) -> LesionError:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name == "SQLITE_FULL":
        return _full(file)
    if name == "SQLITE_NOTADB":
        return LesionError(f"{file} is not an SQLite file; move it away, or give another folder with --out.")
    if name.startswith("SQLITE_CORRUPT"):
        return damaged(file, str(error))
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return LesionError(
            f"{file} cannot be opened ({error}); check that you may read and write there, or give another "
            "folder with --out."
        )
    if name.startswith("SQLITE_IOERR"):
        return LesionError(
            f"Reading or writing {file} failed ({error}): the disk is full or faulty. What was stored before "
            "is safe; check the disk and run the same command again."
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LesionError(f"Another program has locked {file}; close it and run the same command again.")
    return LesionError(f"The store {file} could not be used ({name or type(error).__name__}: {error}).")


def damaged(file: Path, detail: str) -> LesionError:
    """The error for a file that is SQLite's but broken. The file is left as it is."""
    return LesionError(
        f"{file} is damaged ({detail}). Nothing was changed in it: `sqlite3 {file} .recover` may save its "
        "rows; to go on, move it away or give another folder with --out."
    )


def connect_to_write(file: Path) -> sqlite3.Connection:
    """The file opened for writing, made when it is not there.

    With the write-ahead log and synchronous=NORMAL a committed row survives the death of the process at any
    moment (kill -9 included); a power cut may cost the last commits, never the file. Where the file system
    cannot share memory for the log, SQLite keeps its rollback journal, and every commit waits for the disk.
    """
    connection = _connected(file)
    try:
        _check(connection, file)
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(file: Path) -> sqlite3.Connection:
    """The file opened for reading only, also while another process writes or from a write-protected folder."""
    if not file.is_file():
        raise LesionError(f"There is no study in {file.parent}: it has no {file.name}. Run a study with --out first.")
    for beside in ("", "-wal", "-shm", "-journal"):
        if file.with_name(file.name + beside).is_symlink():
            raise LesionError(f"{file}{beside} is a link, which is not followed; remove it.")
    address = file.resolve().as_uri()
    connection = _connected(f"{address}?mode=ro")
    try:
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            log = file.with_name(file.name + "-wal")
            if error.sqlite_errorname != "SQLITE_CANTOPEN" or (log.exists() and log.stat().st_size):
                raise
            # A read-only folder has no room for the shared memory of the log; with no log left none is
            # needed.
            connection.close()
            connection = _connected(f"{address}?immutable=1")
        _check(connection, file)
        if not has_tables(connection):
            raise LesionError(f"{file} holds no study yet; run a study with --out {file.parent} first.")
    except BaseException:
        connection.close()
        raise
    return connection


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables have been made: they are made in one transaction, so all are there or none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0]) > 0


def _connected(address: str | Path) -> sqlite3.Connection:
    connection = sqlite3.connect(address, isolation_level=None, timeout=10.0, uri=isinstance(address, str))
    # Bytes that are not UTF-8 become lone surrogates, which no row has: its checksum tells.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse what is no store of this format, whole and undamaged; an empty file is one that is yet to be made."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if tables and application != APPLICATION:
        raise LesionError(f"{file} is a database of another program; move it away, or give another folder with --out.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise LesionError(f"{file} was made by a newer lesion (format {version}); upgrade lesion to read it.")
    if tables and version < VERSION:
        raise LesionError(
            f"{file} was made by an earlier lesion (format {version}, now {VERSION}); give another folder with --out."
        )
    if not tables:
        return
    refuse_other_schema(connection, file)
    verdict = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if verdict != "ok":
        raise damaged(file, verdict.splitlines()[-1])
    refuse_damage(connection, file)


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty store; call it inside a transaction."""
    for statement in SCHEMA.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing: commit at the end, roll back when anything is raised, Ctrl-C included."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled back by itself; a second ROLLBACK would hide the first error.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


TABLES = {
    "study": ("hash", "text", "made"),
    "models": ("position", "fingerprint", "name", "metadata"),
    "items": ("position", "task", "item", "question", "gold", '"group"', "digest"),
    "asked": ("position", "task", "item"),
    "answers": (
        "key", "model", "edit", "task", "item", "decoding", "prompt_style", "text", "tokens", "finish", "correct",
        "parsed", "scores", "ranks", "engine",
    ),
}  # fmt: skip
"""The columns of every table, in the order in which the checksum takes them; the column `checksum` follows them."""

Value = str | int | None
_FINISHES = frozenset(get_args(Finish))


def checksum(values: Sequence[Value]) -> str:
    """The checksum of a row: BLAKE2b, 128 bits as 32 hex digits, over its values as a JSON list."""
    text = json.dumps(list(values), ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def insertion(table: str) -> str:
    """The statement that inserts a row with its checksum: `with_checksum` gives its parameters."""
    columns = (*TABLES[table], "checksum")
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def with_checksum(*values: Value) -> tuple[Value, ...]:
    """The values of a row and their checksum."""
    return (*values, checksum(values))


def refuse_other_schema(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse a store that has other tables than `SCHEMA` makes, or views or triggers.

    Nothing in the tables is read: a view can be endless.
    """
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(SCHEMA)
        ours = {(str(kind), str(name)): sql for kind, name, sql in fresh.execute(_SCHEMA)}
    finally:
        fresh.close()
    theirs = {(str(kind), str(name)): sql for kind, name, sql in connection.execute(_SCHEMA)}
    differing = [entry for entry in (*theirs, *ours) if theirs.get(entry, 0) != ours.get(entry, 0)]
    if differing:
        kind, name = differing[0]
        if differing[0] not in theirs:
            fault = "is missing"
        elif differing[0] not in ours:
            fault = "is none that lesion makes"
        elif str(theirs[differing[0]]).upper().startswith("CREATE TABLE"):
            fault = _other_columns(connection, name)
        else:  # a virtual table, whose columns only its own code knows
            fault = "is none that lesion makes"
        raise LesionError(
            f"{file} is not a store as lesion makes it: its {short(kind)} '{short(name)}' {fault}. Another program has"
            " changed the file. Nothing in it was read; take the file from a copy, or run the study into another"
            " folder."
        )


def _other_columns(connection: sqlite3.Connection, table: str) -> str:
    """How the columns of one of our tables differ from those that lesion makes, as the end of a sentence."""
    ours = [*(column.strip('"') for column in TABLES.get(table, ())), "checksum"]
    # `pragma_table_xinfo` reads the schema, not the rows.
    theirs = [str(name) for _, name, *_ in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table,))]
    more = [f"'{short(name, 40)}'" for name in theirs if name not in ours]
    fewer = [f"'{name}'" for name in ours if name not in theirs]
    faults = [*(f"has a column {name} too many" for name in more[:3]), *(f"lacks the column {name}" for name in fewer)]
    return " and ".join(faults) or "has the right columns in another form (other types, order or constraints)"


_SCHEMA = "SELECT type, name, sql FROM sqlite_master"


def refuse_damage(connection: sqlite3.Connection, file: Path) -> None:
    """Check every row of a store in one look at it."""
    connection.execute("BEGIN")
    try:
        damage = _damaged(connection)
        studies = int(connection.execute("SELECT count(*) FROM study").fetchone()[0])
    finally:
        connection.execute("ROLLBACK")
    if damage:
        raise LesionError(_damage_text(damage, file))
    if studies != 1:
        rows = f"{studies:,} rows" if studies else "no row"
        raise LesionError(
            f"{file} is damaged: its table 'study' has {rows}, where one row"
            " says which study the answers belong to. Nothing was changed in it. Take the file from a copy, or run the"
            " study into another folder."
        )


@dataclass(frozen=True)
class _Damage:
    table: str
    row: int
    place: str
    kind: Literal["changed", "orphaned"]


def _damaged(connection: sqlite3.Connection) -> list[_Damage]:
    damage: list[_Damage] = []
    for table, columns in TABLES.items():
        for row, stored, *values in connection.execute(f"SELECT rowid, checksum, {', '.join(columns)} FROM {table}"):
            if not _sound(table, stored, values):
                damage.append(_Damage(table, row, _place(table, values), "changed"))
    known = {(entry.table, entry.row) for entry in damage}
    for table, row, *_ in connection.execute("PRAGMA foreign_key_check").fetchall():
        if (table, row) not in known:
            known.add((table, row))
            columns = TABLES[table]
            values = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE rowid = ?", (row,)).fetchone()
            damage.append(_Damage(table, row, _place(table, values), "orphaned"))
    return damage


def _sound(table: str, stored: Any, values: Sequence[Any]) -> bool:
    try:
        if checksum(values) != stored:
            return False
        _refuse_ill_formed(dict(zip(TABLES[table], values, strict=True)))
    except UNFIT:
        return False
    return True


_NOT_TEXT = {"position", "tokens", "correct", "parsed", "scores", "ranks"}


def _refuse_ill_formed(row: dict[str, Any]) -> None:
    """Raise where a value, by the name of its column, is not of the kind that lesion writes there."""
    if not all(isinstance(value, str) for name, value in row.items() if name not in _NOT_TEXT):
        raise TypeError("not text")
    if not isinstance(json.loads(row.get("metadata", "{}")), dict):
        raise TypeError("metadata is no object")
    if "tokens" not in row:  # no answer
        return
    if type(row["tokens"]) is not int or row["tokens"] < 0 or row["correct"] not in (0, 1):
        raise ValueError("no number of tokens, or no verdict")
    if row["finish"] not in _FINISHES or not isinstance(row["parsed"], str | None):
        raise ValueError("no way to end, or no answer")
    for name, kinds in (("scores", (int, float, type(None))), ("ranks", (int,))):
        numbers = [] if row[name] is None else json.loads(row[name])
        if not isinstance(numbers, list) or not all(type(number) in kinds for number in numbers):
            raise ValueError(f"no {name}")


def _place(table: str, values: Sequence[Any]) -> str:
    row = dict(zip(TABLES[table], values, strict=True))
    if table == "answers":
        return f"answers of {short(row['task'], 40)} under {short(row['edit'], 40)}"
    if table in ("items", "asked"):
        return f"items of {short(row['task'], 40)}"
    return {"models": "models", "study": "the study itself"}[table]


def _damage_text(damage: Sequence[_Damage], file: Path) -> str:
    counts = Counter(entry.place for entry in damage)
    listed = [f"{place}: {count:,}" for place, count in counts.most_common(5)]
    more = f"; {len(counts) - 5} more places" if len(counts) > 5 else ""
    changed = any(entry.kind == "changed" for entry in damage)
    if len(damage) == 1:
        rows = "row " + ("lacks the checksum that it was written with" if changed else "belongs to what is gone")
    else:
        rows = "rows " + ("lack the checksums that they were written with" if changed else "belong to what is gone")
    if all(entry.table == "answers" and entry.kind == "changed" for entry in damage) and len(damage) <= 50:
        numbers = ", ".join(str(entry.row) for entry in damage)
        advice = (
            f"To have these asked again, delete them: sqlite3 '{file}' \"DELETE FROM answers WHERE rowid IN"
            f' ({numbers})"; then run the same command again. Or give another folder with --out.'
        )
    else:
        advice = "Take the file from a copy, or give another folder with --out."
    counted = f"{len(damage):,} {rows} ({'; '.join(listed)}{more})"
    return f"{file} is damaged: {counted}. Nothing was changed in it. {advice}"
