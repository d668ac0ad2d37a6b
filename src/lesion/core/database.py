"""The SQLite file under a store: its tables, how it is opened, and its errors in words to act on."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lesion.core.integrity import refuse_damage, refuse_other_schema
from lesion.errors import LesionError
from lesion.files import reason

FILE = "answers.sqlite"
VERSION = 5
APPLICATION = 0x4C45534E  # "LESN": tells a store from any other SQLite file

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
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
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
    refuse_other_schema(connection, SCHEMA, file)
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
